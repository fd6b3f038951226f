#include "operator/planner/plan.h"

#include <algorithm>
#include <utility>

#include "operator/planner/avoid_nodes.h"
#include "operator/planner/checkpoint.h"
#include "operator/planner/cleanup.h"
#include "operator/planner/context.h"
#include "operator/planner/deadline.h"
#include "operator/planner/disruption.h"
#include "operator/planner/elastic.h"
#include "operator/planner/failure.h"
#include "operator/planner/leaving.h"
#include "operator/planner/output.h"
#include "operator/planner/placement.h"
#include "operator/planner/status.h"
#include "operator/planner/success.h"
#include "operator/planner/suspend.h"

namespace downpour::planner {
namespace {

// A job whose templates the platform refuses does not start; whoever asks the platform asks again.
bool TemplatesAreValid(Context& context) {
  if (context.observed.templates_unchecked) return false;
  const std::string& error = context.observed.template_error;
  if (error.empty()) {
    context.ClearCondition(kTemplateInvalid, "Accepted", "the platform accepts the templates");
    return true;
  }
  if (!IsTrue(context.status, kTemplateInvalid)) context.Emit(true, "TemplateInvalid", error);
  context.SetCondition(kTemplateInvalid, true, "Refused", error);
  return false;
}

void Begin(Context& context) {
  if (context.status.start_time) return;
  // Somebody may have begun who did not come to say so.
  for (const Instance& instance : context.observed.instances) {
    int& given_out = context.status.incarnations[InstanceName(instance.role, instance.index)];
    given_out = std::max(given_out, instance.incarnation);
  }
  AnnounceOutput(context);
  AnnounceCheckpoints(context);
  context.status.start_time = context.now;
  context.status.last_progress_time = context.now;
  context.status.last_progress_step = 0;
}

// One pass over a job that neither has ended nor is ending.
void Drive(Context& context) {
  DetectOutcome(context);
  if (IsTrue(context.status, kSuccessCriteriaMet)) return;
  if (!IsTrue(context.status, kFailureTarget) && Suspend(context)) return;
  if (!context.status.start_time && !TemplatesAreValid(context)) return;
  Begin(context);
  for (const auto check :
       {CheckActiveDeadline, ForgetNodeFaults, CountFailures, Resize, CheckPendingTimeouts, CheckProgressDeadline}) {
    if (!IsTrue(context.status, kFailureTarget)) check(context);
  }
  if (IsTrue(context.status, kFailureTarget)) {
    context.StopAll(FindCondition(context.status, kFailureTarget)->message);
    context.WakeAt(context.now);
  } else if (IsTrue(context.status, kRestarting)) {
    StopAndAccount(context, "the job is restarted");
    context.WakeAt(context.now);
  } else {
    Place(context);
  }
}

}  // namespace

Plan MakePlan(const api::TrainingJob& job, const Observed& observed, double now) {
  Context context(job, observed, now);
  if (IsOver(job.status)) {
    FollowKeptModel(context);
    for (const Instance& instance : observed.instances) {
      if (!KeepsModel(context, instance)) context.Stop(instance, "the job has ended");
    }
    CleanUp(context);
  } else if (observed.deletion_requested) {
    context.StopAll("the job is deleted");
  } else if (IsTrue(job.status, kSuccessCriteriaMet)) {
    Finish(context);
  } else if (IsTrue(job.status, kFailureTarget)) {
    Abort(context);
  } else {
    Drive(context);
  }
  UpdateStatus(context);

  Plan plan;
  if (!IsOver(job.status)) {
    ChooseLeaving(context);
    if (ProtectParameterServers(context)) {
      plan.protected_ps = ProtectedPs{.count = CountProtected(context), .free = FreeParameterServers(context)};
    }
  }
  if (context.status != job.status) {
    Action store;
    store.type = ActionType::kStoreStatus;
    plan.actions.push_back(store);
  }
  plan.actions.insert(plan.actions.end(), context.actions.begin(), context.actions.end());
  plan.status = std::move(context.status);
  plan.events = std::move(context.events);
  plan.requeue_after = context.requeue_after;
  return plan;
}

}  // namespace downpour::planner
