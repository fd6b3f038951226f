#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "operator/planner/testing/promise_books.h"
#include "operator/planner/testing/simulated_world.h"

// The planner against a world that kills, stalls, deletes and loses its instances, while the planner itself dies
// between any two of its actions. Each seed is one job with a policy of its own; the promises are checked after every
// action by books that the test keeps for itself.
namespace downpour::planner {
namespace {

constexpr int kSeeds = 1000;
constexpr int kFaultyRounds = 40;
constexpr int kCalmRounds = 600;

enum class Outcome { kComplete, kFailed, kRuns };

class Simulation {
 public:
  explicit Simulation(std::uint64_t seed, api::Strategy strategy = api::Strategy::kParameterServer)
      : dice_(seed), world_(dice_, strategy), books_(world_), crashes_(dice_.Chance(0.8)) {}

  Outcome Run() {
    for (int round = 0; round < kFaultyRounds && !::testing::Test::HasFailure(); ++round) {
      if (world_.IsTimeForFault()) world_.InjectFault();
      world_.GoOn(/*calm=*/false);
      Pass(/*may_die=*/crashes_);
      world_.now += dice_.Pick({0, 1, 1, 2, 10}) * 0.5;
    }
    world_.job.spec.suspend = false;
    if (world_.observed.cordoned_nodes.has_value()) world_.observed.cordoned_nodes->clear();
    world_.MakeRoom();
    for (int round = 0; round < kCalmRounds && !::testing::Test::HasFailure(); ++round) {
      world_.GoOn(/*calm=*/true);
      const Plan plan = Pass(/*may_die=*/false);
      if (IsTrue(Status(), kComplete)) {
        OutliveTheJob();
        return Outcome::kComplete;
      }
      if (IsTrue(Status(), kFailed)) return Outcome::kFailed;
      const bool at_rest = plan.actions.empty() && !IsTrue(Status(), kParametersLost);
      if (world_.trains_for_ever() && at_rest && world_.AsDesired()) return Outcome::kRuns;
      world_.now += 1;
    }
    if (::testing::Test::HasFailure()) return Outcome::kRuns;
    ADD_FAILURE() << "does not converge: phase " << Status().phase << " " << Status().reason;
    return Outcome::kRuns;
  }

  // Of a job that is complete at most the worker that has the model goes on, and not for longer than it may.
  void OutliveTheJob() {
    const std::string phase = Status().phase;
    // While passes were rare, and planners died, it may have become late.
    const double end = std::max(*Status().completion_time + world_.job.spec.output.keep_seconds, world_.now);
    while (world_.AnyLive() && !::testing::Test::HasFailure()) {
      const auto live = std::count_if(world_.observed.instances.begin(), world_.observed.instances.end(), IsLive);
      EXPECT_EQ(live, 1);
      EXPECT_FALSE(world_.observed.temporary_output.empty());
      EXPECT_LE(world_.now, end + world_.job.spec.failure_policy.termination_timeout_seconds + 1);
      kept_ = kept_ || world_.now > *Status().completion_time + 1;
      world_.GoOn(/*calm=*/true);
      Pass(/*may_die=*/false);
      world_.now += 1;
    }
    EXPECT_EQ(Status().phase, phase);
  }

  // Afterwards nothing may be left.
  void Delete() {
    world_.observed.deletion_requested = true;
    for (int round = 0; round < kCalmRounds && world_.AnyLive(); ++round) {
      world_.GoOn(/*calm=*/true);
      Pass(/*may_die=*/false);
      world_.now += 1;
    }
    EXPECT_FALSE(world_.AnyLive());
  }

  int times_given_up() const { return books_.times_given_up(); }
  int times_saved() const { return books_.times_saved(); }
  int needless_ended() const { return books_.needless_ended(); }
  int times_freed() const { return books_.times_freed(); }
  int times_moved() const { return world_.times_moved(); }
  // That all workers of a job without parameter servers were lost at once.
  int times_lost() const { return times_lost_; }
  bool kept_output() const { return kept_; }

 private:
  const api::TrainingJobStatus& Status() const { return world_.job.status; }

