#include "operator/api/pod_template.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace downpour::api {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TrainingJobSpec With(Role role, const std::string& pod_template) {
  TrainingJobSpec spec;
  spec.coordinator.emplace();
  spec.parameter_server.emplace();
  (role == Role::kCoordinator       ? spec.coordinator->pod_template
   : role == Role::kParameterServer ? spec.parameter_server->pod_template
                                    : spec.worker.pod_template) = pod_template;
  return spec;
}

std::vector<std::string> Errors(const std::string& pod_template, Role role = Role::kWorker) {
  std::vector<std::string> lines;
  for (const FieldError& error : CheckPodTemplates(With(role, pod_template))) lines.push_back(error.ToString());
  return lines;
}

// Of our container.
std::vector<std::string> Trainer(const std::string& fields, Role role = Role::kWorker) {
  return Errors(absl::StrCat(R"({"spec": {"containers": [{"name": "trainer", )", fields, "}]}}"), role);
}

constexpr char kContainer[] = "spec.worker.template.spec.containers[0]";

TEST(PodTemplateTest, WhatTheOperatorSetsIsRefusedByPath) {
  EXPECT_THAT(Errors(R"({"spec": {"hostname": "mine", "subdomain": "ours"}})", Role::kCoordinator),
              ElementsAre("spec.coordinator.template.spec.hostname: is set by the operator",
                          "spec.coordinator.template.spec.subdomain: is set by the operator"));
  EXPECT_THAT(Errors(R"({"metadata": {"labels": {"training.downpour.dev/role": "chief", "team": "vision",
                         "app.kubernetes.io/managed-by": "me"}}})",
                     Role::kParameterServer),
              ElementsAre("spec.parameterServer.template.metadata.labels[\"app.kubernetes.io/managed-by\"]: is set by "
                          "the operator",
                          "spec.parameterServer.template.metadata.labels[\"training.downpour.dev/role\"]: is set by "
                          "the operator"));
  EXPECT_THAT(Trainer(R"("args": ["--more"])"),
              ElementsAre(absl::StrCat(kContainer,
                                       ".args: is set by the operator; a program of your own goes into "
                                       "command, and is given them")));
  EXPECT_THAT(Trainer(R"("env": [{"name": "A", "value": "1"}, {"name": "DOWNPOUR_CONFIG", "value": "{}"},
                                 {"name": "POD_IP", "value": "10.0.0.1"}, {"name": "DOWNPOUR_NODE"}])"),
              ElementsAre(absl::StrCat(kContainer, ".env[1]: DOWNPOUR_CONFIG is set by the operator"),
                          absl::StrCat(kContainer, ".env[2]: POD_IP is set by the operator"),
                          absl::StrCat(kContainer, ".env[3]: DOWNPOUR_NODE is set by the operator")));
  EXPECT_THAT(Trainer(R"("restartPolicy": "Always")"),
              ElementsAre(absl::StrCat(kContainer, ".restartPolicy: must be Never, got \"Always\"")));
  // Null is as good as absent.
  EXPECT_THAT(Errors(R"({"spec": {"hostname": null, "containers": [{"name": "trainer", "args": null}]}})"), IsEmpty());
}

TEST(PodTemplateTest, OneOfItsContainersIsDownpours) {
  EXPECT_THAT(Errors(R"({"spec": {"containers": [{"name": "main", "image": "mine:1"}]}})"),
              ElementsAre("spec.worker.template.spec.containers: none is named trainer, as the one that runs Downpour: "
                          "rename it, or add \"- name: trainer\" if all of them run beside it"));
  EXPECT_THAT(Errors(R"({"spec": {"containers": [{"name": "proxy"}, {"name": "trainer"}]}})"), IsEmpty());
  EXPECT_THAT(Errors(R"({"spec": {"containers": []}})"), IsEmpty());
  EXPECT_THAT(Errors(R"({"spec": {"containers": [{"name": "trainer"}, {"name": "trainer"}]}})"),
              ElementsAre("spec.worker.template.spec.containers[1].name: must be unique, got trainer again"));
  EXPECT_THAT(Errors(R"({"spec": {"initContainers": [{"name": "trainer"}]}})"),
              ElementsAre("spec.worker.template.spec.initContainers[0].name: trainer is the container of Downpour"));
}

