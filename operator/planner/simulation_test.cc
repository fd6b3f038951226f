#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "operator/planner/elastic.h"
#include "operator/planner/fake_world.h"

// The planner against a world that kills, stalls, deletes and loses its instances, while the planner itself dies
// between any two of its actions. Each seed is one job with a policy of its own; the promises are checked after every
// action by books that the test keeps for itself.
namespace downpour::planner {
namespace {

constexpr int kSeeds = 1000;
constexpr int kFaultyRounds = 40;
constexpr int kCalmRounds = 600;
constexpr int kMuchRoom = 1000;

enum class Outcome { kComplete, kFailed, kRuns };

class Simulation {
 public:
  explicit Simulation(std::uint64_t seed) : random_(seed), world_(Uniform(1, 3), Uniform(1, 4)) {
    api::TrainingJobSpec& spec = world_.job.spec;
    api::FailurePolicy& policy = spec.failure_policy;
    policy.max_restarts = Chance(0.3) ? Uniform(0, 8) : 100;
    policy.max_restarts_per_replica = Chance(0.3) ? Uniform(0, 4) : 100;
    policy.window_seconds = Pick({0, 20, 100, 1000});
    policy.backoff = {Uniform(0, 3), Uniform(0, 12)};
    policy.pending_timeout_seconds = Pick({0, 8, 40});
    policy.termination_timeout_seconds = Pick({5, 30});
    if (Chance(0.3)) {
      api::FailureRule rule;
      rule.name = "infrastructure";
      rule.on_container_reasons = {"Evicted"};
      rule.counts_towards_limit = Chance(0.5);
      policy.rules.push_back(rule);
    }
    if (Chance(0.3)) {
      api::FailureRule rule;
      rule.name = "code";
      rule.on_exit_codes = api::ExitCodeRule{true, {1}};
      rule.action = static_cast<api::RestartAction>(
          Pick({static_cast<int>(api::RestartAction::kIgnore), static_cast<int>(api::RestartAction::kRestartJob),
                static_cast<int>(api::RestartAction::kRestoreRole)}));
      policy.rules.push_back(rule);
      restarts_whole_job_ = rule.action == api::RestartAction::kRestartJob;
    }
    if (Chance(0.4)) {
      spec.elastic = api::ElasticSpec{Uniform(1, 3), Uniform(3, 6), Pick({2, 10}), Pick({0, 5, 40})};
      room_ = Uniform(0, 6);
    }
    if (Chance(0.3)) {
      spec.scheduling.emplace();
      spec.scheduling->avoid_nodes = api::AvoidNodes{Uniform(1, 3), Pick({5, 60})};
    }
    spec.progress_deadline_seconds = Pick({0, 300, 2000});
    if (Chance(0.05)) spec.active_deadline_seconds = Uniform(20, 400);
    suspends_ = Chance(0.2);
    fault_rate_ = Pick({0, 1, 3, 6}) / 10.0;
    updates_expected_ = Chance(0.5) ? static_cast<std::uint64_t>(Uniform(1, 400)) : 1'000'000'000;
    world_.start_phase = InstancePhase::kPending;
    refuses_ = Chance(0.3);
    crashes_ = Chance(0.8);
  }

  Outcome Run() {
    for (int round = 0; round < kFaultyRounds && !::testing::Test::HasFailure(); ++round) {
      if (Chance(fault_rate_)) InjectFault();
      LetWorldGoOn(/*calm=*/false);
      Pass(/*may_die=*/crashes_);
      world_.now += Pick({0, 1, 1, 2, 10}) * 0.5;
    }
    world_.job.spec.suspend = false;
    room_ = kMuchRoom;
    for (int round = 0; round < kCalmRounds && !::testing::Test::HasFailure(); ++round) {
      LetWorldGoOn(/*calm=*/true);
      const Plan plan = Pass(/*may_die=*/false);
      if (IsTrue(Status(), kComplete)) return Outcome::kComplete;
      if (IsTrue(Status(), kFailed)) return Outcome::kFailed;
      if (updates_expected_ > 1'000'000 && plan.actions.empty() && AsDesired()) return Outcome::kRuns;
      world_.now += 1;
    }
    if (::testing::Test::HasFailure()) return Outcome::kRuns;
    ADD_FAILURE() << "does not converge: phase " << Status().phase << " " << Status().reason;
    return Outcome::kRuns;
  }

