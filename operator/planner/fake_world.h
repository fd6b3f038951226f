#ifndef DOWNPOUR_OPERATOR_PLANNER_FAKE_WORLD_H_
#define DOWNPOUR_OPERATOR_PLANNER_FAKE_WORLD_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "operator/planner/context.h"
#include "operator/planner/plan.h"

// For tests: a job, the instances that its plans' actions make and end, and a clock that the test moves.
namespace downpour::planner {

class FakeWorld {
 public:
  FakeWorld(int ps, int workers) {
    job.metadata.name = "test";
    job.metadata.uid = "uid";
    job.spec.parameter_server = api::ParameterServerSpec();
    job.spec.parameter_server->replicas = ps;
    job.spec.worker.replicas = workers;
  }

  api::TrainingJob job;  // its status is the stored one
  Observed observed;
  double now = 1000;
  InstancePhase start_phase = InstancePhase::kRunning;

  Plan MakePlanNow() const { return MakePlan(job, observed, now); }

  // One pass, every action carried out.
  Plan Step() {
    Plan plan = MakePlanNow();
    for (const Action& action : plan.actions) Apply(action, plan);
    return plan;
  }

  void Apply(const Action& action, const Plan& plan) {
    switch (action.type) {
      case ActionType::kStoreStatus:
        job.status = plan.status;
        return;
      case ActionType::kStart:
        std::erase_if(observed.instances, [&action](const Instance& instance) {
          return instance.role == action.role && instance.index == action.index && !IsLive(instance);
        });
        observed.instances.push_back(NewInstance(action.role, action.index, action.incarnation));
        return;
      case ActionType::kStop:
      case ActionType::kForceStop:
        for (Instance& instance : observed.instances) {
          if (instance.uid != action.uid) continue;
          instance.terminating = true;
          if (!instance.terminating_since) instance.terminating_since = now;
          if (action.type == ActionType::kForceStop) End(instance, InstancePhase::kFailed, 137);
        }
        return;
      case ActionType::kRemove:
        std::erase_if(observed.instances, [&action](const Instance& instance) { return instance.uid == action.uid; });
        return;
      case ActionType::kDeleteJob:
        return;
      case ActionType::kFinish:
        for (Instance& instance : observed.instances) {
          if (instance.role != api::Role::kWorker && IsLive(instance)) End(instance, InstancePhase::kSucceeded, 0);
        }
        return;
    }
  }

  // The newest instance of this role and index; it must exist.
  Instance& Get(api::Role role, int index) {
    Instance* newest = nullptr;
    for (Instance& instance : observed.instances) {
      if (instance.role != role || instance.index != index) continue;
      if (newest == nullptr || instance.incarnation > newest->incarnation) newest = &instance;
    }
    return *newest;
  }

  void End(Instance& instance, InstancePhase phase, int exit_code) const {
    instance.phase = phase;
    instance.ready = false;
    instance.exit_code = exit_code;
    instance.finished_time = now;
  }

  void Fail(api::Role role, int index, int exit_code) { End(Get(role, index), InstancePhase::kFailed, exit_code); }

  // What was asked to stop ends.
  void EndTerminating() {
    for (Instance& instance : observed.instances) {
      if (IsLive(instance) && instance.terminating) End(instance, InstancePhase::kFailed, 143);
    }
  }

  void EndAll() {
    for (Instance& instance : observed.instances) {
      if (IsLive(instance)) End(instance, InstancePhase::kSucceeded, 0);
    }
  }

  // The coordinator answers now.
  void Report(CoordinatorPhase phase, std::uint64_t updates_applied = 0, std::uint64_t generation = 1) {
    observed.report = CoordinatorReport();
    observed.report->received_time = now;
    observed.report->phase = phase;
    observed.report->updates_applied = updates_applied;
    observed.report->generation = generation;
  }

