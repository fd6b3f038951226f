#include "operator/controller/pod.h"

#include <charconv>
#include <string_view>
#include <utility>

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
constexpr ProtobufField kStatusFields[] = {
    {1, "phase", Kind::kText},   {2, "conditions", Kind::kMessages, kConditionFields},
    {3, "message", Kind::kText}, {4, "reason", Kind::kText},
    {6, "podIP", Kind::kText},   {8, "containerStatuses", Kind::kMessages, kContainerFields}};

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

// Of our container.
void ReadContainer(const Json& container, Pod& pod) {
  if (const Json* terminated = Find(container, {"state", "terminated"})) {
    if (const auto code = kube::FindInteger(*terminated, {"exitCode"})) pod.exit_code = static_cast<int>(*code);
    pod.container_reason = FindText(*terminated, {"reason"});
    pod.container_message = LastLine(FindText(*terminated, {"message"}));
    pod.finished_time = kube::ParseTime(FindText(*terminated, {"finishedAt"}));
  } else if (const Json* waiting = Find(container, {"state", "waiting"})) {
    pod.waiting = true;
    pod.container_reason = FindText(*waiting, {"reason"});
    pod.container_message = LastLine(FindText(*waiting, {"message"}));
  } else {
    pod.started_time = kube::ParseTime(FindText(container, {"state", "running", "startedAt"}));
  }
}

void ReadContainers(const Json& object, Pod& pod) {
  const Json* statuses = Find(object, {"status", "containerStatuses"});
  if (statuses == nullptr || !statuses->is_array()) return;
  for (const Json& status : *statuses) {
    std::string name = FindText(status, {"name"});
    if (name == kContainerName) ReadContainer(status, pod);
    if (Find(status, {"state", "running"}) != nullptr) pod.running_containers.push_back(std::move(name));
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
  if (HasEnded(pod)) {
    instance.finished_time = pod.finished_time;
    instance.exit_code = pod.exit_code;
    // What the platform says of the pod goes before what it says of the container.
    instance.reason = !pod.reason.empty() ? pod.reason : pod.container_reason;
    if (pod.phase == "Failed") instance.last_log_line = pod.container_message;
  }
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
  return pod.container_message.empty() ? pod.container_reason
                                       : absl::StrCat(pod.container_reason, ": ", pod.container_message);
}

}  // namespace downpour::controller
