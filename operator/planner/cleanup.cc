#include "operator/planner/cleanup.h"

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

}  // namespace

void CleanUp(Context& context) {
  const bool succeeded = IsTrue(context.status, kComplete);
  const api::PodCleanup& cleanup = context.job.spec.pod_cleanup;
  for (const Instance& instance : context.observed.instances) {
    if (IsLive(instance) || !IsRemoved(succeeded ? cleanup.on_success : cleanup.on_failure, instance)) continue;
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
