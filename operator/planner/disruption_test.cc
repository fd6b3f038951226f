#include "operator/planner/disruption.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "operator/planner/fake_world.h"
#include "operator/planner/testing/simulated_world.h"

namespace downpour::planner {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr auto kPs = api::Role::kParameterServer;
constexpr int kLongest = 600;

// A job that trains, with a ps on node-0, node-1, ... and nobody who drains one.
FakeWorld TrainingOnNodes(int ps = 1) {
  FakeWorld world = FakeWorld::Training(ps, 1);
  world.job.spec.parameter_server->max_protect_seconds = kLongest;
  world.job.spec.training.epochs = 5;
  world.job.spec.progress_deadline_seconds = 0;
  for (int i = 0; i < ps; ++i) world.Get(kPs, i).node = absl::StrCat("node-", i);
  world.Get(api::Role::kWorker, 0).node = "node-w";
  world.observed.cordoned_nodes.emplace();
  return world;
}

std::string Reason(const Plan& plan) {
  const api::Condition* drain = FindCondition(plan.status, kDrainWaits);
  return drain == nullptr ? "" : absl::StrCat(drain->status, " ", drain->reason);
}

TEST(DisruptionTest, ADrainIsHeldUpToldOnceAndThenLetThrough) {
  FakeWorld world = TrainingOnNodes();
  Plan plan = world.Step();
  EXPECT_TRUE(plan.protected_ps.has_value());
  EXPECT_EQ(Reason(plan), "") << "nothing to tell";

  world.observed.cordoned_nodes = {"node-0", "node-7"};
  world.observed.report->updates_expected = 100;
  world.observed.report->epoch = 2;
  world.now = 1'800'000'000;
  plan = world.Step();
  EXPECT_TRUE(plan.protected_ps.has_value());
  EXPECT_THAT(EventReasons(plan), ElementsAre("DrainWaits"));
  EXPECT_TRUE(plan.events[0].warning);
  EXPECT_LE(plan.requeue_after.value(), kLongest);
  const std::string message = FindCondition(plan.status, kDrainWaits)->message;
  EXPECT_EQ(message,
            "a drain waits, as ps-0 runs on node-0: it would cost all progress (10 updates, in epoch 2 of 5), as no "
            "checkpoint is configured. Evictions are let through from 2027-01-15T08:10:00Z on (maxProtectSeconds), or "
            "now with: kubectl patch trainingjob test -n default --type=merge -p "
            R"('{"spec":{"parameterServer":{"disruption":"Allow"}}}')");
  EXPECT_EQ(plan.events[0].message, message);

  world.now += kLongest - 1;
  plan = world.Step();
  EXPECT_TRUE(plan.protected_ps.has_value());
  EXPECT_THAT(plan.events, IsEmpty()) << "it is told";
  EXPECT_EQ(Reason(plan), "1 NodeCordoned");

  world.now += 1;
  plan = world.Step();
  EXPECT_FALSE(plan.protected_ps.has_value());
  EXPECT_THAT(EventReasons(plan), Contains("DrainLetThrough"));
  EXPECT_EQ(Reason(plan), "0 LetThrough");

  world.now += 10 * kLongest;
  plan = world.Step();
  EXPECT_FALSE(plan.protected_ps.has_value()) << "until it has moved";
  EXPECT_THAT(EventReasons(plan), Not(Contains("DrainLetThrough")));
  world.Get(kPs, 0).node = "node-2";
  plan = world.Step();
  EXPECT_TRUE(plan.protected_ps.has_value());
  EXPECT_EQ(Reason(plan), "0 NothingWaits");
}

TEST(DisruptionTest, TheTimeBeginsAnewWithEachDrain) {
  FakeWorld world = TrainingOnNodes();
  for (int drain = 0; drain < 3; ++drain) {
    world.observed.cordoned_nodes = {"node-0"};
    EXPECT_THAT(EventReasons(world.Step()), ElementsAre("DrainWaits"));
    world.now += kLongest - 1;
    EXPECT_TRUE(world.Step().protected_ps.has_value());
    world.observed.cordoned_nodes.emplace().clear();  // uncordoned
    const Plan plan = world.Step();
    EXPECT_TRUE(plan.protected_ps.has_value());
    EXPECT_EQ(Reason(plan), "0 NothingWaits");
  }
}

TEST(DisruptionTest, OnlyAPsThatRunsThereIsInTheWay) {
  FakeWorld world = TrainingOnNodes(2);
  world.observed.cordoned_nodes = {"node-w", "", "node-9"};
  EXPECT_EQ(Reason(world.Step()), "") << "workers come and go";
  world.observed.cordoned_nodes = {"node-1"};
  world.Get(kPs, 1).terminating = true;
  world.Get(kPs, 1).terminating_since = world.now;
  EXPECT_EQ(Reason(world.Step()), "") << "it goes already";
  world.observed.cordoned_nodes = {"node-1", "node-0"};
  world.Get(kPs, 1).terminating = false;
  EXPECT_THAT(FindCondition(world.Step().status, kDrainWaits)->message,
              HasSubstr("ps-0 runs on node-0, ps-1 runs on node-1"));
}

TEST(DisruptionTest, AllowLetsThroughAtOnceAndProtectHoldsUpAgain) {
  FakeWorld world = TrainingOnNodes();
  world.observed.cordoned_nodes = {"node-0"};
  EXPECT_TRUE(world.Step().protected_ps.has_value());
  world.job.spec.parameter_server->disruption = api::DisruptionPolicy::kAllow;
  Plan plan = world.Step();
  EXPECT_FALSE(plan.protected_ps.has_value());
  EXPECT_EQ(Reason(plan), "0 Allowed");
  world.job.spec.parameter_server->disruption = api::DisruptionPolicy::kProtect;
  world.now += 5;
  plan = world.Step();
  EXPECT_TRUE(plan.protected_ps.has_value());
  EXPECT_THAT(EventReasons(plan), ElementsAre("DrainWaits"));
  EXPECT_EQ(FindCondition(plan.status, kDrainWaits)->last_transition_time, world.now);

  FakeWorld other = TrainingOnNodes();
  other.job.spec.parameter_server->disruption = api::DisruptionPolicy::kAllow;
  other.observed.cordoned_nodes = {"node-0"};
  plan = other.Step();
  EXPECT_FALSE(plan.protected_ps.has_value());
  EXPECT_EQ(Reason(plan), "") << "nothing waits";
}

TEST(DisruptionTest, WithoutAWordAboutTheNodesWhatIsStoredHolds) {
  FakeWorld world = TrainingOnNodes();
  world.observed.cordoned_nodes.reset();
  EXPECT_TRUE(world.Step().protected_ps.has_value()) << "nobody knows of any drain";
  world.observed.cordoned_nodes = {"node-0"};
  world.Step();
  world.observed.cordoned_nodes.reset();  // an operator that is new
  world.now += kLongest - 1;
  Plan plan = world.Step();
  EXPECT_TRUE(plan.protected_ps.has_value());
  EXPECT_EQ(Reason(plan), "1 NodeCordoned");
  world.now += 1;
  EXPECT_FALSE(world.Step().protected_ps.has_value()) << "its time runs on";
  world.now += kLongest;
  plan = world.Step();
  EXPECT_FALSE(plan.protected_ps.has_value());
  EXPECT_EQ(Reason(plan), "0 LetThrough");
}

TEST(DisruptionTest, WhereNothingCanBeLostNoDrainWaits) {
  FakeWorld fresh(1, 1);
  fresh.observed.cordoned_nodes = {"node-0"};
  fresh.Step();
  fresh.Get(kPs, 0).node = "node-0";
  EXPECT_EQ(Reason(fresh.Step()), "") << "nothing was trained yet";

  for (const CoordinatorPhase phase : {CoordinatorPhase::kDone, CoordinatorPhase::kFailed}) {
    FakeWorld world = TrainingOnNodes();
    world.observed.cordoned_nodes = {"node-0"};
    EXPECT_EQ(Reason(world.Step()), "1 NodeCordoned");
    world.now += 1;
    world.Report(phase, 100);
    EXPECT_EQ(Reason(world.Step()), "0 NothingWaits") << "the outcome is stored";
  }
  FakeWorld world = TrainingOnNodes();
  world.observed.cordoned_nodes = {"node-0"};
  world.Step();
  world.job.spec.suspend = true;
  EXPECT_EQ(Reason(world.Step()), "0 NothingWaits");
}

// Nodes are drained and used again, ps move, the policy is changed, and at times nobody knows of the nodes.
TEST(DisruptionTest, EachDrainWaitsAsLongAsItMayAndNoLonger) {
  int let_through = 0;
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Dice dice(seed);
    FakeWorld world = TrainingOnNodes(dice.Uniform(1, 3));
    std::vector<std::string> cordoned;
    bool waits = false;  // a ps is in the way, as far as anybody knows
    double since = 0;
    for (int pass = 0; pass < 60; ++pass) {
      const std::string node = absl::StrCat("node-", dice.Uniform(0, 3));
      if (dice.Chance(0.1) && std::erase(cordoned, node) == 0) cordoned.push_back(node);
      if (dice.Chance(0.1)) world.Get(kPs, 0).node = absl::StrCat("node-", dice.Uniform(0, 3));
      const bool allowed = dice.Chance(0.02);
      world.job.spec.parameter_server->disruption =
          allowed ? api::DisruptionPolicy::kAllow : api::DisruptionPolicy::kProtect;
      world.observed.cordoned_nodes.reset();
      if (dice.Chance(0.8)) world.observed.cordoned_nodes = cordoned;
      world.now += dice.Uniform(0, 120);
      const Plan plan = world.Step();

      const bool in_the_way =
          std::any_of(world.observed.instances.begin(), world.observed.instances.end(), [&](const Instance& one) {
            return one.role == kPs && std::find(cordoned.begin(), cordoned.end(), one.node) != cordoned.end();
          });
      if (allowed || (world.observed.cordoned_nodes.has_value() && !in_the_way)) {
        waits = false;
      }
      const bool begins = !allowed && !waits && world.observed.cordoned_nodes.has_value() && in_the_way;
      if (begins) {
        waits = true;
        since = world.now;
      }
      const bool over = waits && world.now >= since + kLongest;
      ASSERT_EQ(plan.protected_ps.has_value(), !allowed && !over);
      ASSERT_EQ(IsTrue(plan.status, kDrainWaits), waits && !over);
      if (waits && !over) {
        ASSERT_TRUE(plan.requeue_after.has_value() && world.now + *plan.requeue_after <= since + kLongest);
      }
      const auto told = EventReasons(plan);
      ASSERT_EQ(std::count(told.begin(), told.end(), "DrainWaits"), begins ? 1 : 0);
      let_through += static_cast<int>(std::count(told.begin(), told.end(), "DrainLetThrough"));
      ASSERT_THAT(world.MakePlanNow().events, IsEmpty()) << "planning twice tells twice";
    }
  }
  EXPECT_GE(let_through, 100);
}