  // Afterwards nothing may be left.
  void Delete() {
    world_.observed.deletion_requested = true;
    for (int round = 0; round < kCalmRounds && AnyLive(); ++round) {
      LetWorldGoOn(/*calm=*/true);
      Pass(/*may_die=*/false);
      world_.now += 1;
    }
    EXPECT_FALSE(AnyLive());
  }

  int times_given_up() const { return times_given_up_; }

 private:
  int Uniform(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  bool Chance(double probability) { return std::bernoulli_distribution(probability)(random_); }
  int Pick(const std::vector<int>& values) {
    return values[static_cast<std::size_t>(Uniform(0, static_cast<int>(values.size()) - 1))];
  }
  const api::TrainingJobStatus& Status() const { return world_.job.status; }
  std::vector<Instance>& Instances() { return world_.observed.instances; }
  bool AnyLive() { return std::any_of(Instances().begin(), Instances().end(), IsLive); }

  std::vector<Instance*> Live() {
    std::vector<Instance*> live;
    for (Instance& instance : Instances()) {
      if (IsLive(instance)) live.push_back(&instance);
    }
    return live;
  }

  bool AsDesired() {
    for (const api::Role role : kStartOrder) {
      for (int index = 0; index < DesiredReplicas(world_.job.spec, role); ++index) {
        const bool runs = std::any_of(Instances().begin(), Instances().end(), [&](const Instance& instance) {
          return instance.role == role && instance.index == index && instance.phase == InstancePhase::kRunning;
        });
        if (!runs) return false;
      }
    }
    return true;
  }

  void InjectFault() {
    if (suspends_ && Chance(0.2)) {
      world_.job.spec.suspend = !world_.job.spec.suspend;
      return;
    }
    if (world_.job.spec.elastic.has_value() && Chance(0.3)) {
      // Nodes come and go, and users and autoscalers write what they like.
      if (Chance(0.7)) {
        room_ = Uniform(0, 6);
      } else {
        world_.job.spec.worker.replicas = Uniform(0, 8);
      }
      return;
    }
    const std::vector<Instance*> live = Live();
    if (live.empty()) return;
    Instance& victim = *live[static_cast<std::size_t>(Uniform(0, static_cast<int>(live.size()) - 1))];
    switch (Uniform(0, 9)) {
      case 0:
        victim.terminating = true;
        if (!victim.terminating_since) victim.terminating_since = world_.now;
        return;
      case 1:
        std::erase_if(Instances(), [uid = victim.uid](const Instance& instance) { return instance.uid == uid; });
        return;
      case 2:
        if (victim.phase == InstancePhase::kRunning) world_.End(victim, InstancePhase::kSucceeded, 0);
        return;
      case 3:
        stuck_.insert(victim.uid);
        return;
      case 4:
        world_.End(victim, InstancePhase::kFailed, 137);
        victim.reason = Chance(0.5) ? "Evicted" : "OOMKilled";
        return;
      case 5:
        world_.End(victim, InstancePhase::kFailed, 137);
        victim.conditions = {{"DisruptionTarget", "True"}};
        return;
      case 6:
        world_.End(victim, InstancePhase::kFailed, Chance(0.05) ? 2 : 1);
        return;
      default:
        world_.End(victim, InstancePhase::kFailed, Pick({134, 137, 137, 137, 139, 255}));
        return;
    }
  }

  // Instances start and end, the coordinator makes progress and answers. In a calm world only what is stuck in
  // terminating waits for the planner.
  void LetWorldGoOn(bool calm) {
    auto placed = std::count_if(Instances().begin(), Instances().end(), [](const Instance& instance) {
      return instance.role == api::Role::kWorker && instance.phase == InstancePhase::kRunning;
    });
    for (Instance& instance : Instances()) {
      if (!IsLive(instance)) continue;
      if (instance.terminating) {
        if (stuck_.count(instance.uid) == 0 && Chance(0.5)) {
          world_.End(instance, InstancePhase::kFailed, Pick({137, 143}));
        }
      } else if (instance.phase == InstancePhase::kPending && (calm || stuck_.count(instance.uid) == 0) &&
                 Chance(0.7)) {
        if (instance.role == api::Role::kWorker && placed++ >= room_) continue;
        const std::string node = FindNode(instance);
        if (node.empty()) continue;
        instance.node = node;
        instance.phase = InstancePhase::kRunning;
        instance.ready = true;
      }
    }
    GoOnTraining();
    // What has ended goes away some time after it was counted.
    std::erase_if(Instances(), [this](const Instance& instance) {
      const bool counted = std::count(Status().counted_uids.begin(), Status().counted_uids.end(), instance.uid) > 0;
      return !IsLive(instance) && counted && Chance(0.1);
    });
  }

  // Where the instance may run; empty: nowhere.
  std::string FindNode(const Instance& instance) {
    std::vector<std::string> nodes;
    for (const char* node : {"node-0", "node-1", "node-2", "node-3"}) {
      if (!forbidden_[instance.uid].contains(node)) nodes.push_back(node);
    }
    return nodes.empty() ? "" : nodes[static_cast<std::size_t>(Uniform(0, static_cast<int>(nodes.size()) - 1))];
  }

  void GoOnTraining() {
    const Instance* coordinator = nullptr;
    std::set<std::string> ps;
    int workers = 0;
    for (const Instance& instance : Instances()) {
      if (instance.phase != InstancePhase::kRunning) continue;
      if (instance.role == api::Role::kCoordinator) coordinator = &instance;
      if (instance.role == api::Role::kParameterServer) ps.insert(instance.uid);
      if (instance.role == api::Role::kWorker) ++workers;
    }
    if (coordinator == nullptr) return;
    CoordinatorPhase phase = CoordinatorPhase::kStarting;
    if (static_cast<int>(ps.size()) == world_.job.spec.parameter_server->replicas) {
      if (ps != ps_of_generation_) {
        ++generation_;
        updates_ = 0;
        ps_of_generation_ = ps;
        finishing_ = false;
      }
      phase = CoordinatorPhase::kTraining;
      if (updates_ >= updates_expected_) {
        phase = finishing_ ? CoordinatorPhase::kDone : CoordinatorPhase::kFinishing;
        finishing_ = true;
        for (Instance& instance : Instances()) {
          const bool leaves = instance.role == api::Role::kWorker && instance.phase == InstancePhase::kRunning;
          if (leaves && Chance(0.3)) world_.End(instance, InstancePhase::kSucceeded, 0);
        }
      } else if (workers > 0) {
        updates_ = std::min(updates_expected_, updates_ + static_cast<std::uint64_t>(Uniform(1, 20)));
      }
    }
    if (coordinator_ != coordinator->uid && phase == CoordinatorPhase::kTraining) {
      coordinator_ = coordinator->uid;
      phase = CoordinatorPhase::kRecovering;
    }
    if (fault_rate_ == 0 || Chance(0.8)) world_.Report(phase, updates_, generation_);
  }

  // A quota may refuse a worker that has no room before it is made.
  bool IsRefused(const Action& action) {
    if (action.type != ActionType::kStart || action.role != api::Role::kWorker || !refuses_) return false;
    return std::count_if(Instances().begin(), Instances().end(), [](const Instance& instance) {
             return instance.role == api::Role::kWorker && IsLive(instance);
           }) >= room_;
  }

  // One pass of a planner that remembers nothing, and that may die after any of its actions.
  Plan Pass(bool may_die) {
    const Plan plan = world_.MakePlanNow();
    if (Chance(0.1)) {
      EXPECT_EQ(plan.status, world_.MakePlanNow().status) << "not deterministic";
    }
    EXPECT_EQ(plan.status == Status(), plan.actions.empty() || plan.actions[0].type != ActionType::kStoreStatus);
    int survived = static_cast<int>(plan.actions.size());
    const bool dies = may_die && Chance(0.3);
    if (dies) survived = Uniform(0, survived);
    // Stored, that something is to be stopped holds, though the stop itself may come later or never.
    for (const Action& action : plan.actions) {
      if (survived > 0 && action.type == ActionType::kStop) stopped_.insert(action.uid);
    }
    std::set<std::pair<api::Role, int>> refused;
    for (int i = 0; i < survived; ++i) {
      const Action& action = plan.actions[static_cast<std::size_t>(i)];
      Check(action, plan, i);
      if (IsRefused(action)) {
        refused.insert({action.role, action.index});
        continue;
      }
      world_.Apply(action, plan);
      if (action.type == ActionType::kStart) {
        forbidden_[world_.Get(action.role, action.index).uid] = {action.avoid_nodes.begin(), action.avoid_nodes.end()};
      }
    }
    if (!dies) {
      for (const Instance& instance : Instances()) {
        if (instance.role == api::Role::kWorker && instance.phase == InstancePhase::kRunning) {
          ran_[instance.index] = world_.now;
        }
      }
      const bool waits = world_.job.spec.suspend || world_.observed.deletion_requested || IsTrue(Status(), kComplete) ||
                         IsTrue(Status(), kFailed);
      EXPECT_TRUE(waits || AnyLive() || plan.requeue_after) << "nothing would ever happen again";
      const Plan again = world_.MakePlanNow();
      // A forced stop or the end of a restart may make room for another start, but never for the same one.
      for (const Action& first : plan.actions) {
        for (const Action& second : again.actions) {
          if (refused.contains({first.role, first.index})) continue;
          const bool both_start = first.type == ActionType::kStart && second.type == ActionType::kStart;
          EXPECT_FALSE(both_start && first.role == second.role && first.index == second.index)
              << "planning twice starts " << InstanceName(first.role, first.index) << " twice";
        }
      }
      EXPECT_EQ(again.status.restarts_total, Status().restarts_total) << "planning twice counts twice";
    }
    return plan;
  }

  void Check(const Action& action, const Plan& plan, int position) {
    switch (action.type) {
      case ActionType::kStoreStatus:
        EXPECT_EQ(position, 0);
        CheckStatus(Status(), plan.status);
        CheckElastic(Status(), plan.status);
        CheckNodes(Status(), plan.status);
        CheckEvents(plan);
        return;
      case ActionType::kStart:
        CheckStart(action);
        return;
      case ActionType::kForceStop:
        for (const Instance& instance : Instances()) {
          if (instance.uid != action.uid) continue;
          EXPECT_TRUE(instance.terminating);
          EXPECT_GE(world_.now - *instance.terminating_since,
                    world_.job.spec.failure_policy.termination_timeout_seconds);
        }
        return;
      case ActionType::kStop:
        return;
      case ActionType::kRemove:
        EXPECT_TRUE(IsTrue(Status(), kComplete) || IsTrue(Status(), kFailed)) << "the job is not over";
        for (const Instance& instance : Instances()) {
          EXPECT_TRUE(instance.uid != action.uid || !IsLive(instance));
        }
        return;
      case ActionType::kDeleteJob:
        EXPECT_TRUE(world_.job.spec.ttl_seconds_after_finished.has_value());
        return;
      case ActionType::kFinish:
        EXPECT_TRUE(IsTrue(Status(), kSuccessCriteriaMet)) << "the outcome is not stored";
        return;
    }
  }

  void CheckStart(const Action& action) {
    const std::string name = InstanceName(action.role, action.index);
    for (const char* type : {kSuspended, kRestarting, kSuccessCriteriaMet, kFailureTarget, kComplete, kFailed}) {
      EXPECT_FALSE(IsTrue(Status(), type)) << name << " is started while " << type;
    }
    EXPECT_FALSE(IsParked(Status(), action.role, action.index)) << name << " is parked";
    EXPECT_FALSE(world_.job.spec.suspend);
    for (const Instance& instance : Instances()) {
      EXPECT_FALSE(IsLive(instance) && old_run_.count(instance.uid) > 0)
          << name << " meets " << instance.uid << " of the run before";
    }
    for (const auto& [node, until] : avoided_) {
      const bool avoids = std::count(action.avoid_nodes.begin(), action.avoid_nodes.end(), node) > 0;
      EXPECT_EQ(avoids, world_.now < until) << name << " and " << node;
    }
    for (const std::string& node : action.avoid_nodes) EXPECT_TRUE(avoided_.contains(node)) << node;
    EXPECT_FALSE(world_.observed.deletion_requested);
    EXPECT_EQ(Status().incarnations.at(name), action.incarnation) << "incarnation is not stored";
    EXPECT_GT(action.incarnation, started_[name]) << "incarnation is used again";
    started_[name] = action.incarnation;
    for (const Instance& instance : Instances()) {
      if (instance.role != action.role || instance.index != action.index) continue;
      EXPECT_FALSE(IsLive(instance)) << "two live instances of " << name;
      EXPECT_LT(instance.incarnation, action.incarnation);
      if (suspends_ || restarts_whole_job_) continue;
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

  void CheckStatus(const api::TrainingJobStatus& before, const api::TrainingJobStatus& after) {
    for (const auto& [name, incarnation] : before.incarnations) EXPECT_GE(after.incarnations.at(name), incarnation);
    EXPECT_LE(after.failures.size(), 10u);
    EXPECT_LE(after.counted_uids.size(), Instances().size());
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
      if (fault_rate_ == 0) {
        EXPECT_NE(record.cause, "UnexpectedExit") << record.message;
      }
      if (record.counted) counted_.push_back(record);
      if (record.action == "FailJob") continue;
      ++followed_by_restart;
      counted_restarts += record.counted ? 1 : 0;
    }
    EXPECT_EQ(after.restarts_total - before.restarts_total, followed_by_restart);
    EXPECT_EQ(after.restarts_counted - before.restarts_counted, counted_restarts);
    EXPECT_EQ(after.coordinator.restarts + after.parameter_server.restarts + after.worker.restarts,
              after.restarts_total);
    for (const api::Condition& condition : before.conditions) {
      const api::Condition* now = FindCondition(after, condition.type);
      ASSERT_NE(now, nullptr);
      EXPECT_EQ(now->last_transition_time,
                now->status == condition.status ? condition.last_transition_time : world_.now)
          << condition.type;
    }
    if (IsTrue(after, kSuspended) || IsTrue(after, kRestarting)) {
      for (const Instance& instance : Instances()) old_run_.insert(instance.uid);
    }
    for (const char* type : {kSuccessCriteriaMet, kFailureTarget, kComplete, kFailed}) {
      EXPECT_LE(IsTrue(before, type), IsTrue(after, type)) << type << " is taken back";
    }
    EXPECT_FALSE(IsTrue(after, kSuccessCriteriaMet) && IsTrue(after, kFailureTarget));
    const bool ended = IsTrue(after, kComplete) || IsTrue(after, kFailed);
    if (ended) {
      EXPECT_FALSE(AnyLive()) << "ended while something runs";
      EXPECT_TRUE(IsTrue(before, kComplete) || IsTrue(before, kSuccessCriteriaMet) || IsTrue(before, kFailureTarget));
    }
    EXPECT_EQ(ended, after.completion_time.has_value());
  }

  // Keeps books of its own about the faults of each node.
  void CheckNodes(const api::TrainingJobStatus& before, const api::TrainingJobStatus& after) {
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

  void CheckElastic(const api::TrainingJobStatus& before, const api::TrainingJobStatus& after) {
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

  void CheckEvents(const Plan& plan) {
    for (const Event& event : plan.events) {
      if (event.reason == "Grown") {
        EXPECT_TRUE(IsTrue(Status(), kShrunk)) << event.message;
      }
      for (const char* once : {"JobSucceeded", "JobFailing", "JobFailed"}) {
        if (event.reason == once) {
          EXPECT_TRUE(emitted_.insert(event.reason).second) << event.reason;
        }
      }
    }
  }

  std::mt19937_64 random_;
  FakeWorld world_;
  bool suspends_ = false;
  bool restarts_whole_job_ = false;
  bool crashes_ = false;
  double fault_rate_ = 0;
  std::uint64_t updates_expected_ = 0;
  int room_ = kMuchRoom;  // for workers
  bool refuses_ = false;  // to make workers that have no room

  // The training.
  std::uint64_t updates_ = 0;
  std::uint64_t generation_ = 0;
  std::set<std::string> ps_of_generation_;
  std::string coordinator_;
  bool finishing_ = false;

  // The test's own books.
  std::set<std::string> stuck_;              // never run, and never end when asked to
  std::set<std::string> stopped_;            // by the planner, or about to be
  std::set<std::string> old_run_;            // seen while the job was suspended or restarting
  std::set<std::string> recorded_;           // uids of recorded failures
  std::set<std::string> emitted_;            // events that come once
  std::vector<api::FailureRecord> counted_;  // failures that count towards the limits
  std::map<std::string, int> started_;       // newest incarnation really started
  int times_given_up_ = 0;
  std::map<std::string, std::set<std::string>> forbidden_;  // nodes, by uid
  std::map<std::string, std::vector<double>> faults_;       // by node
  std::map<std::string, double> avoided_;                   // until when
  std::map<int, double> ran_;                               // when a worker was last seen to run
  std::map<int, double> retried_;                           // when one that was given up was tried again
};

TEST(PlannerSimulationTest, PromisesHoldUnderAnyFaults) {
  std::map<Outcome, int> outcomes;
  int times_given_up = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Simulation simulation(seed);
    ++outcomes[simulation.Run()];
    if (seed % 4 == 0) simulation.Delete();
    times_given_up += simulation.times_given_up();
    if (HasFailure()) return;
  }
  // The worlds are neither too kind nor too cruel to say anything.
  EXPECT_GE(outcomes[Outcome::kComplete], kSeeds / 10);
  EXPECT_GE(outcomes[Outcome::kFailed], kSeeds / 10);
  EXPECT_GE(outcomes[Outcome::kRuns], kSeeds / 10);
  EXPECT_GE(times_given_up, kSeeds / 10);
}

}  // namespace
}  // namespace downpour::planner
