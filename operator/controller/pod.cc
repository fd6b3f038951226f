#include "operator/controller/pod.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "operator/api/manifest.h"

namespace downpour::controller {
namespace {

using kube::Find;
using kube::FindText;
using kube::Json;
using kube::ProtobufField;
using Kind = kube::ProtobufField::Kind;

constexpr ProtobufField kSpecFields[] = {{10, "nodeName", Kind::kText}};
constexpr ProtobufField kWaitingFields[] = {{1, "reason", Kind::kText}, {2, "message", Kind::kText}};
constexpr ProtobufField kRunningFields[] = {{1, "startedAt", Kind::kTime}};
constexpr ProtobufField kTerminatedFields[] = {{1, "exitCode", Kind::kInteger},
                                               {3, "reason", Kind::kText},
                                               {4, "message", Kind::kText},
                                               {6, "finishedAt", Kind::kTime}};
constexpr ProtobufField kStateFields[] = {{1, "waiting", Kind::kMessage, kWaitingFields},
                                          {2, "running", Kind::kMessage, kRunningFields},
                                          {3, "terminated", Kind::kMessage, kTerminatedFields}};
constexpr ProtobufField kContainerFields[] = {{1, "name", Kind::kText}, {2, "state", Kind::kMessage, kStateFields}};
constexpr ProtobufField kConditionFields[] = {
    {1, "type", Kind::kText}, {2, "status", Kind::kText}, {5, "reason", Kind::kText}, {6, "message", Kind::kText}};
constexpr ProtobufField kStatusFields[] = {{1, "phase", Kind::kText},
                                           {2, "conditions", Kind::kMessages, kConditionFields},
                                           {3, "message", Kind::kText},
                                           {4, "reason", Kind::kText},
                                           {6, "podIP", Kind::kText},
                                           {8, "containerStatuses", Kind::kMessages, kContainerFields},
                                           {10, "initContainerStatuses", Kind::kMessages, kContainerFields}};

std::optional<int> ParseNumber(const kube::ObjectMeta& meta, const char* label, int least) {
  const auto found = meta.labels.find(label);
  if (found == meta.labels.end()) return std::nullopt;
  const std::string& text = found->second;
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least) return std::nullopt;
  return value;
}

std::optional<api::Role> ParseRole(const kube::ObjectMeta& meta) {
  const auto found = meta.labels.find(kRoleLabel);
  if (found == meta.labels.end()) return std::nullopt;
  for (const api::Role role : {api::Role::kCoordinator, api::Role::kParameterServer, api::Role::kWorker}) {
    if (api::ToString(role) == found->second) return role;
  }
  return std::nullopt;
}

// The last line that says something: the runtime appends the whole end of the log.
std::string LastLine(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  const std::size_t start = text.rfind('\n');
  if (start != std::string_view::npos) text.remove_prefix(start + 1);
  constexpr std::size_t kMost = 300;
  return std::string(text.substr(0, kMost));
}

struct ContainerStatus {
  const Json* json;
  std::string name;
  bool init;  // it runs before the others, or from then on beside them
};

// Init containers first, each list in the order of the specification.
std::vector<ContainerStatus> ReadStatuses(const Json& object) {
  std::vector<ContainerStatus> containers;
  for (const char* list : {"initContainerStatuses", "containerStatuses"}) {
    const Json* const statuses = Find(object, {"status", list});
    if (statuses == nullptr || !statuses->is_array()) continue;
    for (const Json& status : *statuses) {
      containers.push_back({&status, FindText(status, {"name"}), std::string_view(list) == "initContainerStatuses"});
    }
  }
  return containers;
}

bool IsOurs(const ContainerStatus& container) { return !container.init && container.name == kContainerName; }

bool HasFailed(const ContainerStatus& container) {
  return kube::FindInteger(*container.json, {"state", "terminated", "exitCode"}).value_or(0) != 0;
}

// It cannot start; not only because it is not its turn.
bool IsStuck(const ContainerStatus& container) {
  const std::string reason = FindText(*container.json, {"state", "waiting", "reason"});
  return !reason.empty() && reason != "PodInitializing" && reason != "ContainerCreating";
}

// Whose state says why a pod failed or does not start: ours, unless another one's does. Nobody who comes after an init
// container that failed has begun, and those before it that still ran were ended with it: so the last one is to blame.
const ContainerStatus* Explaining(const std::vector<ContainerStatus>& containers, const std::string& phase) {
  const auto ours = std::find_if(containers.begin(), containers.end(), IsOurs);
  const ContainerStatus* const otherwise = ours == containers.end() ? nullptr : &*ours;
  if (phase == "Pending") {
    const auto stuck = std::find_if(containers.begin(), containers.end(), IsStuck);
    return stuck == containers.end() ? otherwise : &*stuck;
  }
  if (phase != "Failed" || (otherwise != nullptr && HasFailed(*otherwise))) return otherwise;
  const auto beside = std::find_if(containers.begin(), containers.end(),
                                   [](const ContainerStatus& one) { return !one.init && HasFailed(one); });
  if (beside != containers.end()) return &*beside;
  const auto init = std::find_if(containers.rbegin(), containers.rend(), HasFailed);
  return init == containers.rend() ? otherwise : &*init;
}

void ReadState(const Json& container, Pod& pod) {
  if (const Json* terminated = Find(container, {"state", "terminated"})) {
    if (const auto code = kube::FindInteger(*terminated, {"exitCode"})) pod.exit_code = static_cast<int>(*code);
    pod.container_reason = FindText(*terminated, {"reason"});
    pod.container_message = LastLine(FindText(*terminated, {"message"}));
    pod.finished_time = kube::ParseTime(FindText(*terminated, {"finishedAt"}));
  } else if (const Json* waiting = Find(container, {"state", "waiting"})) {
    pod.waiting = true;
    pod.container_reason = FindText(*waiting, {"reason"});
    pod.container_message = LastLine(FindText(*waiting, {"message"}));
  }
}

std::string NameForPeople(const ContainerStatus& container) {
  return absl::StrCat(container.init ? "init container " : "container ", container.name);
}

void ReadContainers(const Json& object, Pod& pod) {
  const std::vector<ContainerStatus> containers = ReadStatuses(object);
  const ContainerStatus* initialises = nullptr;
  for (const ContainerStatus& container : containers) {
    if (IsOurs(container))
      pod.started_time = kube::ParseTime(FindText(*container.json, {"state", "running", "startedAt"}));
    if (Find(*container.json, {"state", "running"}) == nullptr) continue;
    pod.running_containers.push_back(container.name);
    if (container.init) initialises = &container;
  }
  const ContainerStatus* const explaining = Explaining(containers, pod.phase);
  if (explaining == nullptr) return;
  ReadState(*explaining->json, pod);
  if (!IsOurs(*explaining)) {
    pod.container = NameForPeople(*explaining);
  } else if (pod.waiting && pod.container_message.empty() && initialises != nullptr) {
    pod.container_message = absl::StrCat("the ", NameForPeople(*initialises), " runs");
  }
}

}  // namespace

