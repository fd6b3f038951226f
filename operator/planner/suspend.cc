#include "operator/planner/suspend.h"

#include "operator/planner/elastic.h"

namespace downpour::planner {
namespace {

std::string SuspensionMessage(const Context& context) {
  if (!context.status.start_time) return "the job is suspended before its start";
  return context.job.spec.checkpoint ? "the job is suspended; progress since the last checkpoint is lost"
                                     : "the job is suspended; its progress is lost since no checkpoint is configured";
}

}  // namespace

void StopAndAccount(Context& context, const std::string& reason) {
  for (const Instance& instance : context.observed.instances) context.Account(instance);
  context.StopAll(reason);
}

bool Suspend(Context& context) {
  if (context.job.spec.suspend) {
    if (!IsTrue(context.status, kSuspended)) {
      const std::string message = SuspensionMessage(context);
      context.SetCondition(kSuspended, true, "SuspendRequested", message);
      context.Emit(false, "JobSuspended", message);
      for (const char* type : {kRestarting, kRecovering, kParametersLost}) {
        context.ClearCondition(type, "Suspended", message);
      }
      ForgetAbsences(context);
      context.status.start_time.reset();
      context.status.last_progress_time.reset();
      context.status.last_progress_step = 0;
      context.status.progress.reset();
    }
    StopAndAccount(context, "the job is suspended");
    return true;
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
  for (const char* type : {kRestarting, kRecovering, kParametersLost}) {
    context.ClearCondition(type, "StartedAnew", "the job starts anew");
  }
  return false;
}

}  // namespace downpour::planner
