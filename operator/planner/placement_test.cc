#include "operator/planner/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "operator/planner/fake_world.h"

namespace downpour::planner {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr auto kPs = api::Role::kParameterServer;
constexpr auto kWorker = api::Role::kWorker;

TEST(PlacementTest, FirstPlanStoresThenStartsInOrder) {
  FakeWorld world(2, 3);
  const Plan plan = world.MakePlanNow();
  ASSERT_FALSE(plan.actions.empty());
  EXPECT_EQ(plan.actions[0].type, ActionType::kStoreStatus);
  EXPECT_THAT(Starts(plan),
              ElementsAre("coordinator-0#1", "ps-0#1", "ps-1#1", "worker-0#1", "worker-1#1", "worker-2#1"));
  EXPECT_EQ(plan.actions.size(), 7u);
  EXPECT_EQ(plan.status.incarnations.size(), 6u);
  EXPECT_EQ(plan.status.start_time, world.now);
}

TEST(PlacementTest, IncarnationsAreNeverReused) {
  FakeWorld world(1, 1);
  const Plan plan = world.MakePlanNow();
  world.Apply(plan.actions[0], plan);  // stored, nothing started
  EXPECT_THAT(Starts(world.Step()), ElementsAre("coordinator-0#2", "ps-0#2", "worker-0#2"));
  EXPECT_EQ(world.job.status.restarts_total, 0);

  // A status that was lost: what is seen counts as well.
  world.job.status = {};
  world.Get(kWorker, 0).incarnation = 7;
  world.Fail(kWorker, 0, 1);
  EXPECT_THAT(Starts(world.Step()), ElementsAre("worker-0#8"));
}

// As when somebody wiped it out.
TEST(PlacementTest, OfAJobWithoutAStatusNoNumberOfAnInstanceThatIsThereIsGivenOutTwice) {
  FakeWorld world(1, 2);
  world.Step();
  world.job.status = {};
  world.Get(kWorker, 1).incarnation = 7;
  EXPECT_THAT(Starts(world.Step()), IsEmpty());
  world.Fail(kWorker, 1, 1);
  EXPECT_THAT(Starts(world.Step()), ElementsAre("worker-1#8"));
}

TEST(PlacementTest, WhatWasRefusedIsTriedAgainWithoutAWordOfReplacements) {
  FakeWorld world(1, 1);
  Plan plan = world.MakePlanNow();
  world.Apply(plan.actions[0], plan);  // stored, and refused
  world.observed.obstacle = Obstacle{"QuotaExceeded", "a pod cannot be made: exceeded quota"};
  plan = world.MakePlanNow();
  EXPECT_THAT(Starts(plan), ElementsAre("coordinator-0#2", "ps-0#2", "worker-0#2"));
  EXPECT_THAT(EventReasons(plan), ElementsAre("QuotaExceeded"));
}

TEST(PlacementTest, WaitsForTheTerminatingOneAndForcesItAfterTheTimeout) {
  FakeWorld world = FakeWorld::Training(1, 1);
  world.job.spec.failure_policy.termination_timeout_seconds = 20;
  Instance& ps = world.Get(kPs, 0);
  ps.terminating = true;
  ps.terminating_since = world.now;
  Plan plan = world.Step();
  EXPECT_THAT(Starts(plan), IsEmpty());
  EXPECT_EQ(plan.requeue_after, 20);
  world.now += 19;
  plan = world.Step();
  EXPECT_EQ(CountActions(plan, ActionType::kForceStop), 0);
  world.now += 1;
  plan = world.Step();
  EXPECT_EQ(CountActions(plan, ActionType::kForceStop), 1);
  EXPECT_THAT(Starts(plan), IsEmpty());
  EXPECT_THAT(Starts(world.Step()), ElementsAre("ps-0#2"));
}

TEST(PlacementTest, NeverForcesWhatTerminatesForAnUnknownTime) {
  FakeWorld world = FakeWorld::Training(1, 1);
  world.job.spec.progress_deadline_seconds = 0;
  world.Get(kPs, 0).terminating = true;
  world.now += 1e6;
  const Plan plan = world.Step();
  EXPECT_EQ(CountActions(plan, ActionType::kForceStop), 0);
  EXPECT_THAT(Starts(plan), IsEmpty());
}

TEST(PlacementTest, OfTwoLiveOnesTheOlderIsStopped) {
  FakeWorld world = FakeWorld::Training(1, 1);
  Instance older = world.Get(kWorker, 0);
  older.uid = "older";
  world.Get(kWorker, 0).incarnation = 2;
  world.observed.instances.push_back(older);
  const Plan plan = world.Step();
  ASSERT_EQ(CountActions(plan, ActionType::kStop), 1);
  EXPECT_EQ(plan.actions.back().uid, "older");
  EXPECT_THAT(Starts(plan), IsEmpty());
  world.EndTerminating();
  EXPECT_EQ(world.Step().status.restarts_total, 0);
}

TEST(PlacementTest, WorkersFollowTheSpecAndPsAreNeverStopped) {
  FakeWorld world = FakeWorld::Training(2, 3);
  world.job.spec.worker.replicas = 1;
  world.job.spec.parameter_server->replicas = 1;
  Plan plan = world.Step();
  EXPECT_EQ(CountActions(plan, ActionType::kStop), 2);
  for (const Action& action : plan.actions) {
    if (action.type == ActionType::kStop) {
      EXPECT_EQ(action.role, kWorker);
    }
  }
  world.EndTerminating();
  world.Step();
  world.job.spec.worker.replicas = 2;
  plan = world.Step();
  EXPECT_THAT(Starts(plan), ElementsAre("worker-1#2"));
  EXPECT_EQ(plan.status.restarts_total, 0);
}

TEST(PlacementTest, TheOrderOfTheListDoesNotMatter) {
  FakeWorld world = FakeWorld::Training(2, 3);
  world.Fail(kWorker, 2, 1);
  world.Fail(kWorker, 0, 137);
  const Plan plan = world.MakePlanNow();
  std::reverse(world.observed.instances.begin(), world.observed.instances.end());
  const Plan reversed = world.MakePlanNow();
  EXPECT_EQ(Starts(plan), Starts(reversed));
  EXPECT_EQ(plan.status.failures[0].uid, reversed.status.failures[0].uid);
}

}  // namespace
}  // namespace downpour::planner
