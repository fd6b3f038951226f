#include "operator/controller/objects.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/controller/pod.h"

namespace downpour::controller {
namespace {

using kube::Json;
using ::testing::ElementsAre;

const PodOptions kImages{"server:1", "trainer:1", "IfNotPresent"};

api::TrainingJob MakeJob() {
  api::TrainingJob job;
  job.metadata.name = "lenet";
  job.metadata.namespace_name = "team";
  job.metadata.uid = "01234567-89ab-cdef-0123-456789abcdef";
  job.spec.parameter_server.emplace();
  job.spec.parameter_server->replicas = 2;
  job.spec.worker.replicas = 3;
  job.spec.model.name = "LeNet";
  job.spec.dataset = {"IDX", "/data"};
  return job;
}

Json Build(const api::TrainingJob& job, api::Role role, int index = 0, int incarnation = 1) {
  const absl::StatusOr<Json> pod = PodsOfRole(job, kImages, role).Make(index, incarnation);
  EXPECT_TRUE(pod.ok()) << pod.status();
  return pod.value_or(Json());
}

std::string Argument(const Json& container, const std::string& flag) {
  const Json& arguments = container.at("args");
  const auto found = std::find(arguments.begin(), arguments.end(), flag);
  return found == arguments.end() || found + 1 == arguments.end() ? "" : (found + 1)->get<std::string>();
}

TEST(ObjectsTest, APodTellsItsProcessWhoItIs) {
  const Json pod = Build(MakeJob(), api::Role::kWorker, 2, 5);
  EXPECT_EQ(pod.at("metadata").at("name"), "lenet-worker-2");
  EXPECT_EQ(pod.at("metadata").at("namespace"), "team");
  const Json& owner = pod.at("metadata").at("ownerReferences").at(0);
  EXPECT_EQ(owner.at("uid"), "01234567-89ab-cdef-0123-456789abcdef");
  EXPECT_EQ(owner.at("controller"), true);
  const Json& container = pod.at("spec").at("containers").at(0);
  EXPECT_EQ(container.at("image"), "trainer:1");
  EXPECT_EQ(container.at("command"), Json::array({"downpour-worker"}));
  EXPECT_EQ(Argument(container, "--index"), "2");
  EXPECT_EQ(Argument(container, "--incarnation"), "5");
  EXPECT_EQ(Argument(container, "--coordinator"), "lenet-coordinator-0.downpour-jobs.team.svc:7070");
  const Json config = Json::parse(container.at("env").at(0).at("value").get<std::string>());
  EXPECT_EQ(config.at("jobUid"), "0123456789abcdef0123456789abcdef");
  EXPECT_EQ(config.at("psReplicas"), 2);
  EXPECT_EQ(config.at("outputDirectory"), "/output");
  // Read back, it is the pod that was asked for.
  Json stored = pod;
  stored["metadata"]["uid"] = "u";
  const std::optional<Pod> read = DecodePod(stored);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->role, api::Role::kWorker);
  EXPECT_EQ(read->index, 2);
  EXPECT_EQ(read->incarnation, 5);
  EXPECT_EQ(read->meta.controller_uid, "01234567-89ab-cdef-0123-456789abcdef");
}

TEST(ObjectsTest, PodsOfOneRoleDifferInWhoTheyAreAlone) {
  const api::TrainingJob job = MakeJob();
  const PodsOfRole workers(job, kImages, api::Role::kWorker);
  EXPECT_EQ(*workers.Make(1, 3, {"node-a"}), *PodsOfRole(job, kImages, api::Role::kWorker).Make(1, 3, {"node-a"}));
  // What was made before leaves nothing behind.
  Json first = *workers.Make(0, 1);
  const Json second = *workers.Make(1, 4);
  first["metadata"]["name"] = second.at("metadata").at("name");
  first["metadata"]["labels"] = second.at("metadata").at("labels");
  first["spec"]["hostname"] = second.at("spec").at("hostname");
  first["spec"]["containers"][0]["args"] = second.at("spec").at("containers").at(0).at("args");
  EXPECT_EQ(first, second);
}

TEST(ObjectsTest, ThePartsOfEachRole) {
  const Json coordinator = Build(MakeJob(), api::Role::kCoordinator).at("spec").at("containers").at(0);
  EXPECT_EQ(coordinator.at("args").at(0), "coordinator");
  EXPECT_EQ(Argument(coordinator, "--listen"), "[::]:7070") << "all addresses, of IPv4 too";
  EXPECT_EQ(Argument(coordinator, "--metrics-listen"), "[::]:8080");
  EXPECT_EQ(Argument(coordinator, "--coordinator"), "");
  EXPECT_TRUE(coordinator.at("readinessProbe").contains("grpc"));
  const Json ps = Build(MakeJob(), api::Role::kParameterServer, 1).at("spec").at("containers").at(0);
  EXPECT_EQ(ps.at("args").at(0), "ps");
  EXPECT_EQ(ps.at("image"), "server:1");
  EXPECT_EQ(Argument(ps, "--node"), "$(DOWNPOUR_NODE)");
  EXPECT_EQ(ps.at("env").at(2).at("valueFrom").at("fieldRef").at("fieldPath"), "spec.nodeName");
  EXPECT_EQ(Argument(ps, "--advertise-host"), "$(POD_IP)") << "the process knows whether it needs brackets";
  EXPECT_FALSE(Build(MakeJob(), api::Role::kWorker).at("spec").at("containers").at(0).contains("readinessProbe"));
}

api::TrainingJob WithoutPs() {
  api::TrainingJob job = MakeJob();
  job.spec.strategy = api::Strategy::kAllReduce;
  job.spec.parameter_server.reset();
  return job;
}

TEST(ObjectsTest, WorkersOfAllReduceAreReachedByEachOther) {
  const auto ports = [](const Json& container) {
    std::vector<std::string> texts;
    for (const Json& port : container.at("ports")) {
      texts.push_back(absl::StrCat(port.at("name").get<std::string>(), " ", port.at("containerPort").get<int>()));
    }
    return texts;
  };
  const Json worker = Build(WithoutPs(), api::Role::kWorker, 1).at("spec").at("containers").at(0);
  EXPECT_EQ(Argument(worker, "--listen"), "[::]:7070");
  EXPECT_EQ(Argument(worker, "--advertise-host"), "$(POD_IP)");
  EXPECT_EQ(Argument(worker, "--ring-listen"), "[::]:7071");
  EXPECT_EQ(Argument(worker, "--node"), "");
  EXPECT_EQ(worker.at("env").at(1).at("name"), "POD_IP");
  EXPECT_THAT(ports(worker), ElementsAre("metrics 8080", "grpc 7070", "ring 7071"));
  const Json config = Json::parse(worker.at("env").at(0).at("value").get<std::string>());
  EXPECT_TRUE(config.contains("allReduce"));
  EXPECT_EQ(config.value("psReplicas", 0), 0);
  const Json other = Build(MakeJob(), api::Role::kWorker, 1).at("spec").at("containers").at(0);
  EXPECT_EQ(Argument(other, "--listen"), "") << "with parameter servers nobody comes to a worker";
  EXPECT_EQ(Argument(other, "--ring-listen"), "");
  EXPECT_THAT(ports(other), ElementsAre("metrics 8080"));
  const Json coordinator = Build(WithoutPs(), api::Role::kCoordinator).at("spec").at("containers").at(0);
  EXPECT_EQ(Argument(coordinator, "--ring-listen"), "");
}

TEST(ObjectsTest, EveryPodAsksForWhatItNeeds) {
  for (const api::Role role : {api::Role::kCoordinator, api::Role::kParameterServer, api::Role::kWorker}) {
    const Json resources = Build(MakeJob(), role).at("spec").at("containers").at(0).at("resources");
    EXPECT_FALSE(resources.at("requests").at("cpu").empty()) << "else it would be BestEffort";
    EXPECT_FALSE(resources.at("requests").at("memory").empty());
    EXPECT_FALSE(resources.contains("limits"));
  }
}

TEST(ObjectsTest, WhatATemplateSaysOfResourcesGoesBeforeWhatPodsAskForByThemselves) {
  const auto resources = [](const std::string& said, const std::string& pod = "") {
    api::TrainingJob job = MakeJob();
    job.spec.worker.pod_template =
        absl::StrCat(R"({"spec": {"containers": [{"name": "trainer", "resources": )", said, "}]", pod, "}}");
    return Build(job, api::Role::kWorker).at("spec").at("containers").at(0).at("resources");
  };
  EXPECT_EQ(resources(R"({"requests": {"memory": "4Gi"}, "limits": {"nvidia.com/gpu": 1}})"),
            Json::parse(R"({"requests": {"cpu": "200m", "memory": "4Gi"}, "limits": {"nvidia.com/gpu": 1}})"));
  const std::string limited = R"({"limits": {"cpu": "1", "memory": "40Mi"}})";
  EXPECT_EQ(resources(limited), Json::parse(limited)) << "the platform takes limits for requests";
  EXPECT_EQ(resources(R"({"limits": {"memory": "40Mi"}})").at("requests"), Json::parse(R"({"cpu": "200m"})"));
  EXPECT_EQ(resources("{}", R"(, "resources": {"limits": {"memory": "100Mi"}})"), Json::object());
  EXPECT_EQ(resources("null").at("requests").size(), 2u);
  EXPECT_EQ(resources("3"), 3) << "the platform refuses it";
}

TEST(ObjectsTest, PodsHaveNoRightsTheyDoNotNeed) {
  for (const api::Role role : {api::Role::kCoordinator, api::Role::kParameterServer, api::Role::kWorker}) {
    const Json spec = Build(MakeJob(), role).at("spec");
    EXPECT_EQ(spec.at("restartPolicy"), "Never");
    EXPECT_EQ(spec.at("automountServiceAccountToken"), false);
    EXPECT_EQ(spec.at("enableServiceLinks"), false);
    EXPECT_EQ(spec.at("securityContext").at("runAsNonRoot"), true);
    const Json& security = spec.at("containers").at(0).at("securityContext");
    EXPECT_EQ(security.at("readOnlyRootFilesystem"), true);
    EXPECT_EQ(security.at("allowPrivilegeEscalation"), false);
    EXPECT_EQ(security.at("capabilities").at("drop"), Json::array({"ALL"}));
  }
}

Json BuildWith(const std::string& pod_template, api::Role role = api::Role::kWorker, int index = 0) {
  api::TrainingJob job = MakeJob();
  job.spec.coordinator.emplace();
  (role == api::Role::kWorker        ? job.spec.worker.pod_template
   : role == api::Role::kCoordinator ? job.spec.coordinator->pod_template
                                     : job.spec.parameter_server->pod_template) = pod_template;
  return Build(job, role, index);
}

// The names of a list, in order.
std::vector<std::string> Names(const Json& list) {
  std::vector<std::string> names;
  for (const Json& item : list) names.push_back(item.at("name"));
  return names;
}

TEST(ObjectsTest, ThePlatformMayChooseWhoAPodIs) {
  api::TrainingJob job = MakeJob();
  const auto security = [&job](std::int64_t run_as_user) {
    PodOptions options = kImages;
    options.run_as_user = run_as_user;
    const absl::StatusOr<Json> pod = PodsOfRole(job, options, api::Role::kWorker).Make(0, 1);
    return pod.ok() ? pod->at("spec").at("securityContext") : Json();
  };
  const std::string rest = R"("runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}})";
  EXPECT_EQ(security(65532), Json::parse(R"({"runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532, )" + rest));
  EXPECT_EQ(security(0), Json::parse("{" + rest));
  job.spec.worker.pod_template =
      R"({"spec": {"securityContext": {"runAsUser": null, "runAsGroup": 0, "fsGroup": null}}})";
  EXPECT_EQ(security(65532), Json::parse(R"({"runAsGroup": 0, )" + rest)) << "as a template may say for its own pods";
}

