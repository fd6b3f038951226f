#ifndef DOWNPOUR_OPERATOR_PLANNER_CONTEXT_H_
#define DOWNPOUR_OPERATOR_PLANNER_CONTEXT_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "operator/planner/conditions.h"
#include "operator/planner/plan.h"

// What the policies of one planning pass share. Internal to the planner.
namespace downpour::planner {

// Every role, in the order of starting.
inline constexpr api::Role kStartOrder[] = {api::Role::kCoordinator, api::Role::kParameterServer, api::Role::kWorker};

// "coordinator-0", "ps-1", "worker-2".
std::string InstanceName(api::Role role, int index);

// "Coordinator", "Ps", "Worker": the beginning of event reasons.
const char* EventPrefix(api::Role role);

// Pending or running, terminating or not: it may still act.
bool IsLive(const Instance& instance);

// Those that have not ended, and what of them runs: "worker-0 (container sidecar), ps-0"; a few, and how many more.
std::string WhatIsLive(const std::vector<Instance>& instances);

// Workers: within the elastic bounds, and at least 1. A scale outside of them is never refused.
int DesiredReplicas(const api::TrainingJobSpec& spec, api::Role role);

// Whether each slice is to be held by more than one ps.
bool HasStandbys(const api::TrainingJobSpec& spec);

api::RoleStatus& RoleStatusOf(api::TrainingJobStatus& status, api::Role role);
const api::RoleStatus& RoleStatusOf(const api::TrainingJobStatus& status, api::Role role);

// An action on an instance that is there.
Action MakeAction(ActionType type, const Instance& instance, std::string reason);

// One pass: the inputs, and the plan as far as it is made. Not thread-safe; keeps references to the inputs.
class Context {
 public:
  Context(const api::TrainingJob& job, const Observed& observed, double now);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const api::TrainingJob& job;
  const Observed& observed;
  const double now;
  api::TrainingJobStatus status;  // begins as the stored one
  std::vector<Action> actions;    // without kStoreStatus, which is put before them if the status changed
  std::vector<Event> events;
  std::optional<double> requeue_after;

  // Asks for another pass at `time`, or earlier.
  void WakeAt(double time);

  void Emit(bool warning, std::string reason, std::string message);

  // The coordinator's last answer if it was received after this start of the job, else nullptr.
  const CoordinatorReport* report() const;

  // The live instance of this role and index with the highest incarnation, or nullptr.
  const Instance* LiveInstance(api::Role role, int index) const;
  bool AnyLive() const;

  // Ends of an accounted instance are not failures (any more): it was counted, or the planner itself stopped it.
  bool IsAccounted(const Instance& instance) const;
  void Account(const Instance& instance);

  // Stops a live instance: kStop first, kForceStop once it has been terminating for too long. Does nothing for one that
  // has ended.
  void Stop(const Instance& instance, std::string reason);
  void StopAll(const std::string& reason);

  // Sets a condition; the transition time changes only with the status.
  void SetCondition(std::string_view type, bool value, std::string reason, std::string message);
  // Sets a condition to false if it is true.
  void ClearCondition(std::string_view type, std::string reason, std::string message);

  // Decides that the job fails; the first reason stays.
  void FailJob(std::string reason, std::string message);
};

}  // namespace downpour::planner

#endif  // DOWNPOUR_OPERATOR_PLANNER_CONTEXT_H_
