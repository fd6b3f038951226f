#include "operator/planner/testing/promise_books.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "operator/planner/checkpoint.h"
#include "operator/planner/disruption.h"
#include "operator/planner/elastic.h"

namespace downpour::planner {

void PromiseBooks::Check(const Action& action, const Plan& plan, int position) {
  switch (action.type) {
    case ActionType::kStoreStatus:
      EXPECT_EQ(position, 0);
      CheckStatus(world_.job.status, plan.status);
      CheckElastic(world_.job.status, plan.status);
      CheckNodes(world_.job.status, plan.status);
      CheckEvents(plan);
      CheckRequests(plan);
      CheckFree(plan);
      return;
    case ActionType::kStart:
      CheckStart(action);
      return;
    case ActionType::kForceStop:
      CheckPsStop(action, plan);
      for (const Instance& instance : world_.observed.instances) {
        if (instance.uid != action.uid) continue;
        EXPECT_TRUE(instance.terminating);
        EXPECT_GE(world_.now - *instance.terminating_since, world_.job.spec.failure_policy.termination_timeout_seconds);
      }
      return;
    case ActionType::kStop:
      CheckPsStop(action, plan);
      return;
    case ActionType::kRemove:
      EXPECT_TRUE(IsTrue(world_.job.status, kComplete) || IsTrue(world_.job.status, kFailed)) << "the job is not over";
      for (const Instance& instance : world_.observed.instances) {
        EXPECT_TRUE(instance.uid != action.uid || !IsLive(instance));
      }
      return;
    case ActionType::kDeleteJob:
      EXPECT_TRUE(world_.job.spec.ttl_seconds_after_finished.has_value());
      return;
    case ActionType::kFinish:
      EXPECT_TRUE(IsTrue(world_.job.status, kSuccessCriteriaMet)) << "the outcome is not stored";
      return;
  }
}

void PromiseBooks::NoteStops(const Plan& plan) {
  for (const Action& action : plan.actions) {
    if (action.type == ActionType::kStop) stopped_.insert(action.uid);
  }
  // One that waits and may run on more nodes now is to be replaced, also where somebody else ends it already.
  for (const Instance& instance : world_.observed.instances) {
    if (instance.phase != InstancePhase::kPending || !instance.node.empty() || !instance.terminating) continue;
    const std::vector<std::string>& counted = plan.status.counted_uids;
    if (std::find(counted.begin(), counted.end(), instance.uid) != counted.end()) stopped_.insert(instance.uid);
  }
}

void PromiseBooks::NoteRunning() {
  for (const Instance& instance : world_.observed.instances) {
    // One that starts although it is given up already does not take part.
    const bool stops = instance.terminating || stopped_.contains(instance.uid);
    if (instance.role == api::Role::kWorker && instance.phase == InstancePhase::kRunning && !stops) {
      ran_[instance.index] = world_.now;
    }
  }
}

// A ps that holds something is ended with the whole job, or by somebody else.
void PromiseBooks::CheckPsStop(const Action& action, const Plan& plan) {
  if (action.role != api::Role::kParameterServer) return;
  bool whole = world_.observed.deletion_requested;
  for (const char* type : {kSuspended, kRestarting, kSuccessCriteriaMet, kFailureTarget, kComplete, kFailed}) {
    whole = whole || IsTrue(plan.status, type);
  }
  for (const Instance& instance : world_.observed.instances) {
    // One that began to run after all held nothing when it was decided.
    if (instance.uid != action.uid || whole || instance.terminating || given_up_.contains(action.uid)) continue;
    EXPECT_FALSE(world_.HasPlace(action.uid)) << action.uid << " holds something: " << action.reason;
    if (action.index >= DesiredReplicas(world_.job.spec, api::Role::kParameterServer)) ++needless_ended_;
  }
}

void PromiseBooks::CheckStart(const Action& action) {
  const std::string name = InstanceName(action.role, action.index);
  for (const char* type : {kSuspended, kRestarting, kSuccessCriteriaMet, kFailureTarget, kComplete, kFailed}) {
    EXPECT_FALSE(IsTrue(world_.job.status, type)) << name << " is started while " << type;
  }
  EXPECT_FALSE(IsParked(world_.job.status, action.role, action.index)) << name << " is parked";
  EXPECT_FALSE(world_.job.spec.suspend);
  for (const Instance& instance : world_.observed.instances) {
    EXPECT_FALSE(IsLive(instance) && old_run_.count(instance.uid) > 0)
        << name << " meets " << instance.uid << " of the run before";
  }
  for (const auto& [node, until] : avoided_) {
    const bool avoids = std::count(action.avoid_nodes.begin(), action.avoid_nodes.end(), node) > 0;
    EXPECT_EQ(avoids, world_.now < until) << name << " and " << node;
  }
  for (const std::string& node : action.avoid_nodes) EXPECT_TRUE(avoided_.contains(node)) << node;
  EXPECT_FALSE(world_.observed.deletion_requested);
  EXPECT_EQ(world_.job.status.incarnations.at(name), action.incarnation) << "incarnation is not stored";
  EXPECT_GT(action.incarnation, started_[name]) << "incarnation is used again";
  started_[name] = action.incarnation;
  for (const Instance& instance : world_.observed.instances) {
    if (instance.role != action.role || instance.index != action.index) continue;
    EXPECT_FALSE(IsLive(instance)) << "two live instances of " << name;
    EXPECT_LT(instance.incarnation, action.incarnation);
    if (world_.may_begin_anew()) continue;
    EXPECT_TRUE(recorded_.count(instance.uid) > 0 || stopped_.count(instance.uid) > 0)
        << instance.uid << " is replaced uncounted";
  }

  const api::FailurePolicy& policy = world_.job.spec.failure_policy;
  int of_job = 0;
  int of_replica = 0;
  double last = -1e9;
  for (const api::FailureRecord& record : counted_) {
    if (policy.window_seconds != 0 && record.time <= world_.now - policy.window_seconds) continue;
    ++of_job;
    if (InstanceName(record.role, record.index) != name) continue;
    ++of_replica;
    last = record.time;
  }
  EXPECT_LE(of_job, policy.max_restarts);
  EXPECT_LE(of_replica, policy.max_restarts_per_replica);
  if (of_replica >= 2) {
    const double wait =
        std::min<double>(policy.backoff.max_seconds, policy.backoff.initial_seconds * std::pow(2, of_replica - 2));
    EXPECT_GE(world_.now, last + wait) << name << " is started before its back-off of " << wait << " s has passed";
  }
}

void PromiseBooks::CheckStatus(const api::TrainingJobStatus& before, const api::TrainingJobStatus& after) {
  for (const auto& [name, incarnation] : before.incarnations) EXPECT_GE(after.incarnations.at(name), incarnation);
  EXPECT_LE(after.failures.size(), 10u);
  EXPECT_LE(after.counted_uids.size(), world_.observed.instances.size());
  int followed_by_restart = 0;
  int counted_restarts = 0;
  for (const api::FailureRecord& record : after.failures) {
    const bool known = std::any_of(before.failures.begin(), before.failures.end(), [&](const auto& old) {
      return old.uid == record.uid && old.time == record.time && old.role == record.role && old.index == record.index;
    });
    if (known) continue;
    EXPECT_EQ(record.time, world_.now);
    if (!record.uid.empty()) {
      EXPECT_TRUE(recorded_.insert(record.uid).second) << record.uid << " is counted twice";
    }
    if (!world_.has_faults()) {
      EXPECT_NE(record.cause, "UnexpectedExit") << record.message;
    }
    if (record.counted) counted_.push_back(record);
    if (record.cause == "PendingTimeout") given_up_.insert(record.uid);
    if (record.action == "FailJob") continue;
    ++followed_by_restart;
    counted_restarts += record.counted ? 1 : 0;
  }
  EXPECT_EQ(after.restarts_total - before.restarts_total, followed_by_restart);
  EXPECT_EQ(after.restarts_counted - before.restarts_counted, counted_restarts);
  EXPECT_EQ(after.coordinator.restarts + after.parameter_server.restarts + after.worker.restarts, after.restarts_total);
  for (const api::Condition& condition : before.conditions) {
    const api::Condition* now = FindCondition(after, condition.type);
    ASSERT_NE(now, nullptr);
    EXPECT_EQ(now->last_transition_time, now->status == condition.status ? condition.last_transition_time : world_.now)
        << condition.type;
  }
  if (IsTrue(after, kSuspended) || IsTrue(after, kRestarting)) {
    for (const Instance& instance : world_.observed.instances) old_run_.insert(instance.uid);
  }
  for (const char* type : {kSuccessCriteriaMet, kFailureTarget, kComplete, kFailed}) {
    EXPECT_LE(IsTrue(before, type), IsTrue(after, type)) << type << " is taken back";
  }
  EXPECT_FALSE(IsTrue(after, kSuccessCriteriaMet) && IsTrue(after, kFailureTarget));
  const bool ended = IsTrue(after, kComplete) || IsTrue(after, kFailed);
  if (ended) {
    for (const Instance& instance : world_.observed.instances) {
      const bool has_model = IsTrue(after, kOutputTemporary) && after.output.has_value() &&
                             instance.role == api::Role::kWorker && instance.index == after.output->worker &&
                             instance.incarnation == after.output->incarnation;
      EXPECT_TRUE(!IsLive(instance) || (IsTrue(after, kComplete) && has_model)) << "ended while something runs";
    }
    EXPECT_TRUE(IsTrue(before, kComplete) || IsTrue(before, kSuccessCriteriaMet) || IsTrue(before, kFailureTarget));
  }
  EXPECT_EQ(ended, after.completion_time.has_value());
}

// Keeps books of its own about the faults of each node.
void PromiseBooks::CheckNodes(const api::TrainingJobStatus& before, const api::TrainingJobStatus& after) {
  const auto& scheduling = world_.job.spec.scheduling;
  if (!scheduling.has_value()) {
    EXPECT_TRUE(after.nodes.empty());
    return;
  }
  const int window = world_.job.spec.failure_policy.window_seconds;
  for (const api::FailureRecord& record : after.failures) {
    const bool known = std::count(before.failures.begin(), before.failures.end(), record) > 0;
    if (known || record.node.empty() || record.cause == "DisruptionTarget" || record.cause == "Deleted") continue;
    if (avoided_.contains(record.node) && world_.now < avoided_[record.node]) {
      avoided_[record.node] = world_.now + scheduling->avoid_nodes->for_seconds;
      continue;
    }
    std::vector<double>& faults = faults_[record.node];
    std::erase_if(faults, [&](double time) { return window != 0 && time <= world_.now - window; });
    faults.push_back(world_.now);
    if (static_cast<int>(faults.size()) < scheduling->avoid_nodes->after_failures) continue;
    faults.clear();
    avoided_[record.node] = world_.now + scheduling->avoid_nodes->for_seconds;
  }
}

void PromiseBooks::CheckElastic(const api::TrainingJobStatus& before, const api::TrainingJobStatus& after) {
  if (!world_.job.spec.elastic.has_value()) {
    EXPECT_TRUE(after.absent_workers.empty());
    return;
  }
  const api::ElasticSpec& elastic = *world_.job.spec.elastic;
  const int desired = DesiredReplicas(world_.job.spec, api::Role::kWorker);
  const auto parked = [](const api::TrainingJobStatus& status) {
    std::map<int, double> since;
    for (const api::AbsentWorker& absent : status.absent_workers) {
      if (absent.state == api::AbsenceState::kParked) since[absent.index] = absent.since;
    }
    return since;
  };
  const std::map<int, double> old = parked(before);
  const std::map<int, double> now = parked(after);
  const bool drives = !IsTrue(after, kSuspended) && !IsTrue(after, kRestarting) && !IsTrue(after, kFailureTarget) &&
                      !IsTrue(after, kSuccessCriteriaMet) && !IsTrue(after, kFailed) && !IsTrue(after, kComplete) &&
                      !world_.observed.deletion_requested;
  if (drives) {
    EXPECT_GE(desired - CountParked(after, api::Role::kWorker, desired), elastic.min_replicas);
    EXPECT_EQ(IsTrue(after, kShrunk), CountGivenUp(after) > 0);
  }
  for (const auto& [index, since] : now) {
    if (old.contains(index) && old.at(index) == since) continue;
    EXPECT_EQ(since, world_.now);
    ++times_given_up_;
    if (ran_.contains(index)) {
      EXPECT_GE(world_.now - ran_[index], elastic.shrink_after_seconds) << index << " had too little time";
    }
    if (retried_.contains(index)) {
      EXPECT_GE(world_.now - retried_[index], elastic.shrink_after_seconds) << index << " had too little time";
    }
  }
  double newest = 0;
  for (const auto& [index, since] : old) newest = std::max(newest, since);
  const bool too_few = desired - CountParked(before, api::Role::kWorker, desired) < elastic.min_replicas;
  for (const api::AbsentWorker& absent : after.absent_workers) {
    if (absent.state != api::AbsenceState::kRetrying || !old.contains(absent.index)) continue;
    retried_[absent.index] = world_.now;
    EXPECT_TRUE(too_few || world_.now >= newest + elastic.grow_cooldown_seconds)
        << absent.index << " is tried again before the cooldown has passed";
  }
}

// What waits for a checkpoint goes on when that is made or has failed, or after its time, and not before.
void PromiseBooks::CheckRequests(const Plan& plan) {
  const std::optional<api::CheckpointRequestStatus>& wanted = world_.job.status.checkpoint_request;
  const std::optional<api::CheckpointSpec>& spec = world_.job.spec.checkpoint;
  EXPECT_TRUE(spec.has_value() || !plan.status.checkpoint_request.has_value());
  if (plan.status.checkpoint_request.has_value()) {
    EXPECT_LE(world_.now, plan.status.checkpoint_request->since + RequestSeconds(*spec)) << "it waits too long";
  }
  if (!wanted.has_value()) return;
  const bool settled = world_.answered() != RequestState::kNone || world_.now >= wanted->since + RequestSeconds(*spec);
  for (const Event& event : plan.events) {
    const bool suspends = event.reason == "JobSuspended" && IsWanted(world_.job.status, kSuspendRequest);
    const bool lets_through = event.reason == "DrainLetThrough" && IsWanted(world_.job.status, kDrainRequest);
    if (!suspends && !lets_through) continue;
    // It may have been asked for only when standbys were not there any more.
    const api::Condition* const drain = FindCondition(world_.job.status, kDrainWaits);
    const bool late = lets_through && drain != nullptr && drain->status &&
                      world_.now >= DrainDeadline(world_.job.spec, drain->last_transition_time);
    EXPECT_TRUE(settled || late || (suspends && !world_.CanMakeCheckpoint())) << event.message;
    if (world_.answered() == RequestState::kDone) ++times_saved_;
  }
}

// Whoever may be evicted holds nothing.
void PromiseBooks::CheckFree(const Plan& plan) {
  if (!plan.protected_ps.has_value()) return;
  for (const int index : plan.protected_ps->free) {
    ++times_freed_;
    for (const Instance& instance : world_.observed.instances) {
      if (instance.role != api::Role::kParameterServer || instance.index != index || !IsLive(instance)) continue;
      EXPECT_FALSE(world_.HasPlace(instance.uid)) << instance.uid << " holds something";
    }
  }
}

void PromiseBooks::CheckEvents(const Plan& plan) {
  for (const Event& event : plan.events) {
    if (event.reason == "Grown") {
      EXPECT_TRUE(IsTrue(world_.job.status, kShrunk)) << event.message;
    }
    for (const char* once : {"JobSucceeded", "JobFailing", "JobFailed"}) {
      if (event.reason == once) {
        EXPECT_TRUE(emitted_.insert(event.reason).second) << event.reason;
      }
    }
  }
}

}  // namespace downpour::planner