TEST(ObjectsTest, ATemplateIsMergedIntoWhatPodsHave) {
  const Json pod = BuildWith(R"({
    "metadata": {"labels": {"team": "vision"}, "annotations": {"note": "x", "prometheus.io/scrape": "false"}},
    "spec": {"nodeSelector": {"gpu": "yes"}, "securityContext": {"fsGroup": 2000},
             "containers": [{"name": "sidecar", "image": "proxy:2"},
                            {"name": "trainer", "image": "mine:3", "resources": {"limits": {"cpu": "2"}},
                             "env": [{"name": "OMP_NUM_THREADS", "value": "1"}], "ports": [{"containerPort": 9000, "name": "x"}],
                             "securityContext": {"capabilities": {"add": ["SYS_PTRACE"]}},
                             "volumeMounts": [{"name": "output", "mountPath": "/models"}]}],
             "volumes": [{"name": "output", "persistentVolumeClaim": {"claimName": "models"}},
                         {"name": "tmp", "emptyDir": {}}]}})",
                             api::Role::kWorker, 1);
  EXPECT_EQ(pod.at("metadata").at("labels").at("team"), "vision");
  EXPECT_EQ(pod.at("metadata").at("labels").at("training.downpour.dev/role"), "worker");
  EXPECT_EQ(pod.at("metadata").at("annotations").at("note"), "x");
  EXPECT_EQ(pod.at("metadata").at("annotations").at("prometheus.io/scrape"), "false");
  const Json& spec = pod.at("spec");
  EXPECT_EQ(spec.at("nodeSelector").at("gpu"), "yes");
  EXPECT_EQ(spec.at("securityContext").at("fsGroup"), 2000);
  EXPECT_EQ(spec.at("securityContext").at("runAsNonRoot"), true);
  EXPECT_EQ(spec.at("securityContext").at("seccompProfile").at("type"), "RuntimeDefault");
  EXPECT_THAT(Names(spec.at("volumes")), ElementsAre("downpour-tmp", "downpour-output", "output", "tmp"));
  ASSERT_THAT(Names(spec.at("containers")), ElementsAre("sidecar", "trainer"));
  const Json& container = spec.at("containers").at(1);
  EXPECT_EQ(container.at("image"), "mine:3");
  EXPECT_EQ(Argument(container, "--index"), "1");
  EXPECT_EQ(container.at("resources").at("limits").at("cpu"), "2");
  EXPECT_THAT(Names(container.at("env")), ElementsAre("DOWNPOUR_CONFIG", "POD_IP", "OMP_NUM_THREADS"));
  EXPECT_THAT(Names(container.at("ports")), ElementsAre("metrics", "x"));
  EXPECT_EQ(container.at("securityContext").at("readOnlyRootFilesystem"), true);
  EXPECT_EQ(container.at("securityContext").at("capabilities").at("drop"), Json::array({"ALL"}));
  EXPECT_THAT(Names(container.at("volumeMounts")), ElementsAre("downpour-tmp", "downpour-output", "output"));
}

