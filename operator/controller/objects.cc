#include "operator/controller/objects.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "operator/api/manifest.h"
#include "operator/api/pod_template.h"
#include "operator/controller/pod.h"
#include "operator/controller/pod_spec.h"
#include "operator/job/training_config.h"
#include "operator/planner/context.h"
#include "proto/host_port.h"

namespace downpour::controller {
namespace {

using kube::Json;

constexpr char kOutputDirectory[] = "/output";
constexpr int kWorkerGraceSeconds = 30;  // for an update under way

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

std::string CoordinatorAddress(const api::TrainingJob& job) {
  return JoinHostPort(absl::StrCat(PodName(job, api::Role::kCoordinator, 0), ".", kServiceName, ".",
                                   job.metadata.namespace_name, ".svc"),
                      kControlPort);
}

// A worker that the others of its job reach.
bool IsInRing(const api::TrainingJob& job, api::Role role) {
  return role == api::Role::kWorker && job.spec.strategy == api::Strategy::kAllReduce;
}

Json Arguments(const api::TrainingJob& job, api::Role role, int index, int incarnation) {
  Json arguments = Json::array();
  if (role != api::Role::kWorker) arguments.push_back(role == api::Role::kCoordinator ? "coordinator" : "ps");
  const auto add = [&arguments](const char* flag, std::string value) {
    arguments.push_back(flag);
    arguments.push_back(std::move(value));
  };
  add("--config", absl::StrCat("env:", api::kConfigVariable));
  add("--incarnation", absl::StrCat(incarnation));
  if (role != api::Role::kCoordinator) {
    add("--index", absl::StrCat(index));
    add("--coordinator", CoordinatorAddress(job));
  }
  const bool in_ring = IsInRing(job, role);
  if (role != api::Role::kWorker || in_ring) add("--listen", JoinHostPort("::", kControlPort));
  if (role == api::Role::kParameterServer || in_ring) add("--advertise-host", "$(POD_IP)");
  if (in_ring) add("--ring-listen", JoinHostPort("::", api::kRingPort));
  if (role == api::Role::kParameterServer) {
    add("--node", absl::StrCat("$(", api::kNodeVariable, ")"));
  }
  add("--metrics-listen", JoinHostPort("::", kMetricsPort));
  return arguments;
}

Json ControlPorts() { return Json::array({{{"name", "grpc"}, {"port", kControlPort}, {"protocol", "TCP"}}}); }

Json Port(const char* name, int number) { return {{"name", name}, {"containerPort", number}}; }

// An empty volume where the template mounts nothing, neither there nor around it.
void AddMount(const Json* theirs, const char* name, const char* path, Json& spec, Json& container) {
  if (theirs != nullptr && FindMount(*theirs, path) != nullptr) return;
  container["volumeMounts"].push_back({{"name", name}, {"mountPath", path}});
  spec["volumes"].push_back({{"name", name}, {"emptyDir", Json::object()}});
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

// A wish, beside those of the template: a standby on the node of its ps would go with it. What is no affinity the
// platform refuses.
void SpreadOverNodes(const api::TrainingJob& job, api::Role role, Json& spec) {
  Json* const apart = MapAt(MapAt(&spec, "affinity"), "podAntiAffinity");
  if (apart == nullptr) return;
  Json& wishes = (*apart)["preferredDuringSchedulingIgnoredDuringExecution"];
  if (wishes.is_null()) wishes = Json::array();
  if (!wishes.is_array()) return;
  const Json labels = {{kJobUidLabel, job.metadata.uid}, {kRoleLabel, std::string(api::ToString(role))}};
  wishes.push_back(
      {{"weight", 100},
       {"podAffinityTerm", {{"topologyKey", "kubernetes.io/hostname"}, {"labelSelector", {{"matchLabels", labels}}}}}});
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
  if (!spec.value("resources", Json()).is_null()) return;
  Json& resources = container["resources"];
  if (resources.is_null()) resources = Json::object();
  if (!resources.is_object()) return;  // the platform says what it has against it
  const Json limits = resources.value("limits", Json());
  Json requests = resources.value("requests", Json());
  if (requests.is_null()) requests = Json::object();
  if (!requests.is_object()) return;
  const Requests wanted = RequestsOf(role);
  for (const auto& [resource, amount] : {std::pair{"cpu", wanted.cpu}, std::pair{"memory", wanted.memory}}) {
    if ((!limits.is_object() || !limits.contains(resource)) && !requests.contains(resource))
      requests[resource] = amount;
  }
  if (!requests.empty()) resources["requests"] = std::move(requests);
}

absl::Status RefuseTemplate(api::Role role, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(api::TemplatePath(role), what));
}

// The template of the role, its `metadata` and `spec` maps; the pod is made of it in MakeCommon.
absl::StatusOr<Json> ReadTemplate(const api::TrainingJobSpec& spec, api::Role role) {
  Json pod = Json::object();
  if (const std::string& text = api::PodTemplate(spec, role); !text.empty()) {
    pod = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!pod.is_object()) return RefuseTemplate(role, ": must be a map");
  }
  for (const char* key : {"metadata", "spec"}) {
    Json& part = pod[key];
    if (part.is_null()) part = Json::object();
    if (!part.is_object()) return RefuseTemplate(role, absl::StrCat(".", key, ": must be a map"));
  }
  const Json containers = pod["spec"].value("containers", Json());
  if (!containers.is_null() && !containers.is_array()) {
    return RefuseTemplate(role, ".spec.containers: must be a list");
  }
  return pod;
}

// Of all pods of the role. Labels are what the operator finds them by; annotations may be the template's.
Json CommonMeta(const api::TrainingJob& job, api::Role role, const Json& theirs) {
  Json meta = Meta(job, "");
  meta["labels"][kRoleLabel] = std::string(api::ToString(role));
  meta["annotations"] = {{"prometheus.io/scrape", "true"},
                         {"prometheus.io/port", absl::StrCat(kMetricsPort)},
                         {"prometheus.io/path", "/metrics"}};
  if (const Json labels = theirs.value("labels", Json()); labels.is_object()) {
    const Json ours = std::exchange(meta["labels"], labels);
    meta["labels"].update(ours);
  }
  if (const Json annotations = theirs.value("annotations", Json()); annotations.is_object()) {
    meta["annotations"].update(annotations);
  }
  return meta;
}

// Our container where the template says nothing else.
Json Trainer(const api::TrainingJob& job, const PodOptions& options, api::Role role, const std::string& config) {
  const bool worker = role == api::Role::kWorker;
  Json container = {{"name", kContainerName},
                    {"image", worker ? options.trainer : options.server},
                    {"imagePullPolicy", options.pull_policy},
                    {"command", Json::array({worker ? "downpour-worker" : "downpour-server"})},
                    {"env", Json::array({{{"name", api::kConfigVariable}, {"value", EscapeReferences(config)}},
                                         {{"name", api::kAddressVariable},
                                          {"valueFrom", {{"fieldRef", {{"fieldPath", "status.podIP"}}}}}}})},
                    {"ports", Json::array({Port(api::kMetricsPortName, kMetricsPort)})},
                    {"securityContext",
                     {{"allowPrivilegeEscalation", false},
                      {"readOnlyRootFilesystem", true},
                      {"capabilities", {{"drop", Json::array({"ALL"})}}}}}};
  if (IsInRing(job, role)) {
    container["ports"].push_back(Port(api::kControlPortName, kControlPort));
    container["ports"].push_back(Port(api::kRingPortName, api::kRingPort));
  }
  if (worker) return container;
  if (role == api::Role::kParameterServer) {
    container["env"].push_back(
        {{"name", api::kNodeVariable}, {"valueFrom", {{"fieldRef", {{"fieldPath", "spec.nodeName"}}}}}});
  }
  container["ports"].push_back(Port(api::kControlPortName, kControlPort));
  container["readinessProbe"] = {
      {"grpc", {{"port", kControlPort}}}, {"periodSeconds", 5}, {"timeoutSeconds", 2}, {"failureThreshold", 3}};
  return container;
}

// The end of the log becomes the reason that the job's status gives, without a right to read logs.
void KeepLastWords(Json& spec) {
  for (const char* list : {"initContainers", "containers"}) {
    const auto containers = spec.find(list);
    if (containers == spec.end() || !containers->is_array()) continue;
    for (Json& container : *containers) {
      if (container.is_object() && !container.contains("terminationMessagePolicy")) {
        container["terminationMessagePolicy"] = "FallbackToLogsOnError";
      }
    }
  }
}

std::string OutputDirectory(const api::TrainingJobSpec& spec) {
  return spec.output.directory.empty() ? kOutputDirectory : spec.output.directory;
}

// Whether what is written there goes with the pod; `theirs`: the spec of its template; `ours`: the volume of AddMount
// at that place, which the template may declare, empty: there is none. A volume of a kind that is not known here is
// taken for one that stays.
bool IsTemporary(const Json& theirs, const std::string& directory, const std::string& ours) {
  const Json* const container = FindTrainer(theirs);
  const Json* const mount = container == nullptr ? nullptr : FindMount(*container, directory);
  // Without a mount it is on the container's own disk.
  const std::string name = mount != nullptr ? kube::FindText(*mount, {"name"}) : ours;
  const Json volumes = theirs.value("volumes", Json());
  return std::none_of(volumes.begin(), volumes.end(), [&name](const Json& volume) {
    if (name.empty() || !volume.is_object() || kube::FindText(volume, {"name"}) != name) return false;
    const auto items = volume.items();  // one without a source is an emptyDir
    return std::any_of(items.begin(), items.end(), [](const auto& item) {
      return item.key() != "name" && item.key() != "emptyDir" && item.key() != "ephemeral" && !item.value().is_null();
    });
  });
}

// Of what the workers write.
bool OutputIsTemporary(const api::TrainingJobSpec& spec, const Json& theirs) {
  return IsTemporary(theirs, OutputDirectory(spec), spec.output.directory.empty() ? api::kOutputVolume : "");
}

// All of a pod but its name and what tells its process who it is.
absl::StatusOr<Json> MakeCommon(const api::TrainingJob& job, const PodOptions& options, api::Role role) {
  absl::StatusOr<Json> read = ReadTemplate(job.spec, role);
  if (!read.ok()) return read.status();
  const Json& theirs = read->at("spec");
  const std::string output = OutputDirectory(job.spec);
  v1::TrainingConfig training = job::ToTrainingConfig(job, ProcessJobUid(job.metadata.uid), output);
  if (role == api::Role::kWorker) training.set_gpus(static_cast<std::uint32_t>(api::WorkerGpus(job.spec)));
  if (role == api::Role::kWorker && OutputIsTemporary(job.spec, theirs)) {
    training.set_keep_output_seconds(static_cast<std::uint32_t>(job.spec.output.keep_seconds));
  }
  const absl::StatusOr<std::string> config = job::TrainingConfigToJson(training);
  if (!config.ok()) return config.status();

  Json security = {{"runAsNonRoot", true}, {"seccompProfile", {{"type", "RuntimeDefault"}}}};
  if (options.run_as_user != 0) {
    for (const char* key : {"runAsUser", "runAsGroup", "fsGroup"}) security[key] = options.run_as_user;
  }
  Json spec = {{"enableServiceLinks", false},
               {"automountServiceAccountToken", false},
               {"terminationGracePeriodSeconds", kWorkerGraceSeconds},
               {"securityContext", std::move(security)}};
  Json container = Trainer(job, options, role, *config);
  const Json* const their_container = FindTrainer(theirs);
  AddMount(their_container, api::kTemporaryVolume, "/tmp", spec, container);
  if (role == api::Role::kWorker && job.spec.output.directory.empty()) {
    AddMount(their_container, api::kOutputVolume, kOutputDirectory, spec, container);
  }
  spec["containers"] = Json::array({std::move(container)});
  spec = MergePodSpec(std::move(spec), theirs);
  spec["restartPolicy"] = "Never";  // a replacement is a new pod with a new incarnation
  spec["subdomain"] = kServiceName;
  // Else it would not find the names of the cluster.
  if (spec.value("hostNetwork", Json()) == true && spec.value("dnsPolicy", Json()).is_null()) {
    spec["dnsPolicy"] = "ClusterFirstWithHostNet";
  }
  if (role == api::Role::kParameterServer && planner::HasStandbys(job.spec)) SpreadOverNodes(job, role, spec);
  AddRequests(spec, *FindTrainer(spec), role);
  KeepLastWords(spec);
  return Json{{"apiVersion", "v1"},
              {"kind", "Pod"},
              {"metadata", CommonMeta(job, role, read->at("metadata"))},
              {"spec", std::move(spec)}};
}

}  // namespace

