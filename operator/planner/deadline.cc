#include "operator/planner/deadline.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "operator/planner/failure.h"

namespace downpour::planner {
namespace {

constexpr double kLongestProgressInterval = 10;

}  // namespace

void CheckActiveDeadline(Context& context) {
  if (!context.job.spec.active_deadline_seconds || !context.status.start_time) return;
  const int seconds = *context.job.spec.active_deadline_seconds;
  const double deadline = *context.status.start_time + seconds;
  if (context.now < deadline) {
    context.WakeAt(deadline);
    return;
  }
  context.FailJob("DeadlineExceeded", absl::StrCat("the job did not finish within activeDeadlineSeconds = ", seconds));
}

void CheckProgressDeadline(Context& context) {
  api::TrainingJobStatus& status = context.status;
  const int seconds = context.job.spec.progress_deadline_seconds;
  const double interval = seconds > 0 ? std::min(kLongestProgressInterval, seconds / 10.0) : kLongestProgressInterval;
  if (!status.last_progress_time) status.last_progress_time = context.now;

  if (const CoordinatorReport* report = context.report()) {
    const bool advanced = report->updates_applied > status.last_progress_step;
    const double progress_time = std::min(report->received_time, context.now);
    if (advanced && (status.last_progress_step == 0 || progress_time >= *status.last_progress_time + interval)) {
      status.last_progress_step = report->updates_applied;
      status.last_progress_time = std::max(progress_time, *status.last_progress_time);
    } else if (report->phase == CoordinatorPhase::kTraining && report->updates_applied < status.last_progress_step) {
      // A new generation counts from the beginning; that it does is no progress.
      status.last_progress_step = report->updates_applied;
    }
  }

  if (seconds <= 0) return;
  double deadline = *status.last_progress_time + seconds + interval;
  // What was heard before says nothing of the time until then.
  const bool heard = context.report() != nullptr && context.report()->received_time >= deadline;
  if (!heard) deadline = std::max(deadline, context.observed.answer_due);
  if (context.now < deadline) {
    context.WakeAt(deadline);
    return;
  }
  const std::string message = absl::StrCat("no update was applied for progressDeadlineSeconds = ", seconds);
  api::FailureRecord record;
  record.time = context.now;
  record.role = api::Role::kCoordinator;
  record.cause = "Hang";
  record.action = "FailJob";
  record.counted = false;
  record.message = message;
  AppendFailure(status, record);
  context.FailJob("ProgressDeadlineExceeded", message);
}

void CheckPendingTimeouts(Context& context) {
  const int seconds = context.job.spec.failure_policy.pending_timeout_seconds;
  if (seconds <= 0) return;
  for (const Instance& instance : context.observed.instances) {
    if (IsTrue(context.status, kFailureTarget)) return;
    if (instance.phase != InstancePhase::kPending || instance.terminating || context.IsAccounted(instance)) continue;
    const double deadline = instance.created_time + seconds;
    if (context.now < deadline) {
      context.WakeAt(deadline);
      continue;
    }
    // Accounted and alive: placement stops it, and goes on doing so until it is gone.
    context.Account(instance);
    // What it waited for is why it did not start.
    Instance ended = instance;
    ended.reason = instance.waiting_reason.substr(0, instance.waiting_reason.find(':'));
    std::string description = absl::StrCat("pending for more than ", seconds, " s");
    if (!instance.waiting_reason.empty()) absl::StrAppend(&description, ": ", instance.waiting_reason);
    RecordFailure(context, ended, {"PendingTimeout", std::move(description), false});
  }
}

}  // namespace downpour::planner