// A job that runs goes on whatever its template says; before a job begins this is refused.
TEST(ObjectsTest, WhatIsOursStaysOurs) {
  const Json pod = BuildWith(R"({
    "metadata": {"labels": {"training.downpour.dev/role": "chief"}},
    "spec": {"restartPolicy": "Always", "hostname": "mine", "subdomain": "mine",
             "containers": [{"name": "trainer", "args": ["--evil"], "env": [{"name": "DOWNPOUR_CONFIG", "value": "no"}]}]}})");
  EXPECT_EQ(pod.at("metadata").at("labels").at("training.downpour.dev/role"), "worker");
  const Json& spec = pod.at("spec");
  EXPECT_EQ(spec.at("restartPolicy"), "Never");
  EXPECT_EQ(spec.at("hostname"), "lenet-worker-0");
  EXPECT_EQ(spec.at("subdomain"), kServiceName);
  const Json& container = spec.at("containers").at(0);
  EXPECT_EQ(Argument(container, "--index"), "0");
  EXPECT_NE(container.at("env").at(1).at("value"), "no");
}

TEST(ObjectsTest, AMountAtOurPlaceOrAroundItTakesTheOneOfOurs) {
  const auto volumes = [](const std::string& mounts) {
    const Json spec =
        BuildWith(absl::StrCat(R"({"spec": {"volumes": [{"name": "claim"}], "containers": [{"name": "trainer",
                                                 "volumeMounts": )",
                               mounts, "}]}}"))
            .at("spec");
    EXPECT_EQ(Names(spec.at("volumes")).size(), Names(spec.at("containers").at(0).at("volumeMounts")).size());
    return Names(spec.at("volumes"));
  };
  EXPECT_THAT(volumes(R"([{"name": "claim", "mountPath": "/output"}])"), ElementsAre("downpour-tmp", "claim"));
  EXPECT_THAT(volumes(R"([{"name": "claim", "mountPath": "/output/"}])"), ElementsAre("downpour-tmp", "claim"));
  EXPECT_THAT(volumes(R"([{"name": "claim", "mountPath": "//tmp/."}])"), ElementsAre("downpour-output", "claim"));
  EXPECT_THAT(volumes(R"([{"name": "claim", "mountPath": "/"}])"), ElementsAre("claim"));
  EXPECT_THAT(volumes(R"([{"name": "claim", "mountPath": "/output/models"}])"),
              ElementsAre("downpour-tmp", "downpour-output", "claim"));
}

TEST(ObjectsTest, AVolumeUnderOneOfOurNamesIsTaken) {
  const Json spec =
      BuildWith(R"({"spec": {"volumes": [{"name": "downpour-tmp", "emptyDir": {"medium": "Memory"}}]}})").at("spec");
  EXPECT_THAT(Names(spec.at("volumes")), ElementsAre("downpour-output", "downpour-tmp"));
  EXPECT_EQ(spec.at("volumes").at(1).at("emptyDir").at("medium"), "Memory");
  EXPECT_THAT(Names(spec.at("containers").at(0).at("volumeMounts")), ElementsAre("downpour-tmp", "downpour-output"));
}

TEST(ObjectsTest, OnTheNetworkOfItsNodeAPodStillFindsTheNamesOfTheCluster) {
  EXPECT_FALSE(BuildWith("{}").at("spec").contains("dnsPolicy"));
  EXPECT_FALSE(BuildWith(R"({"spec": {"hostNetwork": false}})").at("spec").contains("dnsPolicy"));
  EXPECT_EQ(BuildWith(R"({"spec": {"hostNetwork": true}})").at("spec").at("dnsPolicy"), "ClusterFirstWithHostNet");
  EXPECT_EQ(BuildWith(R"({"spec": {"hostNetwork": true, "dnsPolicy": "Default"}})").at("spec").at("dnsPolicy"),
            "Default");
}

TEST(ObjectsTest, TheLastWordsOfEveryContainerAreKept) {
  const Json spec = BuildWith(R"({"spec": {"initContainers": [{"name": "fetch"}],
      "containers": [{"name": "trainer"}, {"name": "proxy", "terminationMessagePolicy": "File"}]}})")
                        .at("spec");
  EXPECT_EQ(spec.at("initContainers").at(0).at("terminationMessagePolicy"), "FallbackToLogsOnError");
  EXPECT_EQ(spec.at("containers").at(0).at("terminationMessagePolicy"), "FallbackToLogsOnError");
  EXPECT_EQ(spec.at("containers").at(1).at("terminationMessagePolicy"), "File");
}

