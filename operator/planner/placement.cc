#include "operator/planner/placement.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "operator/planner/avoid_nodes.h"
#include "operator/planner/elastic.h"
#include "operator/planner/failure.h"
#include "operator/planner/leaving.h"

namespace downpour::planner {
namespace {

void Start(Context& context, api::Role role, int index) {
  const std::string name = InstanceName(role, index);
  int& incarnation = context.status.incarnations[name];
  for (const Instance& instance : context.observed.instances) {
    if (instance.role == role && instance.index == index) incarnation = std::max(incarnation, instance.incarnation);
  }
  const bool first = incarnation == 0;
  ++incarnation;
  Action start;
  start.type = ActionType::kStart;
  start.role = role;
  start.index = index;
  start.incarnation = incarnation;
  start.reason = first ? "first start" : "replacement";
  start.avoid_nodes = AvoidedNodes(context.status);
  context.actions.push_back(start);
  if (first) return;
  if (role == api::Role::kWorker) NoteStart(context, index);
  // What was given up, or refused, and is tried again is no news until it runs.
  if (!IsRetried(context.status, role, index) && !context.observed.obstacle.has_value()) {
    context.Emit(false, absl::StrCat(EventPrefix(role), "Replaced"),
                 absl::StrCat(name, " is started again as incarnation ", incarnation));
  }
}

// Ends what keeps this role and index from a start; true if nothing does.
bool IsVacant(Context& context, api::Role role, int index) {
  const Instance* current = context.LiveInstance(role, index);
  bool vacant = true;
  for (const Instance& instance : context.observed.instances) {
    if (instance.role != role || instance.index != index) continue;
    if (!IsLive(instance)) {
      vacant = vacant && context.IsAccounted(instance);
      continue;
    }
    vacant = false;
    if (&instance != current) {
      context.Account(instance);
      context.Stop(instance, "a newer incarnation runs");
    } else if (instance.terminating || context.IsAccounted(instance)) {
      context.Stop(instance, "it is to be replaced");
    }
  }
  return vacant;
}

// Ends parameter servers that the job wants no more: not before they hold nothing.
void EndNeedlessPs(Context& context) {
  const int desired = DesiredReplicas(context.job.spec, api::Role::kParameterServer);
  for (const Instance& instance : context.observed.instances) {
    if (instance.role != api::Role::kParameterServer || instance.index < desired) continue;
    // One that somebody else ends, or that never began to run, has nothing to be kept for either.
    const bool lost = instance.terminating || instance.phase == InstancePhase::kPending;
    if (HoldsNothing(context, instance.index)) {
      context.Account(instance);
    } else if (!lost || !context.IsAccounted(instance)) {
      continue;
    }
    context.Stop(instance, absl::StrCat("the job wants ", desired, " parameter servers"));
  }
}

}  // namespace

void Place(Context& context) {
  EndNeedlessPs(context);
  for (const Instance& instance : context.observed.instances) {
    const int desired = DesiredReplicas(context.job.spec, instance.role);
    const bool parked = IsParked(context.status, instance.role, instance.index);
    if (instance.role != api::Role::kWorker || (instance.index < desired && !parked)) continue;
    context.Account(instance);
    context.Stop(instance, parked ? "it did not start in time" : absl::StrCat("the job wants ", desired, " workers"));
  }
  for (const api::Role role : kStartOrder) {
    const int desired = DesiredReplicas(context.job.spec, role);
    for (int index = 0; index < desired; ++index) {
      if (IsParked(context.status, role, index) || !IsVacant(context, role, index)) continue;
      const double earliest =
          std::max(EarliestStart(context.status, context.job.spec.failure_policy, role, index, context.now),
                   context.observed.starts_held_until);
      if (earliest > context.now) {
        context.WakeAt(earliest);
      } else {
        Start(context, role, index);
      }
    }
  }
}

}  // namespace downpour::planner
