#include "operator/planner/suspend.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "operator/planner/checkpoint.h"
#include "operator/planner/elastic.h"
#include "operator/planner/status.h"

namespace downpour::planner {
namespace {

// What becomes of what was trained where the newest checkpoint does not hold all of it.
std::string Loss(const Context& context) {
  const std::optional<api::CheckpointStatus>& known = context.status.checkpoint;
  if (!known.has_value() || known->newest.empty()) return "its progress is lost, as there is no checkpoint yet";
  std::string age;
  if (known->time.has_value()) {
    age = absl::StrCat(", ", std::llround(std::max(0.0, context.now - *known->time)), " s old");
  }
  return absl::StrCat("progress since the newest checkpoint is lost: ", known->newest, " (update ", known->updates, age,
                      ")");
}

// Whether there is something to save, and somebody to do it.
bool CanMakeCheckpoint(const Context& context) {
  return TrainingHasBegun(context) && !IsTrue(context.status, kParametersLost) && HoldersWork(context) &&
         IsWorking(context.LiveInstance(api::Role::kCoordinator, 0));
}

// What a suspension means, once it may happen; nothing while a checkpoint is made before.
std::optional<std::string> SuspensionMessage(Context& context) {
  if (!context.status.start_time) return "the job is suspended before its start";
  if (!context.job.spec.checkpoint.has_value()) {
    return "the job is suspended; its progress is lost since no checkpoint is configured";
  }
  if (!CanMakeCheckpoint(context)) {
    return TrainingHasBegun(context) ? absl::StrCat("the job is suspended while it recovers; ", Loss(context))
                                     : "the job is suspended before it trained";
  }
  const RequestOutcome outcome =
      WantCheckpoint(context, kSuspendRequest, absl::StrCat(kSuspendRequest, context.job.metadata.generation));
  switch (outcome) {
    case RequestOutcome::kPending:
      return std::nullopt;
    case RequestOutcome::kMade: {
      const CheckpointReport& made = *context.observed.report->checkpoint;
      return absl::StrCat("the job is suspended; it goes on from ", made.newest, " (update ", made.updates, ")");
    }
    case RequestOutcome::kNotMade:
    case RequestOutcome::kLate:
      break;
  }
  return absl::StrCat("the job is suspended although ", WhyNotMade(context, outcome), "; ", Loss(context));
}

}  // namespace

void StopAndAccount(Context& context, const std::string& reason) {
  for (const Instance& instance : context.observed.instances) context.Account(instance);
  context.StopAll(reason);
}

bool Suspend(Context& context) {
  if (context.job.spec.suspend) {
    if (!IsTrue(context.status, kSuspended)) {
      UpdateCheckpoint(context);  // from then on nothing is heard of this coordinator
      const std::optional<std::string> message = SuspensionMessage(context);
      if (!message.has_value()) {
        context.SetCondition(kSuspended, false, kMakingCheckpoint, "making a checkpoint before it is suspended");
        return true;
      }
      context.SetCondition(kSuspended, true, "SuspendRequested", *message);
      context.Emit(false, "JobSuspended", *message);
      for (const char* type : {kRestarting, kRecovering, kParametersLost, kResumed, kProtected, kRingFormed}) {
        context.ClearCondition(type, "Suspended", *message);
      }
      context.status.checkpoint_request.reset();
      // It neither goes on nor is over.
      if (context.status.recovery.has_value() && !context.status.recovery->last_duration_seconds.has_value()) {
        context.status.recovery.reset();
      }
      ForgetAbsences(context);
      context.status.start_time.reset();
      context.status.last_progress_time.reset();
      context.status.last_progress_step = 0;
      context.status.progress.reset();
      context.status.slices.reset();
      context.status.ring.reset();
    }
    StopAndAccount(context, "the job is suspended");
    return true;
  }
  if (IsWanted(context.status, kSuspendRequest)) {
    UnwantCheckpoint(context, kSuspendRequest);
    WaitAnew(context);  // nobody followed who came and went meanwhile
    context.SetCondition(kSuspended, false, "Resumed", "the job goes on");
  }
  const bool suspended = IsTrue(context.status, kSuspended);
  if (!suspended && !IsTrue(context.status, kRestarting)) return false;
  if (context.AnyLive()) {
    StopAndAccount(context, suspended ? "the job was suspended" : "the job is restarted");
    return true;
  }
  if (suspended) {
    context.ClearCondition(kSuspended, "Resumed", "the job starts anew");
    context.Emit(false, "JobResumed", "the job starts anew");
  }
  ForgetAbsences(context);
  for (const char* type : {kRestarting, kRecovering, kParametersLost, kResumed, kProtected, kRingFormed}) {
    context.ClearCondition(type, "StartedAnew", "the job starts anew");
  }
  return false;
}

}  // namespace downpour::planner
