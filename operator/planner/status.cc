#include "operator/planner/status.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace downpour::planner {
namespace {

// The reason of ParametersLost carries the generation that was lost, as nothing else in the status does; without a
// number where the coordinator never said it.
constexpr char kPsLostInGeneration[] = "PsLostInGeneration";

std::uint64_t LostGeneration(const api::Condition& lost) {
  const std::string_view prefix = kPsLostInGeneration;
  std::uint64_t generation = 0;
  if (lost.reason.compare(0, prefix.size(), prefix) == 0) {
    std::from_chars(lost.reason.data() + prefix.size(), lost.reason.data() + lost.reason.size(), generation);
  }
  return generation;
}

bool IsWorking(const Instance* instance) {
  return instance != nullptr && instance->phase == InstancePhase::kRunning && !instance->terminating;
}

bool EveryPsWorks(const Context& context) {
  const int desired = DesiredReplicas(context.job.spec, api::Role::kParameterServer);
  for (int index = 0; index < desired; ++index) {
    if (!IsWorking(context.LiveInstance(api::Role::kParameterServer, index))) return false;
  }
  return true;
}

// The report if the coordinator that runs now gave it.
const CoordinatorReport* CurrentReport(const Context& context) {
  const CoordinatorReport* report = context.report();
  const Instance* coordinator = context.LiveInstance(api::Role::kCoordinator, 0);
  if (report == nullptr || !IsWorking(coordinator) || report->received_time < coordinator->created_time) return nullptr;
  return report;
}

// The same if it says that training goes on or is over.
const CoordinatorReport* TrainingReport(const Context& context) {
  const CoordinatorReport* report = CurrentReport(context);
  if (report == nullptr) return nullptr;
  const bool trains = report->phase == CoordinatorPhase::kTraining || report->phase == CoordinatorPhase::kFinishing ||
                      report->phase == CoordinatorPhase::kDone;
  return trains ? report : nullptr;
}

void UpdateParametersLost(Context& context) {
  const api::Condition* lost = FindCondition(context.status, kParametersLost);
  const CoordinatorReport* report = TrainingReport(context);
  if (lost == nullptr || !lost->status || report == nullptr || report->received_time <= lost->last_transition_time ||
      !EveryPsWorks(context)) {
    return;
  }
  // A coordinator that was lost as well knows nothing of earlier generations and may count from the first again.
  const bool same_coordinator =
      context.LiveInstance(api::Role::kCoordinator, 0)->created_time <= lost->last_transition_time;
  if (same_coordinator && report->generation <= LostGeneration(*lost)) return;
  const std::string message = absl::StrCat("training started again under generation ", report->generation);
  context.Emit(false, "TrainingStartedAgain", message);
  context.ClearCondition(kParametersLost, "TrainingStartedAgain", message);
}

void UpdateRecovering(Context& context) {
  const CoordinatorReport* report = CurrentReport(context);
  if (report != nullptr && report->phase == CoordinatorPhase::kRecovering && !IsTrue(context.status, kRecovering)) {
    context.SetCondition(kRecovering, true, "CoordinatorRecovering", report->message);
    return;
  }
  const api::Condition* recovering = FindCondition(context.status, kRecovering);
  if (recovering == nullptr || !recovering->status || IsTrue(context.status, kParametersLost)) return;
  const CoordinatorReport* training = TrainingReport(context);
  if (training == nullptr || training->received_time <= recovering->last_transition_time || !EveryPsWorks(context)) {
    return;
  }
  context.Emit(false, "Recovered", "the coordinator reports training again");
  context.ClearCondition(kRecovering, "Recovered", "the coordinator reports training again");
}

void UpdateRoleCounts(Context& context) {
  for (const api::Role role : kStartOrder) {
    api::RoleStatus& counts = RoleStatusOf(context.status, role);
    const int restarts = counts.restarts;
    counts = {};
    counts.restarts = restarts;
    counts.desired = DesiredReplicas(context.job.spec, role);
    for (int index = 0; index < counts.desired; ++index) {
      // A live instance stands for its index; where there is none, the newest one that ended does.
      const Instance* current = context.LiveInstance(role, index);
      for (const Instance& instance : context.observed.instances) {
        if (instance.role != role || instance.index != index || (current != nullptr && IsLive(*current))) continue;
        if (current == nullptr || instance.incarnation > current->incarnation) current = &instance;
      }
      if (current == nullptr) continue;
      if (current->phase == InstancePhase::kSucceeded) {
        ++counts.succeeded;
      } else if (current->phase == InstancePhase::kFailed) {
        ++counts.failed;
      } else if (current->terminating) {
        ++counts.terminating;
      } else {
        if (current->phase == InstancePhase::kPending) ++counts.pending;
        if (current->phase == InstancePhase::kRunning && current->ready) ++counts.ready;
        if (!context.IsAccounted(*current)) ++counts.replicas;
      }
    }
  }
}

void UpdateReady(Context& context) {
  const api::RoleStatus& ps = context.status.parameter_server;
  const api::RoleStatus& worker = context.status.worker;
  const bool members = ps.ready == ps.desired && worker.ready == worker.desired;
  const bool trains = TrainingReport(context) != nullptr;
  const bool ready =
      members && trains && !IsTrue(context.status, kFailureTarget) && !context.observed.deletion_requested;
  context.SetCondition(kReady, ready,
                       ready     ? "AllMembersReady"
                       : members ? "NotTraining"
                                 : "MembersMissing",
                       absl::StrCat("ps ", ps.ready, "/", ps.desired, ", workers ", worker.ready, "/", worker.desired));
}

// What the condition of this type gives as its reason.
std::string ReasonOf(const Context& context, std::string_view type) {
  return FindCondition(context.status, type)->reason;
}

void UpdatePhase(Context& context) {
  api::TrainingJobStatus& status = context.status;
  status.reason.clear();
  const auto enter = [&status](std::string phase, std::string reason) {
    status.phase = std::move(phase);
    status.reason = std::move(reason);
  };
  if (IsTrue(status, kComplete)) return enter("Succeeded", "");
  if (IsTrue(status, kFailed)) return enter("Failed", ReasonOf(context, kFailed));
  if (IsTrue(status, kSuccessCriteriaMet)) return enter("Finishing", "");
  if (IsTrue(status, kFailureTarget)) return enter("Finishing", ReasonOf(context, kFailureTarget));
  if (IsTrue(status, kSuspended)) return enter("Suspended", ReasonOf(context, kSuspended));
  if (IsTrue(status, kRestarting)) return enter("Recovering", ReasonOf(context, kRestarting));
  if (IsTrue(status, kRecovering)) return enter("Recovering", ReasonOf(context, kRecovering));
  if (const CoordinatorReport* report = TrainingReport(context)) {
    return enter(report->phase == CoordinatorPhase::kTraining ? "Running" : "Finishing", "");
  }
  const bool any_runs = std::any_of(context.observed.instances.begin(), context.observed.instances.end(),
                                    [](const Instance& instance) { return instance.phase == InstancePhase::kRunning; });
  enter(any_runs ? "Starting" : "Pending", "");
}

}  // namespace

bool TrainingHasBegun(const Context& context) {
  if (context.status.last_progress_step > 0) return true;
  const CoordinatorReport* report = context.report();
  return report != nullptr &&
         (report->phase == CoordinatorPhase::kRecovering || report->phase == CoordinatorPhase::kTraining ||
          report->phase == CoordinatorPhase::kFinishing);
}

void ReportParametersLost(Context& context, const std::string& what) {
  const std::string message =
      context.job.spec.checkpoint
          ? absl::StrCat("parameters were lost: ", what,
                         "; training goes back to the last checkpoint under a new generation")
          : absl::StrCat("parameters were lost: ", what,
                         " and no checkpoint is configured; training starts again from the beginning under a new "
                         "generation");
  context.Emit(true, "PsLost", message);
  const CoordinatorReport* report = context.report();
  context.SetCondition(kParametersLost, true,
                       report == nullptr ? "PsLost" : absl::StrCat(kPsLostInGeneration, report->generation), message);
}

void UpdateStatus(Context& context) {
  UpdateRoleCounts(context);
  UpdateParametersLost(context);
  UpdateRecovering(context);
  UpdateReady(context);
  UpdatePhase(context);
}

}  // namespace downpour::planner