kube::ProtobufFields PodFields() {
  static const ProtobufField fields[] = {{1, "metadata", Kind::kMessage, kube::MetadataFields()},
                                         {2, "spec", Kind::kMessage, kSpecFields},
                                         {3, "status", Kind::kMessage, kStatusFields}};
  return fields;
}

std::optional<Pod> DecodePod(const Json& object, const Pod* /*before*/) {
  Pod pod;
  pod.meta = kube::ReadMeta(object);
  const std::optional<api::Role> role = ParseRole(pod.meta);
  const std::optional<int> index = ParseNumber(pod.meta, kIndexLabel, 0);
  const std::optional<int> incarnation = ParseNumber(pod.meta, kIncarnationLabel, 1);
  if (!role || !index || !incarnation || pod.meta.uid.empty()) return std::nullopt;
  pod.role = *role;
  pod.index = *index;
  pod.incarnation = *incarnation;
  if (const auto name = pod.meta.labels.find(kJobNameLabel); name != pod.meta.labels.end()) pod.job_name = name->second;
  pod.meta.annotations.clear();
  pod.meta.labels.clear();
  pod.phase = FindText(object, {"status", "phase"});
  pod.node = FindText(object, {"spec", "nodeName"});
  pod.address = FindText(object, {"status", "podIP"});
  pod.reason = FindText(object, {"status", "reason"});
  pod.message = FindText(object, {"status", "message"});
  if (const Json* conditions = Find(object, {"status", "conditions"});
      conditions != nullptr && conditions->is_array()) {
    for (const Json& condition : *conditions) {
      PodCondition read{FindText(condition, {"type"}), FindText(condition, {"status"}), FindText(condition, {"reason"}),
                        FindText(condition, {"message"})};
      // Of one that failed a rule may name any.
      if (pod.phase == "Failed" || (read.type == "PodScheduled" && read.status != "True") ||
          read.type == "DisruptionTarget" || (read.type == "Ready" && read.status == "True")) {
        pod.conditions.push_back(std::move(read));
      }
    }
  }
  ReadContainers(object, pod);
  return pod;
}

