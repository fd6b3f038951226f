#include "operator/planner/context.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace downpour::planner {
namespace {

// A forced stop that changed nothing is repeated after this time.
constexpr double kForceStopRetrySeconds = 10;
constexpr std::size_t kMostNames = 3;  // in a sentence

const char* RoleName(api::Role role) {
  switch (role) {
    case api::Role::kCoordinator:
      return "coordinator";
    case api::Role::kParameterServer:
      return "ps";
    case api::Role::kWorker:
      break;
  }
  return "worker";
}

}  // namespace

std::string InstanceName(api::Role role, int index) { return absl::StrCat(RoleName(role), "-", index); }

const char* EventPrefix(api::Role role) {
  switch (role) {
    case api::Role::kCoordinator:
      return "Coordinator";
    case api::Role::kParameterServer:
      return "Ps";
    case api::Role::kWorker:
      break;
  }
  return "Worker";
}

bool IsLive(const Instance& instance) {
  return instance.phase == InstancePhase::kPending || instance.phase == InstancePhase::kRunning;
}

std::string WhatIsLive(const std::vector<Instance>& instances) {
  std::vector<std::string> names;
  int more = 0;
  for (const Instance& instance : instances) {
    if (!IsLive(instance)) continue;
    if (names.size() == kMostNames) {
      ++more;
      continue;
    }
    std::string& name = names.emplace_back(InstanceName(instance.role, instance.index));
    const std::vector<std::string>& containers = instance.running_containers;
    if (containers.empty()) continue;
    absl::StrAppend(&name, " (container", containers.size() == 1 ? " " : "s ", absl::StrJoin(containers, ", "), ")");
  }
  return absl::StrCat(absl::StrJoin(names, ", "), more == 0 ? "" : absl::StrCat(" and ", more, " more"));
}

int DesiredReplicas(const api::TrainingJobSpec& spec, api::Role role) {
  switch (role) {
    case api::Role::kCoordinator:
      return 1;
    case api::Role::kParameterServer:
      return spec.parameter_server ? spec.parameter_server->replicas : 0;
    case api::Role::kWorker:
      break;
  }
  if (!spec.elastic.has_value()) return std::max(1, spec.worker.replicas);
  return std::clamp(spec.worker.replicas, spec.elastic->min_replicas,
                    std::max(spec.elastic->min_replicas, spec.elastic->max_replicas));
}

bool HasStandbys(const api::TrainingJobSpec& spec) {
  return spec.parameter_server.has_value() && spec.parameter_server->replication_factor > 1;
}

const api::RoleStatus& RoleStatusOf(const api::TrainingJobStatus& status, api::Role role) {
  switch (role) {
    case api::Role::kCoordinator:
      return status.coordinator;
    case api::Role::kParameterServer:
      return status.parameter_server;
    case api::Role::kWorker:
      break;
  }
  return status.worker;
}

api::RoleStatus& RoleStatusOf(api::TrainingJobStatus& status, api::Role role) {
  return const_cast<api::RoleStatus&>(RoleStatusOf(std::as_const(status), role));
}

Action MakeAction(ActionType type, const Instance& instance, std::string reason) {
  Action action;
  action.type = type;
  action.role = instance.role;
  action.index = instance.index;
  action.incarnation = instance.incarnation;
  action.uid = instance.uid;
  action.reason = std::move(reason);
  return action;
}

Context::Context(const api::TrainingJob& job_in, const Observed& observed_in, double now_in)
    : job(job_in), observed(observed_in), now(now_in), status(job_in.status) {
  status.observed_generation = job.metadata.generation;
  std::erase_if(status.counted_uids, [this](const std::string& uid) {
    return std::none_of(observed.instances.begin(), observed.instances.end(),
                        [&uid](const Instance& instance) { return instance.uid == uid; });
  });
}

void Context::WakeAt(double time) {
  const double delay = std::max(0.0, time - now);
  requeue_after = requeue_after ? std::min(*requeue_after, delay) : delay;
}

void Context::Emit(bool warning, std::string reason, std::string message) {
  events.push_back({warning, std::move(reason), std::move(message)});
}

const CoordinatorReport* Context::report() const {
  if (!observed.report || !status.start_time || observed.report->received_time <= *status.start_time) return nullptr;
  return &*observed.report;
}

const Instance* Context::LiveInstance(api::Role role, int index) const {
  const Instance* newest = nullptr;
  for (const Instance& instance : observed.instances) {
    if (instance.role != role || instance.index != index || !IsLive(instance)) continue;
    if (newest == nullptr || instance.incarnation > newest->incarnation) newest = &instance;
  }
  return newest;
}

bool Context::AnyLive() const { return std::any_of(observed.instances.begin(), observed.instances.end(), IsLive); }

bool Context::IsAccounted(const Instance& instance) const {
  return std::find(status.counted_uids.begin(), status.counted_uids.end(), instance.uid) != status.counted_uids.end();
}

void Context::Account(const Instance& instance) {
  if (!IsAccounted(instance)) status.counted_uids.push_back(instance.uid);
}

void Context::Stop(const Instance& instance, std::string reason) {
  if (!IsLive(instance)) return;
  Action action = MakeAction(ActionType::kStop, instance, std::move(reason));
  if (instance.terminating) {
    if (!instance.terminating_since) return;
    const double deadline = *instance.terminating_since + job.spec.failure_policy.termination_timeout_seconds;
    if (now < deadline) {
      WakeAt(deadline);
      return;
    }
    action.type = ActionType::kForceStop;
    action.reason = absl::StrCat("still there ", job.spec.failure_policy.termination_timeout_seconds,
                                 " s after it was asked to stop");
    WakeAt(now + kForceStopRetrySeconds);
  }
  actions.push_back(std::move(action));
}

void Context::StopAll(const std::string& reason) {
  for (const Instance& instance : observed.instances) Stop(instance, reason);
}

void Context::SetCondition(std::string_view type, bool value, std::string reason, std::string message) {
  auto found = std::find_if(status.conditions.begin(), status.conditions.end(),
                            [type](const api::Condition& condition) { return condition.type == type; });
  if (found == status.conditions.end()) {
    found = status.conditions.insert(status.conditions.end(), api::Condition());
    found->type = std::string(type);
    found->last_transition_time = now;
  } else if (found->status != value) {
    found->last_transition_time = now;
  }
  found->status = value;
  found->reason = std::move(reason);
  found->message = std::move(message);
  found->observed_generation = job.metadata.generation;
}

void Context::ClearCondition(std::string_view type, std::string reason, std::string message) {
  if (IsTrue(status, type)) SetCondition(type, false, std::move(reason), std::move(message));
}

void Context::FailJob(std::string reason, std::string message) {
  if (IsTrue(status, kFailureTarget)) return;
  Emit(true, "JobFailing", message);
  SetCondition(kFailureTarget, true, std::move(reason), std::move(message));
}

}  // namespace downpour::planner