TEST(ObjectsTest, APathReachesTheProcessAsItIsWritten) {
  api::TrainingJob job = MakeJob();
  job.spec.dataset.path = "/data/$(POD_IP)/$$/$x";
  job.spec.output.directory = "/models/$";
  const Json variable = Build(job, api::Role::kWorker).at("spec").at("containers").at(0).at("env").at(0);
  const Json config = Json::parse(variable.at("value").get<std::string>());
  EXPECT_EQ(config.at("dataset").at("path"), "/data/$$(POD_IP)/$$$$/$$x") << "of which a node makes what was written";
  EXPECT_EQ(config.at("outputDirectory"), "/models/$$");
}

TEST(ObjectsTest, ATemplateThatIsNoneIsRefusedByPath) {
  api::TrainingJob job = MakeJob();
  for (const auto& [text, error] :
       {std::pair{"[]", "spec.worker.template: must be a map"},
        std::pair{R"({"spec": 3})", "spec.worker.template.spec: must be a map"},
        std::pair{R"({"spec": {"containers": {}}})", "spec.worker.template.spec.containers: must be a list"}}) {
    job.spec.worker.pod_template = text;
    EXPECT_EQ(std::string(PodsOfRole(job, kImages, api::Role::kWorker).Make(0, 1).status().message()), error);
  }
}

