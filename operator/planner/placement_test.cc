#include "operator/planner/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

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

// "ps-2" of each that the plan stops.
std::vector<std::string> Stops(const Plan& plan) {
  std::vector<std::string> stops;
  for (const Action& action : plan.actions) {
    if (action.type == ActionType::kStop) stops.push_back(InstanceName(action.role, action.index));
  }
  return stops;
}

// As a user does.
void WantPs(FakeWorld& world, int count) {
  world.job.spec.parameter_server->replicas = count;
  ++world.job.metadata.generation;
}

TEST(PlacementTest, MorePsStartAtOnceAndNoOtherMoves) {
  FakeWorld world = FakeWorld::Training(2, 1);
  WantPs(world, 4);
  Plan plan = world.Step();
  EXPECT_THAT(Starts(plan), ElementsAre("ps-2#1", "ps-3#1"));
  EXPECT_THAT(Stops(plan), IsEmpty());
  EXPECT_EQ(plan.status.restarts_total, 0);
}

TEST(PlacementTest, APsThatIsNotWantedEndsOnceItHoldsNothing) {
  FakeWorld world = FakeWorld::Training(4, 1);
  WantPs(world, 2);
  EXPECT_THAT(Stops(world.Step()), IsEmpty()) << "nobody knows who holds what";
  world.now += 1;
  world.Report(CoordinatorPhase::kTraining, 20);
  world.ReportSlices(0, {0, 1, 2, 3});
  EXPECT_THAT(Stops(world.Step()), IsEmpty());
  world.now += 1;
  world.Report(CoordinatorPhase::kTraining, 30);
  world.ReportSlices(0, {0, 1, 3});
  const Plan plan = world.Step();
  EXPECT_THAT(Stops(plan), ElementsAre("ps-2"));
  world.EndTerminating();
  world.now += 1;
  world.Report(CoordinatorPhase::kTraining, 40);
  world.ReportSlices(0, {0, 1});
  EXPECT_THAT(Stops(world.Step()), ElementsAre("ps-3"));
  world.EndTerminating();
  const Plan last = world.Step();
  EXPECT_EQ(last.status.restarts_total, 0);
  EXPECT_FALSE(IsTrue(last.status, kParametersLost));
  EXPECT_THAT(Starts(last), IsEmpty());
}

TEST(PlacementTest, OnlyAFreshAnswerOfTheCoordinatorThatRunsAndHasHeardItEndsAPs) {
  const auto shrunk = [] {
    FakeWorld world = FakeWorld::Training(2, 1);
    WantPs(world, 1);
    world.now += 1;
    world.Report(CoordinatorPhase::kTraining, 20);
    world.ReportSlices(0, {0});
    return world;
  };
  FakeWorld world = shrunk();
  EXPECT_THAT(Stops(world.MakePlanNow()), ElementsAre("ps-1"));
  world.observed.report->told.revision = 1;
  EXPECT_THAT(Stops(world.MakePlanNow()), IsEmpty()) << "it may just be about to be given something";
  world = shrunk();
  world.observed.report->placed_ps.clear();
  EXPECT_THAT(Stops(world.MakePlanNow()), IsEmpty()) << "unknown";
  world = shrunk();
  world.observed.report->phase = CoordinatorPhase::kRecovering;
  EXPECT_THAT(Stops(world.MakePlanNow()), IsEmpty()) << "it does not know yet";
  world = shrunk();
  world.Get(api::Role::kCoordinator, 0).created_time = world.now + 0.5;
  EXPECT_THAT(Stops(world.MakePlanNow()), IsEmpty()) << "that was another coordinator";
  world = shrunk();
  world.now += 31;
  EXPECT_THAT(Stops(world.MakePlanNow()), IsEmpty()) << "old";
  world = shrunk();
  WantPs(world, 2);
  EXPECT_THAT(Stops(world.MakePlanNow()), IsEmpty()) << "it is wanted again";
}

TEST(PlacementTest, APsThatEndsWhileItIsNotWantedIsCountedAndNotReplaced) {
  FakeWorld world = FakeWorld::Training(3, 1);
  WantPs(world, 2);
  world.Step();
  world.Fail(kPs, 2, 137);
  const Plan plan = world.Step();
  EXPECT_EQ(plan.status.restarts_total, 1);
  EXPECT_TRUE(IsTrue(plan.status, kParametersLost)) << "it may have held something";
  EXPECT_THAT(Starts(plan), IsEmpty());
}

TEST(PlacementTest, WorkersFollowTheSpec) {
  FakeWorld world = FakeWorld::Training(2, 3);
  world.job.spec.worker.replicas = 1;
  Plan plan = world.Step();
  EXPECT_THAT(Stops(plan), ElementsAre("worker-1", "worker-2"));
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
