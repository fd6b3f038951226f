#include "operator/planner/avoid_nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "operator/planner/fake_world.h"

namespace downpour::planner {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

FakeWorld World(int after_failures = 2, int for_seconds = 3600) {
  FakeWorld world = FakeWorld::Training(1, 3);
  world.job.spec.progress_deadline_seconds = 0;
  world.job.spec.failure_policy.backoff = {0, 0};
  world.job.spec.scheduling.emplace();
  world.job.spec.scheduling->avoid_nodes = api::AvoidNodes{after_failures, for_seconds};
  return world;
}

void FailOn(FakeWorld& world, int index, const std::string& node) {
  world.Get(api::Role::kWorker, index).node = node;
  world.Fail(api::Role::kWorker, index, 139);
}

std::vector<std::string> AvoidedByStarts(const Plan& plan) {
  for (const Action& action : plan.actions) {
    if (action.type == ActionType::kStart) return action.avoid_nodes;
  }
  ADD_FAILURE() << "nothing is started";
  return {};
}

TEST(AvoidNodesTest, RepeatedFailuresOnANodeKeepNewPodsAwayFromItForAWhile) {
  FakeWorld world = World();
  FailOn(world, 0, "bad");
  Plan plan = world.Step();
  EXPECT_THAT(AvoidedByStarts(plan), IsEmpty());
  EXPECT_THAT(EventReasons(plan), Not(Contains("NodeAvoided")));

  world.now += 10;
  FailOn(world, 1, "bad");
  plan = world.Step();
  EXPECT_THAT(AvoidedByStarts(plan), ElementsAre("bad"));
  EXPECT_THAT(EventReasons(plan), Contains("NodeAvoided"));
  ASSERT_EQ(plan.status.nodes.size(), 1u);
  EXPECT_EQ(plan.status.nodes[0].avoided_until, world.now + 3600);

  world.now += 3599;
  FailOn(world, 1, "good");
  EXPECT_THAT(AvoidedByStarts(world.Step()), ElementsAre("bad"));
  EXPECT_LE(*world.Step().requeue_after, 1);
  world.now += 1;
  plan = world.Step();
  EXPECT_THAT(EventReasons(plan), ElementsAre("NodeUsedAgain"));
  FailOn(world, 2, "good");
  EXPECT_THAT(AvoidedNodes(world.Step().status), ElementsAre("good")) << "it counts from the beginning";
}

TEST(AvoidNodesTest, FailuresOnDifferentNodesOrLongAgoDoNotAddUp) {
  FakeWorld world = World();
  world.job.spec.failure_policy.window_seconds = 100;
  FailOn(world, 0, "one");
  FailOn(world, 1, "two");
  world.Step();
  world.now += 100;
  FailOn(world, 0, "one");
  EXPECT_THAT(AvoidedByStarts(world.Step()), IsEmpty());
}

TEST(AvoidNodesTest, TheLossOfANodeCountsAndAWishDoesNot) {
  struct Case {
    const char* reason;
    const char* disruption;
    bool counts;
  };
  for (const Case& one : {Case{"NodeLost", "", true}, Case{"OOMKilled", "", true}, Case{"", "", true},
                          Case{"", "DeletionByTaintManager", true}, Case{"Evicted", "TerminationByKubelet", true},
                          Case{"", "PreemptionByScheduler", false}, Case{"", "EvictionByEvictionAPI", false},
                          Case{"Preempted", "", false}}) {
    FakeWorld world = World(/*after_failures=*/1);
    FailOn(world, 0, "node");
    Instance& instance = world.Get(api::Role::kWorker, 0);
    instance.reason = one.reason;
    instance.disruption = one.disruption;
    if (!instance.disruption.empty()) instance.conditions = {{"DisruptionTarget", "True"}};
    EXPECT_EQ(AvoidedNodes(world.Step().status).size(), one.counts ? 1u : 0u) << one.reason << one.disruption;
  }
}

TEST(AvoidNodesTest, APodThatWaitsBecauseOfItIsMadeAnewWhenItIsOver) {
  FakeWorld world = World(/*after_failures=*/1, /*for_seconds=*/60);
  world.start_phase = InstancePhase::kPending;
  FailOn(world, 0, "only");
  world.Step();
  const int restarts = world.job.status.restarts_total;
  world.now += 60;
  Plan plan = world.Step();
  EXPECT_EQ(CountActions(plan, ActionType::kStop), 1);
  world.EndTerminating();
  plan = world.Step();
  EXPECT_THAT(AvoidedByStarts(plan), IsEmpty());
  EXPECT_EQ(plan.status.restarts_total, restarts);
}

TEST(AvoidNodesTest, NothingIsRememberedUnlessItIsAskedFor) {
  FakeWorld world = World(1);
  world.job.spec.scheduling->avoid_nodes.reset();
  FailOn(world, 0, "node");
  EXPECT_THAT(world.Step().status.nodes, IsEmpty());

  FakeWorld processes = World(1);
  FailOn(processes, 0, "");
  EXPECT_THAT(processes.Step().status.nodes, IsEmpty());
}

TEST(AvoidNodesTest, TheStatusDoesNotGrowWithTheCluster) {
  FakeWorld world = World();
  world.job.spec.failure_policy.max_restarts = 100000;
  world.job.spec.failure_policy.max_restarts_per_replica = 100000;
  world.job.spec.failure_policy.window_seconds = 0;
  for (int node = 0; node < 300; ++node) {
    FailOn(world, node % 3, absl::StrCat("node-", node));
    world.Step();
    world.now += 1;
  }
  EXPECT_EQ(world.job.status.nodes.size(), 100u);
}

}  // namespace
}  // namespace downpour::planner