TEST(PodTemplateTest, PortsOfDownpourAreItsOwn) {
  EXPECT_THAT(Trainer(R"("ports": [{"containerPort": 9000, "name": "debug"}, {"containerPort": 8080, "hostPort": 8080},
                                   {"containerPort": 8080, "protocol": "UDP"}, {"containerPort": 7070}])"),
              IsEmpty());
  EXPECT_THAT(Trainer(R"("ports": [{"containerPort": 8080, "name": "web"}])"),
              ElementsAre(absl::StrCat(kContainer,
                                       ".ports[0].name: must be metrics, got \"web\": 8080 is the port on "
                                       "which Downpour listens")));
  EXPECT_THAT(
      Trainer(R"("ports": [{"containerPort": 9090, "name": "metrics"}])"),
      ElementsAre(absl::StrCat(kContainer, ".ports[0].name: metrics is the name of Downpour's own port, 8080")));
  EXPECT_THAT(Trainer(R"("ports": [{"containerPort": 7070, "name": "control"}])", Role::kParameterServer),
              ElementsAre("spec.parameterServer.template.spec.containers[0].ports[0].name: must be grpc, got "
                          "\"control\": 7070 is the port on which Downpour listens"));
  EXPECT_THAT(Errors(R"({"spec": {"containers": [{"name": "trainer"},
                                                 {"name": "proxy", "ports": [{"containerPort": 8080}]}],
                                  "initContainers": [{"name": "sync", "ports": [{"containerPort": 8080}]}]}})"),
              ElementsAre("spec.worker.template.spec.initContainers[0].ports[0].containerPort: 8080 is taken, the "
                          "container trainer listens there",
                          "spec.worker.template.spec.containers[1].ports[0].containerPort: 8080 is taken, the "
                          "container trainer listens there"));
}

TEST(PodTemplateTest, AWorkerOfAllReduceListensToTheOthers) {
  TrainingJobSpec spec = With(Role::kWorker, R"({"spec": {"containers": [{"name": "trainer"}, {"name": "proxy", "ports":
      [{"containerPort": 7070}, {"containerPort": 7071}]}]}})");
  EXPECT_THAT(CheckPodTemplates(spec), IsEmpty());
  spec.strategy = Strategy::kAllReduce;
  std::vector<std::string> lines;
  for (const FieldError& error : CheckPodTemplates(spec)) lines.push_back(error.ToString());
  const std::string taken = " is taken, the container trainer listens there";
  EXPECT_THAT(lines, ElementsAre("spec.worker.template.spec.containers[1].ports[0].containerPort: 7070" + taken,
                                 "spec.worker.template.spec.containers[1].ports[1].containerPort: 7071" + taken));
}

TEST(PodTemplateTest, PathsAreComparedAsANodeReadsThem) {
  EXPECT_THAT(Trainer(R"("volumeMounts": [{"name": "a", "mountPath": "/models"}, {"name": "b", "mountPath": "/data"},
                                          {"name": "c", "mountPath": "models/"}])"),
              ElementsAre(absl::StrCat(kContainer, ".volumeMounts[2].mountPath: must be unique, is the same as [0]")));
  for (const char* path : {"/output", "/output/", "//output", "/output/.", "/a/../output//", "output", "./output"}) {
    EXPECT_EQ(CleanMountPath(path), "/output") << path;
  }
  for (const char* path : {"/", "//", "/.", ""}) EXPECT_EQ(CleanMountPath(path), "/") << path;
}

