#ifndef DOWNPOUR_OPERATOR_API_FIELDS_H_
#define DOWNPOUR_OPERATOR_API_FIELDS_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "operator/api/training_job.h"

// The one description of every field: name, type, range, and whether it is required or not supported yet. Reading,
// writing and the tests of docs/manifest.md all visit it, so they cannot disagree.
//
//   struct Visitor {
//     template <class Value, class Rule>
//     void Field(std::string_view name, Value& value, const Rule& rule, Presence presence = Presence::kOptional);
//     void Dropped(std::string_view name);  // accepted whatever it holds, and not kept
//   };
//
// `Value` may be a std::optional of what the rule describes. Rules that tie several fields together are in manifest.cc.
namespace downpour::api::schema {

// kUnsupported: checked as any other field, then refused, because nothing carries it out yet.
enum class Presence { kOptional, kRequired, kUnsupported };

struct Integer {
  std::int64_t min = 0;
  std::int64_t max = std::numeric_limits<std::int64_t>::max();
  std::int64_t supported_max = std::numeric_limits<std::int64_t>::max();
};

// Finite.
struct Number {
  bool positive = false;
};

struct Flag {};

// `check` returns what is asked for ("must ..."), or nothing if the text is right.
using TextCheck = std::string_view (*)(std::string_view text);
struct Text {
  TextCheck check;
  std::string_view supported = {};  // the only supported value; empty: all are
};

template <class Value>
struct Name {
  std::string_view name;
  Value value;
  bool supported = true;
};
template <class Value>
struct Choice {
  template <std::size_t n>
  explicit Choice(const Name<Value> (&table)[n]) : names(table) {}
  std::span<const Name<Value>> names;
};

struct Object {};
// One that has no other fields, not even in a Template.
struct ClosedObject : Object {};
// A PodTemplateSpec, kept as JSON text. Of its fields only those of PodTemplate below are looked at; a pod that the
// API server creates from it has all of them checked.
struct Template {};
// Whatever it holds.
struct Opaque {};
struct OpaqueValue {};
// Seconds since the epoch; written as TimeFormat says.
struct Time {};
// "Latest", "Never", {trainingJob: name} or {uri: text}.
struct ResumePoint {};

inline constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();
template <class Item>
struct ListOf {
  Item item;
  std::size_t min_size = 0;
  std::size_t max_size = kUnlimited;
};
template <class Item>
struct MapOf {
  TextCheck key;
  Item item;
};

inline constexpr Name<Strategy> kStrategies[] = {{"ParameterServer", Strategy::kParameterServer},
                                                 {"AllReduce", Strategy::kAllReduce, false}};
inline constexpr Name<Role> kRoles[] = {
    {"Coordinator", Role::kCoordinator}, {"ParameterServer", Role::kParameterServer}, {"Worker", Role::kWorker}};
inline constexpr Name<SuccessPolicy> kSuccessPolicies[] = {{"AllWorkers", SuccessPolicy::kAllWorkers, false},
                                                           {"Worker0", SuccessPolicy::kWorker0, false},
                                                           {"Coordinator", SuccessPolicy::kCoordinator}};
inline constexpr Name<AbsenceState> kAbsenceStates[] = {
    {"Waiting", AbsenceState::kWaiting}, {"Parked", AbsenceState::kParked}, {"Retrying", AbsenceState::kRetrying}};
inline constexpr Name<RestartAction> kRestartActions[] = {{"Ignore", RestartAction::kIgnore},
                                                          {"Replace", RestartAction::kReplace},
                                                          {"RestoreRole", RestartAction::kRestoreRole, false},
                                                          {"RestartJob", RestartAction::kRestartJob},
                                                          {"FailJob", RestartAction::kFailJob}};
inline constexpr Name<bool> kExitCodeOperators[] = {{"In", true}, {"NotIn", false}};
inline constexpr Name<std::string_view> kConditionStatuses[] = {
    {"True", "True"}, {"False", "False"}, {"Unknown", "Unknown"}};
inline constexpr Name<bool> kTruth[] = {{"True", true}, {"False", false}};
inline constexpr Name<std::string_view> kModels[] = {{"LeNet", "LeNet"}, {"MLP", "MLP"}};
inline constexpr Name<std::string_view> kDatasetFormats[] = {{"IDX", "IDX"}};
inline constexpr Name<Device> kDevices[] = {{"Auto", Device::kAuto}, {"CPU", Device::kCpu}, {"CUDA", Device::kCuda}};
inline constexpr Name<Precision> kPrecisions[] = {{"fp32", Precision::kFp32}, {"bf16", Precision::kBf16}};
inline constexpr Name<UpdateMode> kUpdateModes[] = {{"Async", UpdateMode::kAsync},
                                                    {"BoundedStaleness", UpdateMode::kBoundedStaleness, false},
                                                    {"Synchronous", UpdateMode::kSynchronous, false}};
inline constexpr Name<OptimizerType> kOptimizers[] = {
    {"SGD", OptimizerType::kSgd},
    {"Momentum", OptimizerType::kMomentum, false},
    {"Adagrad", OptimizerType::kAdagrad, false},
    {"Adam", OptimizerType::kAdam, false},
    {"DelayCompensatedSGD", OptimizerType::kDelayCompensatedSgd, false}};
inline constexpr Name<Codec> kCodecs[] = {{"fp32", Codec::kFp32},
                                          {"bf16", Codec::kBf16, false},
                                          {"int8", Codec::kInt8, false},
                                          {"topK", Codec::kTopK, false}};
inline constexpr Name<CleanupPolicy> kCleanupPolicies[] = {{"All", CleanupPolicy::kAll},
                                                           {"Running", CleanupPolicy::kRunning},
                                                           {"KeepFailed", CleanupPolicy::kKeepFailed},
                                                           {"None", CleanupPolicy::kNone}};
inline constexpr Name<ResumeMode> kResumeModes[] = {{"Latest", ResumeMode::kLatest}, {"Never", ResumeMode::kNever}};
inline constexpr Name<GangPolicy> kGangPolicies[] = {
    {"None", GangPolicy::kNone}, {"MinReplicas", GangPolicy::kMinReplicas, false}, {"All", GangPolicy::kAll, false}};
inline constexpr Name<SchedulingProvider> kSchedulingProviders[] = {
    {"Auto", SchedulingProvider::kAuto},
    {"None", SchedulingProvider::kNone},
    {"Kubernetes", SchedulingProvider::kKubernetes, false},
    {"Volcano", SchedulingProvider::kVolcano, false},
    {"SchedulerPlugins", SchedulingProvider::kSchedulerPlugins, false}};

// Whether a pod is started again is decided by the failure policy, not on its node.
inline constexpr Name<std::string_view> kPodRestartPolicies[] = {{"Never", "Never"}};

inline constexpr std::int64_t kHour = 3600;
inline constexpr std::int64_t kDay = 24 * kHour;
inline constexpr std::int64_t kYear = 365 * kDay;
inline constexpr int kMaxWorkers = 10000;
inline constexpr int kMaxParameterServers = 1000;
inline constexpr int kMaxRestarts = 1000000;

// Text checks, in manifest.cc.
std::string_view AnyText(std::string_view text);
std::string_view IsShortText(std::string_view text);  // at most 253 bytes
std::string_view IsApiVersion(std::string_view text);
std::string_view IsKind(std::string_view text);
std::string_view IsJobName(std::string_view text);        // RFC 1035 label of at most 40
std::string_view IsNamespace(std::string_view text);      // RFC 1123 label
std::string_view IsRuleName(std::string_view text);       // RFC 1035 label
std::string_view IsQualifiedName(std::string_view text);  // [prefix/]name, as keys of labels
std::string_view IsLabelValue(std::string_view text);
std::string_view IsReason(std::string_view text);     // as OOMKilled
std::string_view IsManagedBy(std::string_view text);  // prefix/path
std::string_view IsPath(std::string_view text);
std::string_view IsPathOrEmpty(std::string_view text);

// What is looked at in a pod template.
struct PodTemplateMetadata {
  std::map<std::string, std::string> labels;
  std::map<std::string, std::string> annotations;
  OpaqueValue creation_timestamp;
};
struct PodSpec {
  std::string restart_policy;
  std::vector<OpaqueValue> containers;
  OpaqueValue others;
};
struct PodTemplate {
  PodTemplateMetadata metadata;
  PodSpec spec;
};

template <class Visitor>
void Fields(Visitor& v, PodTemplateMetadata& s) {
  v.Field("labels", s.labels, MapOf<Text>{AnyText, {AnyText}});
  v.Field("annotations", s.annotations, MapOf<Text>{AnyText, {AnyText}});
  v.Field("creationTimestamp", s.creation_timestamp, Opaque{});  // null: so kubectl writes templates
}

// A PodSpec of Kubernetes 1.34. The API server compares only fields that it knows when it looks for changes.
inline constexpr std::string_view kPodFields[] = {"activeDeadlineSeconds",
                                                  "affinity",
                                                  "automountServiceAccountToken",
                                                  "dnsConfig",
                                                  "dnsPolicy",
                                                  "enableServiceLinks",
                                                  "ephemeralContainers",
                                                  "hostAliases",
                                                  "hostIPC",
                                                  "hostNetwork",
                                                  "hostPID",
                                                  "hostUsers",
                                                  "hostname",
                                                  "hostnameOverride",
                                                  "imagePullSecrets",
                                                  "initContainers",
                                                  "nodeName",
                                                  "nodeSelector",
                                                  "os",
                                                  "overhead",
                                                  "preemptionPolicy",
                                                  "priority",
                                                  "priorityClassName",
                                                  "readinessGates",
                                                  "resourceClaims",
                                                  "resources",
                                                  "runtimeClassName",
                                                  "schedulerName",
                                                  "schedulingGates",
                                                  "securityContext",
                                                  "serviceAccount",
                                                  "serviceAccountName",
                                                  "setHostnameAsFQDN",
                                                  "shareProcessNamespace",
                                                  "subdomain",
                                                  "terminationGracePeriodSeconds",
                                                  "tolerations",
                                                  "topologySpreadConstraints",
                                                  "volumes"};

template <class Visitor>
void Fields(Visitor& v, PodSpec& s) {
  v.Field("restartPolicy", s.restart_policy, Choice(kPodRestartPolicies));
  v.Field("containers", s.containers, ListOf<Opaque>{});
  for (const std::string_view name : kPodFields) v.Field(name, s.others, Opaque{});
}

template <class Visitor>
void Fields(Visitor& v, PodTemplate& s) {
  v.Field("metadata", s.metadata, ClosedObject{});  // the others would be lost
  v.Field("spec", s.spec, Object{});
}

template <class Visitor>
void Fields(Visitor& v, CoordinatorSpec& s) {
  v.Field("template", s.pod_template, Template{});
}

template <class Visitor>
void Fields(Visitor& v, ParameterServerSpec& s) {
  v.Field("replicas", s.replicas, Integer{1, kMaxParameterServers});
  v.Field("template", s.pod_template, Template{});
  v.Field("replicationFactor", s.replication_factor, Integer{1, 3, 1});
}

template <class Visitor>
void Fields(Visitor& v, WorkerSpec& s) {
  v.Field("replicas", s.replicas, Integer{0, kMaxWorkers});
  v.Field("template", s.pod_template, Template{});
}

template <class Visitor>
void Fields(Visitor& v, ElasticSpec& s) {
  v.Field("minReplicas", s.min_replicas, Integer{1, kMaxWorkers}, Presence::kRequired);
  v.Field("maxReplicas", s.max_replicas, Integer{1, kMaxWorkers}, Presence::kRequired);
  v.Field("shrinkAfterSeconds", s.shrink_after_seconds, Integer{1, kDay});
  v.Field("growCooldownSeconds", s.grow_cooldown_seconds, Integer{0, kDay});
}

template <class Visitor>
void Fields(Visitor& v, Backoff& s) {
  v.Field("initialSeconds", s.initial_seconds, Integer{1, kDay});
  v.Field("maxSeconds", s.max_seconds, Integer{1, kDay});
}

template <class Visitor>
void Fields(Visitor& v, ExitCodeRule& s) {
  v.Field("operator", s.in, Choice(kExitCodeOperators), Presence::kRequired);
  v.Field("values", s.values, ListOf<Integer>{{1, 255}, 1, 255}, Presence::kRequired);
}

template <class Visitor>
void Fields(Visitor& v, PodConditionRule& s) {
  v.Field("type", s.type, Text{IsQualifiedName}, Presence::kRequired);
  v.Field("status", s.status, Choice(kConditionStatuses), Presence::kRequired);
}

template <class Visitor>
void Fields(Visitor& v, FailureRule& s) {
  v.Field("name", s.name, Text{IsRuleName}, Presence::kRequired);
  v.Field("roles", s.roles, ListOf<Choice<Role>>{Choice(kRoles), 0, 3});
  v.Field("onPodConditions", s.on_pod_conditions, ListOf<Object>{{}, 0, 20});
  v.Field("onContainerReasons", s.on_container_reasons, ListOf<Text>{{IsReason}, 0, 20});
  v.Field("onExitCodes", s.on_exit_codes, Object{});
  v.Field("action", s.action, Choice(kRestartActions), Presence::kRequired);
  v.Field("countsTowardsLimit", s.counts_towards_limit, Flag{});
}

template <class Visitor>
void Fields(Visitor& v, FailurePolicy& s) {
  v.Field("maxRestarts", s.max_restarts, Integer{0, kMaxRestarts});
  v.Field("maxRestartsPerReplica", s.max_restarts_per_replica, Integer{0, kMaxRestarts});
  v.Field("windowSeconds", s.window_seconds, Integer{0, kYear});
  v.Field("backoff", s.backoff, Object{});
  v.Field("terminationTimeoutSeconds", s.termination_timeout_seconds, Integer{1, kDay});
  v.Field("pendingTimeoutSeconds", s.pending_timeout_seconds, Integer{1, 7 * kDay});
  v.Field("rules", s.rules, ListOf<Object>{{}, 0, 20});
}

template <class Visitor>
void Fields(Visitor& v, OnDisruption& s) {
  v.Field("timeoutSeconds", s.timeout_seconds, Integer{1, kHour});
}

template <class Visitor>
void Fields(Visitor& v, CheckpointSpec& s) {
  v.Field("uri", s.uri, Text{IsPath}, Presence::kRequired);
  v.Field("intervalSeconds", s.interval_seconds, Integer{1, kYear});
  v.Field("onDisruption", s.on_disruption, Object{});
  v.Field("resumeFrom", s.resume_from, ResumePoint{});
}

template <class Visitor>
void Fields(Visitor& v, AvoidNodes& s) {
  v.Field("afterFailures", s.after_failures, Integer{1, kMaxRestarts});
  v.Field("forSeconds", s.for_seconds, Integer{1, kYear});
}

template <class Visitor>
void Fields(Visitor& v, SchedulingSpec& s) {
  v.Field("gang", s.gang, Choice(kGangPolicies));
  v.Field("provider", s.provider, Choice(kSchedulingProviders));
  v.Field("queue", s.queue, Text{IsShortText}, Presence::kUnsupported);
  v.Field("priorityClassName", s.priority_class_name, Text{IsShortText}, Presence::kUnsupported);
  v.Field("avoidNodes", s.avoid_nodes, Object{});
}

template <class Visitor>
void Fields(Visitor& v, RoleCleanup& s) {
  v.Field("onSuccess", s.on_success, Choice(kCleanupPolicies));
  v.Field("onFailure", s.on_failure, Choice(kCleanupPolicies));
}

template <class Visitor>
void Fields(Visitor& v, PodCleanup& s) {
  v.Field("onSuccess", s.on_success, Choice(kCleanupPolicies));
  v.Field("onFailure", s.on_failure, Choice(kCleanupPolicies));
  v.Field("coordinator", s.coordinator, Object{});
  v.Field("parameterServer", s.parameter_server, Object{});
  v.Field("worker", s.worker, Object{});
}

template <class Visitor>
void Fields(Visitor& v, ModelSpec& s) {
  v.Field("name", s.name, Choice(kModels), Presence::kRequired);
}

template <class Visitor>
void Fields(Visitor& v, DatasetSpec& s) {
  v.Field("format", s.format, Choice(kDatasetFormats), Presence::kRequired);
  v.Field("path", s.path, Text{IsPath}, Presence::kRequired);
}

template <class Visitor>
void Fields(Visitor& v, TrainingSpec& s) {
  v.Field("epochs", s.epochs, Integer{1, 100000});
  v.Field("batchSize", s.batch_size, Integer{1, 1048576});
  v.Field("seed", s.seed, Integer{0});
  v.Field("device", s.device, Choice(kDevices));
  v.Field("precision", s.precision, Choice(kPrecisions));
  v.Field("threads", s.threads, Integer{0, 1024});
  v.Field("updatesPerShard", s.updates_per_shard, Integer{0, 1000000});
  v.Field("evaluate", s.evaluate, Flag{});
}

template <class Visitor>
void Fields(Visitor& v, OptimizerSpec& s) {
  v.Field("type", s.type, Choice(kOptimizers));
  v.Field("learningRate", s.learning_rate, Number{.positive = true});
  v.Field("stalenessAware", s.staleness_aware, Flag{});
}

template <class Visitor>
void Fields(Visitor& v, UpdateSpec& s) {
  v.Field("mode", s.mode, Choice(kUpdateModes));
  v.Field("optimizer", s.optimizer, Object{});
  v.Field("codec", s.codec, Choice(kCodecs));
  v.Field("accumulate", s.accumulate, Integer{1, 65536, 1});
}

template <class Visitor>
void Fields(Visitor& v, OutputSpec& s) {
  v.Field("directory", s.directory, Text{IsPathOrEmpty});
}

template <class Visitor>
void Fields(Visitor& v, TrainingJobSpec& s) {
  v.Field("strategy", s.strategy, Choice(kStrategies));
  v.Field("suspend", s.suspend, Flag{});
  v.Field("managedBy", s.managed_by, Text{IsManagedBy});
  v.Field("coordinator", s.coordinator, Object{});
  v.Field("parameterServer", s.parameter_server, Object{});
  v.Field("worker", s.worker, Object{});
  v.Field("elastic", s.elastic, Object{});
  v.Field("successPolicy", s.success_policy, Choice(kSuccessPolicies));
  v.Field("failurePolicy", s.failure_policy, Object{});
  v.Field("progressDeadlineSeconds", s.progress_deadline_seconds, Integer{0, kYear});
  v.Field("checkpoint", s.checkpoint, Object{}, Presence::kUnsupported);
  v.Field("scheduling", s.scheduling, Object{});
  v.Field("activeDeadlineSeconds", s.active_deadline_seconds, Integer{1, 10 * kYear});
  v.Field("ttlSecondsAfterFinished", s.ttl_seconds_after_finished, Integer{0, 10 * kYear});
  v.Field("podCleanup", s.pod_cleanup, Object{});
  v.Field("model", s.model, Object{}, Presence::kRequired);
  v.Field("dataset", s.dataset, Object{}, Presence::kRequired);
  v.Field("training", s.training, Object{});
  v.Field("update", s.update, Object{});
  v.Field("output", s.output, Object{});
}

template <class Visitor>
void Fields(Visitor& v, Metadata& s) {
  v.Field("name", s.name, Text{IsJobName}, Presence::kRequired);
  v.Field("namespace", s.namespace_name, Text{IsNamespace});
  v.Field("uid", s.uid, Text{AnyText});
  v.Field("labels", s.labels, MapOf<Text>{IsQualifiedName, {IsLabelValue}});
  v.Field("annotations", s.annotations, MapOf<Text>{IsQualifiedName, {AnyText}});
  v.Field("generation", s.generation, Integer{1});
  // Written by the API server, so they come with every manifest that was exported from one.
  for (const std::string_view name :
       {"creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers", "managedFields",
        "ownerReferences", "resourceVersion", "selfLink"}) {
    v.Dropped(name);
  }
}

template <class Visitor>
void Fields(Visitor& v, TrainingJob& job) {
  std::string api_version = kApiVersion;
  std::string kind = kKind;
  v.Field("apiVersion", api_version, Text{IsApiVersion}, Presence::kRequired);
  v.Field("kind", kind, Text{IsKind}, Presence::kRequired);
  v.Field("metadata", job.metadata, Object{}, Presence::kRequired);
  v.Field("spec", job.spec, Object{}, Presence::kRequired);
  v.Dropped("status");  // never read as a wish
}

inline constexpr Integer kCount{0, std::numeric_limits<int>::max()};

template <class Visitor>
void Fields(Visitor& v, Condition& s) {
  v.Field("type", s.type, Text{AnyText});
  v.Field("status", s.status, Choice(kTruth));
  v.Field("reason", s.reason, Text{AnyText});
  v.Field("message", s.message, Text{AnyText});
  v.Field("lastTransitionTime", s.last_transition_time, Time{});
  v.Field("observedGeneration", s.observed_generation, Integer{});
}

template <class Visitor>
void Fields(Visitor& v, FailureRecord& s) {
  v.Field("time", s.time, Time{});
  v.Field("role", s.role, Choice(kRoles));
  v.Field("index", s.index, kCount);
  v.Field("incarnation", s.incarnation, kCount);
  v.Field("uid", s.uid, Text{AnyText});
  v.Field("cause", s.cause, Text{AnyText});
  v.Field("exitCode", s.exit_code, Integer{std::numeric_limits<int>::min(), std::numeric_limits<int>::max()});
  v.Field("action", s.action, Text{AnyText});
  v.Field("counted", s.counted, Flag{});
  v.Field("platform", s.platform, Flag{});
  v.Field("message", s.message, Text{AnyText});
  v.Field("node", s.node, Text{AnyText});
  v.Field("lastLogLine", s.last_log_line, Text{AnyText});
}

template <class Visitor>
void Fields(Visitor& v, AbsentWorker& s) {
  v.Field("index", s.index, kCount);
  v.Field("state", s.state, Choice(kAbsenceStates));
  v.Field("since", s.since, Time{});
}

template <class Visitor>
void Fields(Visitor& v, NodeStatus& s) {
  v.Field("name", s.name, Text{AnyText});
  v.Field("faultTimes", s.fault_times, ListOf<Time>{});
  v.Field("avoidedUntil", s.avoided_until, Time{});
}

template <class Visitor>
void Fields(Visitor& v, RoleStatus& s) {
  v.Field("desired", s.desired, kCount);
  v.Field("replicas", s.replicas, kCount);
  v.Field("pending", s.pending, kCount);
  v.Field("ready", s.ready, kCount);
  v.Field("succeeded", s.succeeded, kCount);
  v.Field("failed", s.failed, kCount);
  v.Field("terminating", s.terminating, kCount);
  v.Field("restarts", s.restarts, kCount);
  v.Field("summary", s.summary, Text{AnyText});
  v.Field("selector", s.selector, Text{AnyText});
}

template <class Visitor>
void Fields(Visitor& v, MembershipStatus& s) {
  v.Field("epoch", s.epoch, Integer{});
}

template <class Visitor>
void Fields(Visitor& v, RecoveryStatus& s) {
  v.Field("lastCause", s.last_cause, Text{AnyText});
  v.Field("lastRole", s.last_role, Choice(kRoles));
  v.Field("lastStartTime", s.last_start_time, Time{});
  v.Field("lastDurationSeconds", s.last_duration_seconds, Integer{});
}

template <class Visitor>
void Fields(Visitor& v, ProgressStatus& s) {
  v.Field("step", s.step, Integer{});
  v.Field("totalSteps", s.total_steps, Integer{});
  v.Field("percent", s.percent, Integer{0, 100});
  v.Field("samplesPerSecond", s.samples_per_second, Text{AnyText});
  v.Field("etaSeconds", s.eta_seconds, Integer{});
  v.Field("lastUpdateTime", s.last_update_time, Time{});
  v.Field("nextUpdateTime", s.next_update_time, Time{});
  v.Field("epoch", s.epoch, kCount);
  v.Field("loss", s.loss, Text{AnyText});
  v.Field("testAccuracy", s.test_accuracy, Text{AnyText});
}

struct RestartCounts {
  int& total;
  int& counted;
};
template <class Visitor>
void Fields(Visitor& v, RestartCounts& s) {
  v.Field("total", s.total, kCount);
  v.Field("counted", s.counted, kCount);
}

template <class Visitor>
void Fields(Visitor& v, TrainingJobStatus& s) {
  RestartCounts restarts{s.restarts_total, s.restarts_counted};
  v.Field("observedGeneration", s.observed_generation, Integer{});
  v.Field("phase", s.phase, Text{AnyText});
  v.Field("reason", s.reason, Text{AnyText});
  v.Field("conditions", s.conditions, ListOf<Object>{});
  v.Field("startTime", s.start_time, Time{});
  v.Field("completionTime", s.completion_time, Time{});
  v.Field("coordinator", s.coordinator, Object{});
  v.Field("parameterServer", s.parameter_server, Object{});
  v.Field("worker", s.worker, Object{});
  v.Field("restarts", restarts, Object{});
  v.Field("membership", s.membership, Object{});
  v.Field("recovery", s.recovery, Object{});
  v.Field("progress", s.progress, Object{});
  v.Field("incarnations", s.incarnations, MapOf<Integer>{AnyText, kCount});
  v.Field("recentFailures", s.recent_failures, ListOf<Object>{});
  v.Field("failures", s.failures, ListOf<Object>{});
  v.Field("countedUids", s.counted_uids, ListOf<Text>{{AnyText}});
  v.Field("absentWorkers", s.absent_workers, ListOf<Object>{});
  v.Field("nodes", s.nodes, ListOf<Object>{});
  v.Field("lastProgressTime", s.last_progress_time, Time{});
  v.Field("lastProgressStep", s.last_progress_step, Integer{});
}

}  // namespace downpour::api::schema

#endif  // DOWNPOUR_OPERATOR_API_FIELDS_H_