// A drain of node-0 was seen to wait.
FakeWorld Draining() {
  FakeWorld world = TrainingOnNodes();
  world.job.spec.checkpoint.emplace();
  world.job.spec.checkpoint->on_disruption = api::OnDisruption{45};
  world.ReportCheckpoint("/ckpt/test/1", 5, world.now);
  world.observed.cordoned_nodes = {"node-0"};
  return world;
}

TEST(DisruptionTest, ACheckpointIsMadeBeforeADrainIsLetThrough) {
  FakeWorld world = Draining();
  Plan plan = world.Step();
  EXPECT_TRUE(plan.protected_ps.has_value());
  EXPECT_THAT(EventReasons(plan), ElementsAre("DrainWaits"));
  EXPECT_THAT(plan.events[0].message, HasSubstr("ps-0 runs on node-0: a checkpoint is made first. Evictions are let "
                                                "through when it is made, at the latest from "));
  EXPECT_LE(plan.requeue_after.value(), 45);
  const std::string first = plan.status.checkpoint_request->name;
  EXPECT_THAT(first, ::testing::StartsWith("drain-"));

  world.now += 10;
  world.AnswerRequest(RequestState::kPending);
  EXPECT_TRUE(world.Step().protected_ps.has_value());
  world.AnswerRequest(RequestState::kDone);
  world.ReportCheckpoint("/ckpt/test/2", 10, world.now);
  plan = world.Step();
  EXPECT_FALSE(plan.protected_ps.has_value());
  EXPECT_THAT(EventReasons(plan), ElementsAre("DrainLetThrough"));
  EXPECT_FALSE(plan.events[0].warning);
  EXPECT_THAT(plan.events[0].message, HasSubstr("the checkpoint before the drain is made, /ckpt/test/2"));
  EXPECT_EQ(plan.status.checkpoint_request, std::nullopt);
  plan = world.Step();
  EXPECT_FALSE(plan.protected_ps.has_value()) << "until none runs there";
  EXPECT_EQ(plan.status.checkpoint_request, std::nullopt);

  world.observed.cordoned_nodes->clear();
  EXPECT_TRUE(world.Step().protected_ps.has_value());
  world.now += 100;
  world.observed.cordoned_nodes = {"node-0"};
  plan = world.Step();
  EXPECT_TRUE(plan.protected_ps.has_value());
  EXPECT_NE(plan.status.checkpoint_request->name, first) << "a second drain is another wish";
}