std::string PodName(const api::TrainingJob& job, api::Role role, int index) {
  return absl::StrCat(job.metadata.name, "-", std::string(api::ToString(role)), "-", index);
}

std::string TemporaryOutput(const api::TrainingJobSpec& spec) {
  const absl::StatusOr<Json> pod = ReadTemplate(spec, api::Role::kWorker);
  return pod.ok() && OutputIsTemporary(spec, pod->at("spec")) ? OutputDirectory(spec) : "";
}

std::string TemporaryCheckpoints(const api::TrainingJobSpec& spec) {
  if (!spec.checkpoint.has_value() || spec.checkpoint->uri.starts_with("s3://")) return "";
  std::vector<std::string> templates;
  // Of all-reduce the workers write them.
  const bool all_reduce = spec.strategy == api::Strategy::kAllReduce;
  for (const api::Role role :
       {api::Role::kCoordinator, all_reduce ? api::Role::kWorker : api::Role::kParameterServer}) {
    const absl::StatusOr<Json> pod = ReadTemplate(spec, role);
    if (pod.ok() && IsTemporary(pod->at("spec"), spec.checkpoint->uri, ""))
      templates.push_back(api::TemplatePath(role));
  }
  return absl::StrJoin(templates, " and ");
}

std::string GpusOf(const api::TrainingJobSpec& spec) {
  const absl::StatusOr<Json> pod = ReadTemplate(spec, api::Role::kWorker);
  if (!pod.ok()) return "";
  const Json& body = pod->at("spec");
  for (const Json& container : body.value("containers", Json::array())) {
    const Json resources = container.is_object() ? container.value("resources", Json()) : Json();
    const Json limits = resources.is_object() ? resources.value("limits", Json()) : Json();
    if (!limits.is_object()) continue;
    for (const auto& [name, count] : limits.items()) {
      const bool gpus = absl::EndsWith(name, "/gpu") || absl::StartsWith(name, "nvidia.com/");
      if (gpus && count != 0 && count != "0") return name;
    }
  }
  return body.value("resourceClaims", Json::array()).empty() ? "" : "resourceClaims";
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

Json MakePodDisruptionBudget(const api::TrainingJob& job, const planner::ProtectedPs& ps) {
  Json selector = {
      {"matchLabels",
       {{kJobUidLabel, job.metadata.uid}, {kRoleLabel, std::string(api::ToString(api::Role::kParameterServer))}}}};
  if (!ps.free.empty()) {
    Json free = Json::array();
    for (const int index : ps.free) free.push_back(absl::StrCat(index));
    selector["matchExpressions"] =
        Json::array({{{"key", kIndexLabel}, {"operator", "NotIn"}, {"values", std::move(free)}}});
  }
  return {{"apiVersion", "policy/v1"},
          {"kind", "PodDisruptionBudget"},
          {"metadata", Meta(job, PodDisruptionBudgetName(job))},
          {"spec",
           // A number of their own: for maxUnavailable the platform would ask the job's scale, which is its workers'.
           {{"minAvailable", ps.count}, {"selector", std::move(selector)}}}};
}

PodsOfRole::PodsOfRole(const api::TrainingJob& job, const PodOptions& options, api::Role role)
    : job_(job), role_(role), common_(MakeCommon(job, options, role)) {}

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
  (*FindTrainer(spec))["args"] = Arguments(job_, role_, index, incarnation);
  return pod;
}

}  // namespace downpour::controller
