#include "operator/controller/objects.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "operator/api/manifest.h"
#include "operator/controller/pod.h"
#include "operator/job/training_config.h"

namespace downpour::controller {
namespace {

using kube::Json;

constexpr char kConfigVariable[] = "DOWNPOUR_CONFIG";
constexpr char kOutputDirectory[] = "/output";
constexpr int kUser = 65532;
constexpr int kWorkerGraceSeconds = 30;  // for an update under way

const std::string* Template(const api::TrainingJobSpec& spec, api::Role role) {
  switch (role) {
    case api::Role::kCoordinator:
      return spec.coordinator.has_value() ? &spec.coordinator->pod_template : nullptr;
    case api::Role::kParameterServer:
      return spec.parameter_server.has_value() ? &spec.parameter_server->pod_template : nullptr;
    case api::Role::kWorker:
      return &spec.worker.pod_template;
  }
  return nullptr;
}

const char* TemplatePath(api::Role role) {
  return role == api::Role::kCoordinator       ? "spec.coordinator.template"
         : role == api::Role::kParameterServer ? "spec.parameterServer.template"
                                               : "spec.worker.template";
}

Json Owner(const api::TrainingJob& job) {
  return {{"apiVersion", api::kApiVersion}, {"kind", api::kKind}, {"name", job.metadata.name},
          {"uid", job.metadata.uid},        {"controller", true}, {"blockOwnerDeletion", true}};
}

Json Labels(const api::TrainingJob& job) {
  return {{kManagedByLabel, kManagedByValue}, {kJobNameLabel, job.metadata.name}, {kJobUidLabel, job.metadata.uid}};
}

Json Meta(const api::TrainingJob& job, const std::string& name) {
  return {{"name", name},
          {"namespace", job.metadata.namespace_name},
          {"labels", Labels(job)},
          {"ownerReferences", Json::array({Owner(job)})}};
}

// Sets what is not there.
void Default(Json& object, const char* key, Json value) {
  if (!object.contains(key)) object[key] = std::move(value);
}

std::string CoordinatorAddress(const api::TrainingJob& job) {
  return absl::StrCat(PodName(job, api::Role::kCoordinator, 0), ".", kServiceName, ".", job.metadata.namespace_name,
                      ".svc:", kControlPort);
}

Json Arguments(const api::TrainingJob& job, api::Role role, int index, int incarnation) {
  Json arguments = Json::array();
  if (role != api::Role::kWorker) arguments.push_back(role == api::Role::kCoordinator ? "coordinator" : "ps");
  const auto add = [&arguments](const char* flag, std::string value) {
    arguments.push_back(flag);
    arguments.push_back(std::move(value));
  };
  add("--config", absl::StrCat("env:", kConfigVariable));
  add("--incarnation", absl::StrCat(incarnation));
  if (role != api::Role::kCoordinator) {
    add("--index", absl::StrCat(index));
    add("--coordinator", CoordinatorAddress(job));
  }
  if (role != api::Role::kWorker) add("--listen", absl::StrCat("0.0.0.0:", kControlPort));
  if (role == api::Role::kParameterServer) add("--advertise", absl::StrCat("$(POD_IP):", kControlPort));
  add("--metrics-listen", absl::StrCat("0.0.0.0:", kMetricsPort));
  return arguments;
}

Json ControlPorts() { return Json::array({{{"name", "grpc"}, {"port", kControlPort}, {"protocol", "TCP"}}}); }

// Our container in the list; made if there is none.
Json* FindContainer(Json& containers) {
  for (Json& container : containers) {
    if (container.is_object() && container.value("name", Json()) == kContainerName) return &container;
  }
  containers.push_back({{"name", kContainerName}});
  return &containers.back();
}

void SetVariable(Json& container, const char* name, Json entry) {
  entry["name"] = name;
  Json& variables = container["env"];
  if (!variables.is_array()) variables = Json::array();
  for (Json& variable : variables) {
    if (variable.is_object() && variable.value("name", Json()) == name) {
      variable = std::move(entry);
      return;
    }
  }
  variables.push_back(std::move(entry));
}

void AddMount(Json& spec, Json& container, const char* name, const char* path) {
  Json& mounts = container["volumeMounts"];
  if (!mounts.is_array()) mounts = Json::array();
  for (const Json& mount : mounts) {
    if (mount.is_object() && mount.value("mountPath", Json()) == path) return;  // the template's own
  }
  mounts.push_back({{"name", name}, {"mountPath", path}});
  Json& volumes = spec["volumes"];
  if (!volumes.is_array()) volumes = Json::array();
  volumes.push_back({{"name", name}, {"emptyDir", Json::object()}});
}

// The map below `key`, made if there is none; nullptr if something else is there.
Json* MapAt(Json* object, const char* key) {
  if (object == nullptr) return nullptr;
  Json& child = (*object)[key];
  if (child.is_null()) child = Json::object();
  return child.is_object() ? &child : nullptr;
}

// One node each, by name: a label of a node may be missing or be somebody else's. A pod runs where any of the terms
// holds, so each of them must exclude the nodes; one that is empty holds nowhere and stays so. False: the template's
// affinity is none.
bool AvoidNodes(Json& spec, const std::vector<std::string>& nodes) {
  if (nodes.empty()) return true;
  Json* const required =
      MapAt(MapAt(MapAt(&spec, "affinity"), "nodeAffinity"), "requiredDuringSchedulingIgnoredDuringExecution");
  if (required == nullptr) return false;
  Json& terms = (*required)["nodeSelectorTerms"];
  const bool made = terms.is_null();
  if (made) terms = Json::array({Json::object()});
  if (!terms.is_array()) return false;
  for (Json& term : terms) {
    if (!term.is_object()) return false;
    if (term.empty() && !made) continue;
    Json& fields = term["matchFields"];
    if (fields.is_null()) fields = Json::array();
    if (!fields.is_array()) return false;
    for (const std::string& node : nodes) {
      fields.push_back({{"key", "metadata.name"}, {"operator", "NotIn"}, {"values", Json::array({node})}});
    }
  }
  return true;
}

void AddProbe(Json& container) {
  Default(container, "readinessProbe",
          {{"grpc", {{"port", kControlPort}}}, {"periodSeconds", 5}, {"timeoutSeconds", 2}, {"failureThreshold", 3}});
}

// What our container asks for where the template does not say: meant for the small models of the zoo, and little enough
// that a node with two cores takes a job of a few workers. Without a request a pod is the first to go when its node has
// no memory left, and a namespace with a quota takes none.
struct Requests {
  const char* cpu;
  const char* memory;
};

Requests RequestsOf(api::Role role) {
  switch (role) {
    case api::Role::kCoordinator:
      return {"50m", "64Mi"};
    case api::Role::kParameterServer:
      return {"100m", "256Mi"};
    case api::Role::kWorker:
      break;
  }
  return {"200m", "512Mi"};
}

// No limits: where there is one, the platform takes it for the request that is missing. A template may also say what
// the pod asks for as a whole.
void AddRequests(const Json& spec, Json& container, api::Role role) {
  if (spec.contains("resources")) return;
  Json& resources = container["resources"];
  if (resources.is_null()) resources = Json::object();
  if (!resources.is_object()) return;  // the platform says what it has against it
  const Json limits = resources.value("limits", Json());
  Json requests = resources.value("requests", Json());
  if (requests.is_null()) requests = Json::object();
  if (!requests.is_object()) return;
  const Requests wanted = RequestsOf(role);
  for (const auto& [resource, amount] : {std::pair{"cpu", wanted.cpu}, std::pair{"memory", wanted.memory}}) {
    if (!limits.is_object() || !limits.contains(resource)) Default(requests, resource, amount);
  }
  if (!requests.empty()) resources["requests"] = std::move(requests);
}

absl::Status RefuseTemplate(api::Role role, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(TemplatePath(role), what));
}

// All of a pod but its name and what tells its process who it is.
absl::StatusOr<Json> MakeCommon(const api::TrainingJob& job, const ImageOptions& images, api::Role role) {
  Json pod = Json::object();
  if (const std::string* text = Template(job.spec, role); text != nullptr && !text->empty()) {
    pod = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
    if (!pod.is_object()) return RefuseTemplate(role, ": must be a map");
  }
  for (const char* key : {"metadata", "spec"}) {
    Default(pod, key, Json::object());
    if (!pod[key].is_object()) return RefuseTemplate(role, absl::StrCat(".", key, ": must be a map"));
  }
  Json& spec = pod["spec"];
  Default(spec, "containers", Json::array());
  if (!spec["containers"].is_array()) return RefuseTemplate(role, ".spec.containers: must be a list");

  Json meta = Meta(job, "");
  const auto keep = [&meta, &pod](const char* key) {
    const Json& wanted = pod["metadata"].value(key, Json());
    if (!wanted.is_object()) return;
    Json merged = wanted;
    if (meta.contains(key)) merged.update(meta[key]);
    meta[key] = std::move(merged);
  };
  meta["labels"][kRoleLabel] = std::string(api::ToString(role));
  meta["annotations"] = {{"prometheus.io/scrape", "true"},
                         {"prometheus.io/port", absl::StrCat(kMetricsPort)},
                         {"prometheus.io/path", "/metrics"}};
  keep("labels");
  keep("annotations");
  pod["metadata"] = std::move(meta);
  pod["apiVersion"] = "v1";
  pod["kind"] = "Pod";

  const bool worker = role == api::Role::kWorker;
  spec["restartPolicy"] = "Never";  // a replacement is a new pod with a new incarnation
  spec["subdomain"] = kServiceName;
  Default(spec, "enableServiceLinks", false);
  Default(spec, "automountServiceAccountToken", false);
  Default(spec, "terminationGracePeriodSeconds", kWorkerGraceSeconds);
  Default(spec, "securityContext",
          {{"runAsNonRoot", true},
           {"runAsUser", kUser},
           {"runAsGroup", kUser},
           {"fsGroup", kUser},
           {"seccompProfile", {{"type", "RuntimeDefault"}}}});

  Json& container = *FindContainer(spec["containers"]);
  Default(container, "image", worker ? images.trainer : images.server);
  Default(container, "imagePullPolicy", images.pull_policy);
  Default(container, "command", Json::array({worker ? "downpour-worker" : "downpour-server"}));
  // The end of the log becomes the reason that the job's status gives, without a right to read logs.
  Default(container, "terminationMessagePolicy", "FallbackToLogsOnError");
  Default(container, "securityContext",
          {{"allowPrivilegeEscalation", false},
           {"readOnlyRootFilesystem", true},
           {"capabilities", {{"drop", Json::array({"ALL"})}}}});
  Default(container, "ports",
          worker ? Json::array({{{"name", "metrics"}, {"containerPort", kMetricsPort}}})
                 : Json::array({{{"name", "grpc"}, {"containerPort", kControlPort}},
                                {{"name", "metrics"}, {"containerPort", kMetricsPort}}}));
  if (!worker) AddProbe(container);
  AddRequests(spec, container, role);
  AddMount(spec, container, "tmp", "/tmp");
  const std::string output = job.spec.output.directory.empty() ? kOutputDirectory : job.spec.output.directory;
  if (worker && job.spec.output.directory.empty()) AddMount(spec, container, "output", kOutputDirectory);

  const absl::StatusOr<std::string> config =
      job::TrainingConfigToJson(job::ToTrainingConfig(job, ProcessJobUid(job.metadata.uid), output));
  if (!config.ok()) return config.status();
  SetVariable(container, kConfigVariable, {{"value", *config}});
  SetVariable(container, "POD_IP", {{"valueFrom", {{"fieldRef", {{"fieldPath", "status.podIP"}}}}}});
  return pod;
}

}  // namespace