TEST(ObjectsTest, ACoordinatorIsFoundUnderTheNameThatItsPodsAreGiven) {
  const api::TrainingJob job = MakeJob();
  const Json service = MakeService("team");
  EXPECT_EQ(service.at("spec").at("clusterIP"), "None");
  EXPECT_FALSE(service.at("spec").contains("selector")) << "the platform would go through all of them for each pod";
  EXPECT_FALSE(service.at("metadata").contains("ownerReferences"));
  const Json slice = MakeEndpointSlice(job, "10.0.0.7");
  EXPECT_EQ(slice.at("metadata").at("labels").at("kubernetes.io/service-name"), kServiceName);
  EXPECT_TRUE(slice.at("metadata").at("labels").contains("service.kubernetes.io/headless"));
  EXPECT_EQ(slice.at("metadata").at("ownerReferences").at(0).at("uid"), job.metadata.uid);
  EXPECT_EQ(slice.at("addressType"), "IPv4");
  EXPECT_EQ(slice.at("endpoints").at(0).at("addresses").at(0), "10.0.0.7");
  EXPECT_EQ(slice.at("endpoints").at(0).at("hostname"), "lenet-coordinator-0");
  EXPECT_EQ(MakeEndpointSlice(job, "").at("endpoints"), Json::array());
  EXPECT_EQ(MakeEndpointSlice(job, "fd00::7").at("addressType"), "IPv6");
}