  // What the coordinator's newest answer says of the slices, of which there are ten; it has heard all that is wanted.
  void ReportSlices(int in_sync, std::vector<int> placed_ps) {
    observed.report->replication = ReplicationReport{10, in_sync, 0, in_sync == 10 ? "" : "slices are copied"};
    observed.report->placed_ps = std::move(placed_ps);
    observed.report->told.revision = job.metadata.generation;
    for (const api::LeavingParameterServer& ps : job.status.leaving_parameter_servers) {
      observed.report->told.leaving_ps.push_back(ps.index);
    }
  }

  // What the coordinator's newest answer says of checkpoints.
  CheckpointReport& Checkpoint() {
    std::optional<CheckpointReport>& checkpoint = observed.report->checkpoint;
    return checkpoint.has_value() ? *checkpoint : checkpoint.emplace();
  }
  void ReportCheckpoint(const std::string& newest, std::uint64_t updates, double time) {
    CheckpointReport& checkpoint = Checkpoint();
    checkpoint.newest = newest;
    checkpoint.updates = updates;
    checkpoint.time = time;
    checkpoint.written = 1;
  }
  // That the checkpoint that is wanted is as far as this.
  void AnswerRequest(RequestState state) {
    Checkpoint().request = job.status.checkpoint_request.value().name;
    Checkpoint().request_state = state;
  }

  // A job without parameter servers that trains, every worker in the ring.
  static FakeWorld TrainingInRing(int workers) {
    FakeWorld world(0, workers);
    world.job.spec.strategy = api::Strategy::kAllReduce;
    world.job.spec.parameter_server.reset();
    world.Step();
    world.now += 1;
    world.Report(CoordinatorPhase::kTraining, 10);
    world.ReportRing(workers, true, 1);
    world.Step();
    return world;
  }

  // What the coordinator's newest answer says of the ring.
  void ReportRing(int members, bool formed, int formed_count, const std::string& message = "") {
    api::RingStatus& ring = observed.report->ring.emplace();
    ring.members = members;
    ring.wanted = DesiredReplicas(job.spec, api::Role::kWorker);
    ring.formed = formed;
    ring.formed_count = formed_count;
    ring.updates_per_step = ring.wanted;
    ring.message = message;
  }

  // A job that trains, every member ready.
  static FakeWorld Training(int ps, int workers) {
    FakeWorld world(ps, workers);
    world.Step();
    world.now += 1;
    world.Report(CoordinatorPhase::kTraining, 10);
    world.Step();
    return world;
  }

 private:
  Instance NewInstance(api::Role role, int index, int incarnation) {
    Instance instance;
    instance.uid = absl::StrCat(InstanceName(role, index), "/", incarnation, "/", ++made_);
    instance.role = role;
    instance.index = index;
    instance.incarnation = incarnation;
    instance.phase = start_phase;
    instance.ready = start_phase == InstancePhase::kRunning;
    instance.created_time = now;
    if (start_phase == InstancePhase::kRunning) instance.started_time = now;
    return instance;
  }

  int made_ = 0;
};

inline int CountActions(const Plan& plan, ActionType type) {
  return static_cast<int>(std::count_if(plan.actions.begin(), plan.actions.end(),
                                        [type](const Action& action) { return action.type == type; }));
}

// The names of what the plan starts, in order: "coordinator-0#1".
inline std::vector<std::string> Starts(const Plan& plan) {
  std::vector<std::string> starts;
  for (const Action& action : plan.actions) {
    if (action.type != ActionType::kStart) continue;
    starts.push_back(absl::StrCat(InstanceName(action.role, action.index), "#", action.incarnation));
  }
  return starts;
}

inline std::vector<std::string> EventReasons(const Plan& plan) {
  std::vector<std::string> reasons;
  for (const Event& event : plan.events) reasons.push_back(event.reason);
  return reasons;
}

}  // namespace downpour::planner

#endif  // DOWNPOUR_OPERATOR_PLANNER_FAKE_WORLD_H_