TEST(DisruptionTest, ACheckpointThatFailsOrIsLateHoldsUpNoDrain) {
  FakeWorld world = Draining();
  world.Step();
  world.AnswerRequest(RequestState::kFailed);
  world.Checkpoint().error = "disk full";
  Plan plan = world.MakePlanNow();
  EXPECT_FALSE(plan.protected_ps.has_value());
  EXPECT_THAT(EventReasons(plan), Contains("DrainLetThrough"));
  EXPECT_THAT(FindCondition(plan.status, kDrainWaits)->message,
              HasSubstr("a drain waits, but the checkpoint failed: disk full; it costs all progress since the newest "
                        "checkpoint, /ckpt/test/1"));
  world.observed.report.reset();
  world.now += 44;
  EXPECT_TRUE(world.Step().protected_ps.has_value());
  world.now += 1;
  plan = world.Step();
  EXPECT_FALSE(plan.protected_ps.has_value());
  EXPECT_THAT(FindCondition(plan.status, kDrainWaits)->message, HasSubstr("the checkpoint was not made within 45 s"));
}

TEST(DisruptionTest, ADrainThatIsOverWantsNothingAnyMore) {
  FakeWorld world = Draining();
  world.Step();
  world.observed.cordoned_nodes->clear();
  const Plan plan = world.Step();
  EXPECT_EQ(plan.status.checkpoint_request, std::nullopt);
  EXPECT_TRUE(plan.protected_ps.has_value());
}

TEST(DisruptionTest, WithoutOnDisruptionADrainWaitsAndTheCheckpointIsTheCost) {
  FakeWorld world = Draining();
  world.job.spec.checkpoint->on_disruption.reset();
  const Plan plan = world.Step();
  EXPECT_EQ(plan.status.checkpoint_request, std::nullopt);
  EXPECT_THAT(plan.events.at(0).message,
              HasSubstr("it would cost all progress since the newest checkpoint, /ckpt/test/1 (update 5"));
  world.now += kLongest - 1;
  EXPECT_TRUE(world.Step().protected_ps.has_value());
}

}  // namespace
}  // namespace downpour::planner