std::string PodName(const api::TrainingJob& job, api::Role role, int index) {
  return absl::StrCat(job.metadata.name, "-", std::string(api::ToString(role)), "-", index);
}

std::string PodSelector(const std::string& job_uid) { return absl::StrCat(kJobUidLabel, "=", job_uid); }

std::string ProcessJobUid(const std::string& kubernetes_uid) {
  std::string uid = kubernetes_uid;
  std::erase(uid, '-');
  return uid;
}

absl::Status SomebodyElses(const kube::Resource& resource, const std::string& name) {
  return absl::AlreadyExistsError(
      absl::StrCat(resource.kind, " ", name, " exists and belongs to somebody else; it is left alone"));
}

Json MakeService(const std::string& namespace_name) {
  return {{"apiVersion", "v1"},
          {"kind", "Service"},
          {"metadata",
           {{"name", kServiceName}, {"namespace", namespace_name}, {"labels", {{kManagedByLabel, kManagedByValue}}}}},
          {"spec", {{"clusterIP", "None"}, {"ports", ControlPorts()}}}};
}

Json MakeEndpointSlice(const api::TrainingJob& job, const std::string& address) {
  Json meta = Meta(job, job.metadata.name);
  meta["labels"]["kubernetes.io/service-name"] = kServiceName;
  meta["labels"]["service.kubernetes.io/headless"] = "";  // nothing for the proxies of the nodes
  meta["labels"]["endpointslice.kubernetes.io/managed-by"] = kManagedByValue;
  Json endpoints = Json::array();
  if (!address.empty()) {
    endpoints.push_back({{"addresses", Json::array({address})},
                         {"hostname", PodName(job, api::Role::kCoordinator, 0)},
                         {"conditions", {{"ready", true}}}});  // whoever asks tries until it answers
  }
  return {{"apiVersion", kube::kEndpointSlices.ApiVersion()},
          {"kind", kube::kEndpointSlices.kind},
          {"metadata", std::move(meta)},
          {"addressType", absl::StrContains(address, ":") ? "IPv6" : "IPv4"},
          {"ports", ControlPorts()},
          {"endpoints", std::move(endpoints)}};
}