TEST(PodTemplateTest, RootSaysSoInFull) {
  EXPECT_THAT(Errors(R"({"spec": {"securityContext": {"runAsUser": 0}}})"),
              ElementsAre("spec.worker.template.spec.securityContext.runAsUser: 0 is root, which needs "
                          "runAsNonRoot: false beside it"));
  EXPECT_THAT(Trainer(R"("securityContext": {"runAsUser": 0})"),
              ElementsAre(absl::StrCat(
                  kContainer, ".securityContext.runAsUser: 0 is root, which needs runAsNonRoot: false beside it")));
  EXPECT_THAT(Errors(R"({"spec": {"securityContext": {"runAsUser": 0, "runAsNonRoot": false}}})"), IsEmpty());
  EXPECT_THAT(Errors(R"({"spec": {"securityContext": {"runAsUser": 0},
                         "containers": [{"name": "trainer", "securityContext": {"runAsUser": 7}}]}})"),
              IsEmpty());
}

// What is wrong with its shape is said elsewhere, and must not end the process.
TEST(PodTemplateTest, AWorkerHasTheGpusOfItsContainer) {
  const auto limits = [](const std::string& text, const char* container = "trainer") {
    return WorkerGpus(With(Role::kWorker, absl::StrCat(R"({"spec": {"containers": [{"name": "a"}, {"name": ")",
                                                       container, R"(", "resources": {"limits": )", text, "}}]}}")));
  };
  EXPECT_EQ(WorkerGpus(TrainingJobSpec()), 1);
  EXPECT_EQ(limits(R"({"nvidia.com/gpu": 2})"), 2);
  EXPECT_EQ(limits(R"({"nvidia.com/gpu": "4"})"), 4);
  EXPECT_EQ(limits(R"({"nvidia.com/gpu": 0})"), 1);
  EXPECT_EQ(limits(R"({"nvidia.com/gpu": "all"})"), 1) << "what the platform refuses";
  EXPECT_EQ(limits(R"({"nvidia.com/gpu": null})"), 1);
  EXPECT_EQ(limits(R"({"cpu": 8, "nvidia.com/mig-1g.10gb": 2})"), 1) << "CUDA takes one part of a GPU";
  EXPECT_EQ(limits(R"({"nvidia.com/gpu": 2})", "sidecar"), 1) << "it does not train";
  EXPECT_EQ(limits("\"nvidia.com/gpu\""), 1);
  TrainingJobSpec spec = With(Role::kWorker, R"({"spec": {"containers": "nvidia.com/gpu"}})");
  EXPECT_EQ(WorkerGpus(spec), 1);
  spec = With(Role::kWorker,
              R"({"spec": {"containers": [{"name": "trainer", "resources": {"limits": {"nvidia.com/gpu": 8}}}]}})");
  EXPECT_EQ(WorkerGpus(spec), 8);
  spec.training.batch_size = 6;
  EXPECT_EQ(WorkerGpus(spec), 6) << "each has a sample";
  spec.update.local_steps = 2;
  EXPECT_EQ(WorkerGpus(spec), 1) << "nobody asked for more, and more would be refused";
  spec.worker.gpus = 3;
  EXPECT_EQ(WorkerGpus(spec), 3);
}

TEST(PodTemplateTest, AnyJsonIsLookedAt) {
  for (const char* text :
       {"{}", "[]", "3", "{", R"({"spec": 3, "metadata": []})", R"({"spec": {"containers": 3, "initContainers": {}}})",
        R"({"spec": {"containers": [3, null, [], {"name": 3}, {"name": "trainer", "ports": [3, {"containerPort": "x"}],
            "env": [null], "volumeMounts": [[], {"mountPath": 3}], "securityContext": 3}]}})",
        R"({"metadata": {"labels": 3}, "spec": {"securityContext": []}})"}) {
    EXPECT_THAT(Errors(text), IsEmpty()) << text;
  }
}

}  // namespace
}  // namespace downpour::api