TEST(ObjectsTest, PodsKeepAwayFromNodes) {
  api::TrainingJob job = MakeJob();
  const auto terms = [&job](const std::string& pod_template, const std::vector<std::string>& nodes) {
    job.spec.worker.pod_template = pod_template;
    const absl::StatusOr<Json> pod = PodsOfRole(job, PodOptions(), api::Role::kWorker).Make(0, 1, nodes);
    const Json* found = pod.ok()
                            ? kube::Find(*pod, {"spec", "affinity", "nodeAffinity",
                                                "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"})
                            : nullptr;
    return found == nullptr ? Json(std::string(pod.status().message())) : *found;
  };
  const auto without = [](const char* node) {
    return Json{{"key", "metadata.name"}, {"operator", "NotIn"}, {"values", Json::array({node})}};
  };
  EXPECT_EQ(terms("", {}), "");
  EXPECT_EQ(terms("", {"a", "b"}), Json::array({{{"matchFields", Json::array({without("a"), without("b")})}}}));
  // Each of the template's own terms is narrowed; one that matches nothing stays so.
  EXPECT_EQ(terms(R"({"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}, {},
                                       {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["c"]}]}]
                }}}}})",
                  {"a"}),
            Json::array({{{"matchExpressions", Json::array({{{"key", "gpu"}, {"operator", "Exists"}}})},
                          {"matchFields", Json::array({without("a")})}},
                         Json::object(),
                         {{"matchFields",
                           Json::array({{{"key", "metadata.name"}, {"operator", "In"}, {"values", Json::array({"c"})}},
                                        without("a")})}}}));
  EXPECT_EQ(terms(R"({"spec": {"affinity": 3}})", {"a"}), "spec.worker.template.spec.affinity: is no affinity");
}

api::TrainingJobSpec WithWorkerPod(const std::string& spec, const std::string& directory = "") {
  api::TrainingJobSpec job;
  job.worker.pod_template = absl::StrCat(R"({"spec": )", spec, "}");
  job.output.directory = directory;
  return job;
}

