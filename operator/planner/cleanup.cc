#include "operator/planner/cleanup.h"

#include <optional>

#include "absl/strings/str_cat.h"

namespace downpour::planner {
namespace {

// What runs is stopped in any case; this is about what has ended.
bool IsRemoved(api::CleanupPolicy policy, const Instance& instance) {
  switch (policy) {
    case api::CleanupPolicy::kAll:
      return true;
    case api::CleanupPolicy::kKeepFailed:
      return instance.phase != InstancePhase::kFailed;
    case api::CleanupPolicy::kRunning:
    case api::CleanupPolicy::kNone:
      return false;
  }
  return false;
}

api::CleanupPolicy PolicyOf(const api::PodCleanup& cleanup, api::Role role, bool succeeded) {
  const std::optional<api::RoleCleanup>& own = role == api::Role::kCoordinator       ? cleanup.coordinator
                                               : role == api::Role::kParameterServer ? cleanup.parameter_server
                                                                                     : cleanup.worker;
  const api::CleanupPolicy policy = succeeded ? cleanup.on_success : cleanup.on_failure;
  return own.has_value() ? (succeeded ? own->on_success : own->on_failure).value_or(policy) : policy;
}

}  // namespace

void CleanUp(Context& context) {
  const bool succeeded = IsTrue(context.status, kComplete);
  for (const Instance& instance : context.observed.instances) {
    if (IsLive(instance) || !IsRemoved(PolicyOf(context.job.spec.pod_cleanup, instance.role, succeeded), instance)) {
      continue;
    }
    context.actions.push_back(MakeAction(ActionType::kRemove, instance, "the job has ended"));
  }
  if (!context.job.spec.ttl_seconds_after_finished || !context.status.completion_time) return;
  const int seconds = *context.job.spec.ttl_seconds_after_finished;
  const double end = *context.status.completion_time + seconds;
  if (context.now < end) {
    context.WakeAt(end);
    return;
  }
  Action remove;
  remove.type = ActionType::kDeleteJob;
  remove.reason = absl::StrCat("ttlSecondsAfterFinished = ", seconds);
  context.actions.push_back(remove);
}

}  // namespace downpour::planner