  // One pass of a planner that remembers nothing, and that may die after any of its actions.
  Plan Pass(bool may_die) {
    const Plan plan = world_.MakePlanNow();
    for (const Event& event : plan.events) {
      if (event.reason == "WorkersLost") ++times_lost_;
    }
    if (world_.job.spec.strategy == api::Strategy::kAllReduce) {
      EXPECT_FALSE(plan.protected_ps.has_value());
      EXPECT_EQ(plan.status.parameter_server, api::RoleStatus());
      EXPECT_EQ(FindCondition(plan.status, kDrainWaits), nullptr);
    }
    if (dice_.Chance(0.1)) {
      EXPECT_EQ(plan.status, world_.MakePlanNow().status) << "not deterministic";
    }
    EXPECT_EQ(plan.status == Status(), plan.actions.empty() || plan.actions[0].type != ActionType::kStoreStatus);
    int survived = static_cast<int>(plan.actions.size());
    const bool dies = may_die && dice_.Chance(0.3);
    if (dies) survived = dice_.Uniform(0, survived);
    if (survived > 0) books_.NoteStops(plan);
    std::set<std::pair<api::Role, int>> refused;
    for (int i = 0; i < survived; ++i) {
      const Action& action = plan.actions[static_cast<std::size_t>(i)];
      books_.Check(action, plan, i);
      if (world_.IsRefused(action)) {
        refused.insert({action.role, action.index});
        continue;
      }
      world_.CarryOut(action, plan);
    }
    if (!dies) {
      books_.NoteRunning();
      CheckRest(plan, refused);
    }
    return plan;
  }

  // The plan was carried out but for what was refused.
  void CheckRest(const Plan& plan, const std::set<std::pair<api::Role, int>>& refused) const {
    const bool waits = world_.job.spec.suspend || world_.observed.deletion_requested || IsTrue(Status(), kComplete) ||
                       IsTrue(Status(), kFailed);
    EXPECT_TRUE(waits || world_.AnyLive() || plan.requeue_after) << "nothing would ever happen again";
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

  Dice dice_;
  SimulatedWorld world_;
  PromiseBooks books_;
  const bool crashes_;
  bool kept_ = false;
  int times_lost_ = 0;
};

TEST(PlannerSimulationTest, PromisesHoldUnderAnyFaults) {
  std::map<Outcome, int> outcomes;
  int times_given_up = 0;
  int times_saved = 0;
  int kept_outputs = 0;
  int needless_ended = 0;
  int times_freed = 0;
  int times_moved = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Simulation simulation(seed);
    ++outcomes[simulation.Run()];
    if (seed % 4 == 0) simulation.Delete();
    times_given_up += simulation.times_given_up();
    times_saved += simulation.times_saved();
    needless_ended += simulation.needless_ended();
    times_freed += simulation.times_freed();
    times_moved += simulation.times_moved();
    if (simulation.kept_output()) ++kept_outputs;
    if (HasFailure()) return;
  }
  // The worlds are neither too kind nor too cruel to say anything.
  EXPECT_GE(outcomes[Outcome::kComplete], kSeeds / 10);
  EXPECT_GE(outcomes[Outcome::kFailed], kSeeds / 10);
  EXPECT_GE(outcomes[Outcome::kRuns], kSeeds / 10);
  EXPECT_GE(times_given_up, kSeeds / 10);
  EXPECT_GE(times_saved, kSeeds / 50);
  EXPECT_GE(kept_outputs, kSeeds / 50);
  EXPECT_GE(needless_ended, kSeeds / 10);
  EXPECT_GE(times_freed, kSeeds / 10);
  EXPECT_GE(times_moved, kSeeds / 2);
}

// Nobody holds anything but the workers, which come and go as they like.
TEST(PlannerSimulationTest, PromisesHoldWithoutParameterServers) {
  std::map<Outcome, int> outcomes;
  int times_given_up = 0;
  int times_saved = 0;
  int times_moved = 0;
  int times_lost = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Simulation simulation(seed, api::Strategy::kAllReduce);
    ++outcomes[simulation.Run()];
    if (seed % 4 == 0) simulation.Delete();
    times_given_up += simulation.times_given_up();
    times_saved += simulation.times_saved();
    times_moved += simulation.times_moved();
    times_lost += simulation.times_lost();
    if (HasFailure()) return;
  }
  EXPECT_GE(outcomes[Outcome::kComplete], kSeeds / 10);
  EXPECT_GE(outcomes[Outcome::kFailed], kSeeds / 10);
  EXPECT_GE(outcomes[Outcome::kRuns], kSeeds / 10);
  EXPECT_GE(times_given_up, kSeeds / 10);
  EXPECT_GE(times_moved, kSeeds / 2);
  EXPECT_GE(times_lost, kSeeds / 10);
  EXPECT_GE(times_saved, kSeeds / 100) << "before a suspension; a drain waits for nobody";
}

}  // namespace
}  // namespace downpour::planner