TEST(TemporaryOutputTest, AVolumeThatOutlivesThePodKeepsIt) {
  const auto pod = [](const std::string& path, const std::string& source) {
    return absl::StrCat(R"({"containers": [{"name": "trainer", "volumeMounts": [{"name": "m", "mountPath": ")", path,
                        R"("}]}], "volumes": [{"name": "m", )", source, "}]}");
  };
  const std::string claim = R"("persistentVolumeClaim": {"claimName": "c"})";
  EXPECT_EQ(TemporaryOutput({}), "/output");
  EXPECT_EQ(TemporaryOutput(WithWorkerPod("{}", "/models/a")), "/models/a") << "on the image";
  EXPECT_EQ(TemporaryOutput(WithWorkerPod(pod("/output", claim))), "");
  EXPECT_EQ(TemporaryOutput(WithWorkerPod(pod("/output/", claim))), "");
  EXPECT_EQ(TemporaryOutput(WithWorkerPod(pod("/models", claim), "/models/a")), "");
  EXPECT_EQ(TemporaryOutput(WithWorkerPod(pod("/models", claim))), "/output") << "mounted elsewhere";
  EXPECT_EQ(TemporaryOutput(WithWorkerPod(pod("/output", R"("emptyDir": {})"))), "/output");
  EXPECT_EQ(TemporaryOutput(WithWorkerPod(pod("/output", R"("ephemeral": {})"))), "/output");
  EXPECT_EQ(TemporaryOutput(WithWorkerPod(R"({"volumes": [{"name": "downpour-output",
      "persistentVolumeClaim": {"claimName": "c"}}]})")),
            "")
      << "the template's volume is taken instead of ours";
  EXPECT_EQ(TemporaryOutput(WithWorkerPod(R"({"volumes": [{"name": "downpour-output",
      "persistentVolumeClaim": {"claimName": "c"}}]})",
                                          "/models")),
            "/models")
      << "that one is mounted at /output alone";
  EXPECT_EQ(TemporaryOutput(WithWorkerPod(pod("/output", R"("emptyDir": null)"))), "/output") << "an emptyDir as well";
  EXPECT_EQ(TemporaryOutput(WithWorkerPod(pod("/output", R"("hostPath": {"path": "/x"})"))), "");
}

TEST(ObjectsTest, PsWithStandbysWishToBeOnNodesOfTheirOwn) {
  api::TrainingJob job = MakeJob();
  EXPECT_FALSE(Build(job, api::Role::kParameterServer).at("spec").contains("affinity"));
  job.spec.parameter_server->replication_factor = 2;
  EXPECT_FALSE(Build(job, api::Role::kWorker).at("spec").contains("affinity"));
  const Json::json_pointer wishes("/spec/affinity/podAntiAffinity/preferredDuringSchedulingIgnoredDuringExecution");
  Json pod = Build(job, api::Role::kParameterServer);
  ASSERT_EQ(pod.at(wishes).size(), 1u);
  const Json& term = pod.at(wishes).at(0).at("podAffinityTerm");
  EXPECT_EQ(term.at("topologyKey"), "kubernetes.io/hostname");
  for (const auto& [name, value] : term.at("labelSelector").at("matchLabels").items()) {
    EXPECT_EQ(pod.at("metadata").at("labels").at(name), value);
  }
  EXPECT_FALSE(
      pod.at("spec").at("affinity").at("podAntiAffinity").contains("requiredDuringSchedulingIgnoredDuringExecution"));

  // Those of the template stay.
  job.spec.parameter_server->pod_template = R"({"spec":{"affinity":{"nodeAffinity":{"a":1},"podAntiAffinity":{)"
                                            R"("preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1}]}}}})";
  pod = Build(job, api::Role::kParameterServer);
  EXPECT_EQ(pod.at(wishes).size(), 2u);
  EXPECT_EQ(pod.at(wishes).at(0), Json({{"weight", 1}}));
  EXPECT_EQ(pod.at("spec").at("affinity").at("nodeAffinity").at("a"), 1);
}

TEST(TemporaryCheckpointsTest, CoordinatorAndParameterServersMountAVolumeThatOutlivesThem) {
  api::TrainingJobSpec spec;
  EXPECT_EQ(TemporaryCheckpoints(spec), "");
  spec.checkpoint.emplace();
  spec.checkpoint->uri = "s3://bucket/a";
  EXPECT_EQ(TemporaryCheckpoints(spec), "");
  spec.checkpoint->uri = "/checkpoints/team";
  EXPECT_EQ(TemporaryCheckpoints(spec), "spec.coordinator.template and spec.parameterServer.template");
  const auto pod = [](const std::string& source) {
    return absl::StrCat(R"({"spec": {"containers": [{"name": "trainer", "volumeMounts": [{"name": "c", "mountPath":
      "/checkpoints"}]}], "volumes": [{"name": "c", )",
                        source, "}]}}");
  };
  const std::string claim = R"("persistentVolumeClaim": {"claimName": "c"})";
  spec.coordinator.emplace();
  spec.coordinator->pod_template = pod(claim);
  EXPECT_EQ(TemporaryCheckpoints(spec), "spec.parameterServer.template");
  spec.parameter_server.emplace();
  spec.parameter_server->pod_template = pod(R"("emptyDir": {})");
  EXPECT_EQ(TemporaryCheckpoints(spec), "spec.parameterServer.template");
  spec.parameter_server->pod_template = pod(claim);
  EXPECT_EQ(TemporaryCheckpoints(spec), "");
  spec.checkpoint->uri = "/tmp/checkpoints";
  EXPECT_EQ(TemporaryCheckpoints(spec), "spec.coordinator.template and spec.parameterServer.template");
}