bool HasEnded(const Pod& pod) { return pod.phase == "Succeeded" || pod.phase == "Failed"; }

planner::Instance ToInstance(const Pod& pod, bool ready) {
  planner::Instance instance;
  instance.uid = pod.meta.uid;
  instance.role = pod.role;
  instance.index = pod.index;
  instance.incarnation = pod.incarnation;
  // A phase of Unknown means that its node is silent: it may run.
  instance.phase = pod.phase == "Succeeded"                           ? planner::InstancePhase::kSucceeded
                   : pod.phase == "Failed"                            ? planner::InstancePhase::kFailed
                   : pod.phase == "Running" || pod.phase == "Unknown" ? planner::InstancePhase::kRunning
                                                                      : planner::InstancePhase::kPending;
  if (instance.phase == planner::InstancePhase::kPending) instance.waiting_reason = WaitingReason(pod);
  instance.terminating = pod.meta.deletion_time.has_value() && !HasEnded(pod);
  if (instance.terminating) {
    instance.terminating_since = *pod.meta.deletion_time - pod.meta.deletion_grace_seconds.value_or(0);
  }
  instance.ready = ready && instance.phase == planner::InstancePhase::kRunning;
  instance.node = pod.node;
  if (!HasEnded(pod)) instance.running_containers = pod.running_containers;
  instance.created_time = pod.meta.creation_time.value_or(0);
  instance.started_time = pod.started_time;
  if (HasEnded(pod)) {
    instance.finished_time = pod.finished_time;
    instance.exit_code = pod.exit_code;
    // What the platform says of the pod goes before what it says of the container.
    instance.reason = !pod.reason.empty() ? pod.reason : pod.container_reason;
    if (pod.phase == "Failed") instance.last_log_line = pod.container_message;
  }
  instance.container = pod.container;
  for (const PodCondition& condition : pod.conditions) {
    instance.conditions.push_back({condition.type, condition.status});
    if (condition.type == "DisruptionTarget") instance.disruption = condition.reason;
  }
  return instance;
}

std::string WaitingReason(const Pod& pod) {
  for (const PodCondition& condition : pod.conditions) {
    if (condition.type == "PodScheduled" && condition.status == "False") {
      return absl::StrCat(condition.reason, ": ", condition.message);
    }
  }
  if (!pod.waiting || pod.container_reason.empty()) return "";
  std::string reason = pod.container_reason;
  for (const std::string& more : {pod.container, pod.container_message}) {
    if (!more.empty()) absl::StrAppend(&reason, ": ", more);
  }
  return reason;
}

}  // namespace downpour::controller