std::string PodDisruptionBudgetName(const api::TrainingJob& job) { return absl::StrCat(job.metadata.name, "-ps"); }

Json MakePodDisruptionBudget(const api::TrainingJob& job) {
  return {{"apiVersion", "policy/v1"},
          {"kind", "PodDisruptionBudget"},
          {"metadata", Meta(job, PodDisruptionBudgetName(job))},
          {"spec",
           // A number of their own: for maxUnavailable the platform would ask the job's scale, which is its workers'.
           {{"minAvailable", job.spec.parameter_server.has_value() ? job.spec.parameter_server->replicas : 0},
            {"selector",
             {{"matchLabels",
               {{kJobUidLabel, job.metadata.uid},
                {kRoleLabel, std::string(api::ToString(api::Role::kParameterServer))}}}}}}}};
}

PodsOfRole::PodsOfRole(const api::TrainingJob& job, const ImageOptions& images, api::Role role)
    : job_(job), role_(role), common_(MakeCommon(job, images, role)) {}

absl::StatusOr<Json> PodsOfRole::Make(int index, int incarnation, const std::vector<std::string>& avoid_nodes) const {
  if (!common_.ok()) return common_.status();
  Json pod = *common_;
  const std::string name = PodName(job_, role_, index);
  Json& meta = pod["metadata"];
  meta["name"] = name;
  meta["labels"][kIndexLabel] = absl::StrCat(index);
  meta["labels"][kIncarnationLabel] = absl::StrCat(incarnation);
  Json& spec = pod["spec"];
  if (!AvoidNodes(spec, avoid_nodes)) return RefuseTemplate(role_, ".spec.affinity: is no affinity");
  spec["hostname"] = name;
  (*FindContainer(spec["containers"]))["args"] = Arguments(job_, role_, index, incarnation);
  return pod;
}

}  // namespace downpour::controller