TEST(GpusOfTest, WorkersAreToldHowManyTheyHave) {
  api::TrainingJob job = MakeJob();
  job.spec.worker.pod_template =
      R"({"spec": {"containers": [{"name": "trainer", "resources": {"limits": {"nvidia.com/gpu": 2}}}]}})";
  const auto told = [&job] {
    const Json pod = Build(job, api::Role::kWorker);
    for (const Json& variable : pod.at("spec").at("containers").at(0).at("env")) {
      if (variable.at("name") == api::kConfigVariable) {
        return Json::parse(variable.at("value").get<std::string>()).value("gpus", 0);
      }
    }
    return -1;
  };
  EXPECT_EQ(told(), 2);
  job.spec.worker.gpus = 1;
  EXPECT_EQ(told(), 1);
}

TEST(GpusOfTest, AreWhatTheWorkersTemplateHasLimitsFor) {
  api::TrainingJobSpec spec;
  EXPECT_EQ(GpusOf(spec), "");
  const auto gpus = [&spec](const std::string& body) {
    spec.worker.pod_template = absl::StrCat(R"({"spec": )", body, "}");
    return GpusOf(spec);
  };
  EXPECT_EQ(gpus(R"({"containers": [{"name": "trainer", "resources": {"limits": {"cpu": 2}}}]})"), "");
  EXPECT_EQ(
      gpus(R"({"containers": [{"name": "a"}, {"name": "trainer", "resources": {"limits": {"nvidia.com/gpu": 1}}}]})"),
      "nvidia.com/gpu");
  EXPECT_EQ(gpus(R"({"containers": [{"name": "trainer", "resources": {"limits": {"nvidia.com/gpu": "0"}}}]})"), "");
  EXPECT_EQ(gpus(R"({"containers": [{"name": "trainer", "resources": {"limits": {"nvidia.com/mig-1g.10gb": 1}}}]})"),
            "nvidia.com/mig-1g.10gb");
  EXPECT_EQ(gpus(R"({"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]})"), "resourceClaims");
  EXPECT_EQ(gpus(R"({"containers": "none"})"), "") << "what is refused elsewhere";
  EXPECT_EQ(gpus(R"({"containers": [1, {"resources": 2}, {"resources": {"limits": 3}}]})"), "");
}

TEST(TemporaryCheckpointsTest, OfAllReduceTheWorkersMountIt) {
  api::TrainingJobSpec spec = WithoutPs().spec;
  spec.checkpoint.emplace();
  spec.checkpoint->uri = "/checkpoints";
  EXPECT_EQ(TemporaryCheckpoints(spec), "spec.coordinator.template and spec.worker.template");
}

TEST(TemporaryOutputTest, TheWorkersAreToldHowLongToKeepIt) {
  api::TrainingJob job = MakeJob();
  job.spec.output.keep_seconds = 77;
  const auto told = [&job](api::Role role) {
    const Json container = Build(job, role).at("spec").at("containers").at(0);
    return Json::parse(container.at("env").at(0).at("value").get<std::string>()).value("keepOutputSeconds", 0);
  };
  EXPECT_EQ(told(api::Role::kWorker), 77);
  EXPECT_EQ(told(api::Role::kParameterServer), 0);
  job.spec.worker.pod_template = WithWorkerPod(R"({"containers": [{"name": "trainer", "volumeMounts":
      [{"name": "m", "mountPath": "/output"}]}], "volumes": [{"name": "m", "nfs": {}}]})")
                                     .worker.pod_template;
  EXPECT_EQ(told(api::Role::kWorker), 0);
}

}  // namespace
}  // namespace downpour::controller
