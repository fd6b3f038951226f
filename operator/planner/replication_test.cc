#include "operator/planner/replication.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "operator/planner/fake_world.h"

namespace downpour::planner {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr auto kPs = api::Role::kParameterServer;

FakeWorld WithStandbys(int ps = 2) {
  FakeWorld world = FakeWorld::Training(ps, 1);
  world.job.spec.parameter_server->replication_factor = 2;
  return world;
}

Plan Answer(FakeWorld& world, int in_sync, const std::vector<int>& placed, std::uint64_t updates = 20,
            std::uint64_t generation = 1) {
  world.now += 1;
  world.Report(CoordinatorPhase::kTraining, updates, generation);
  world.ReportSlices(in_sync, placed);
  return world.Step();
}

std::string Protection(const Plan& plan) {
  const api::Condition* condition = FindCondition(plan.status, kProtected);
  return condition == nullptr ? "" : absl::StrCat(condition->status, " ", condition->message);
}

TEST(ReplicationTest, AJobIsProtectedOnceEachSliceHasAStandby) {
  FakeWorld world = WithStandbys();
  Plan plan = Answer(world, 3, {0, 1});
  EXPECT_EQ(Protection(plan), "0 3 of 10 slices have a standby that is in sync; slices are copied");
  EXPECT_THAT(EventReasons(plan), IsEmpty()) << "as it begins";
  EXPECT_EQ(plan.status.slices, (api::SlicesStatus{10, 3, 0, {0, 1}}));
  plan = Answer(world, 10, {0, 1});
  EXPECT_EQ(Protection(plan), "1 each of the 10 slices has a standby that is in sync");
  EXPECT_THAT(EventReasons(plan), ElementsAre("Protected"));
  EXPECT_FALSE(plan.events[0].warning);
  EXPECT_THAT(EventReasons(Answer(world, 10, {0, 1})), IsEmpty());
  plan = Answer(world, 9, {0, 1});
  EXPECT_EQ(Protection(plan), "0 9 of 10 slices have a standby that is in sync; slices are copied");
  EXPECT_THAT(EventReasons(plan), ElementsAre("Degraded"));
  EXPECT_TRUE(plan.events[0].warning);
  EXPECT_THAT(EventReasons(Answer(world, 8, {0, 1})), IsEmpty());
}

TEST(ReplicationTest, AJobWithoutStandbysIsNeither) {
  FakeWorld world = FakeWorld::Training(2, 1);
  const Plan plan = Answer(world, 0, {0, 1});
  EXPECT_EQ(Protection(plan), "");
  EXPECT_EQ(plan.status.slices, (api::SlicesStatus{10, 0, 0, {0, 1}}));
}

TEST(ReplicationTest, TheLossOfAPsWithStandbysLosesNothing) {
  FakeWorld world = WithStandbys();
  Answer(world, 10, {0, 1});
  world.start_phase = InstancePhase::kPending;
  world.Fail(kPs, 1, 137);
  Plan plan = world.Step();
  EXPECT_THAT(EventReasons(plan), Contains("PsLost"));
  EXPECT_THAT(plan.events[0].message, HasSubstr("ps-1 ended (killed by signal 9); standbys take over, nothing that was "
                                                "acknowledged is lost"));
  EXPECT_FALSE(IsTrue(plan.status, kParametersLost));
  EXPECT_TRUE(IsTrue(plan.status, kRecovering));
  EXPECT_FALSE(IsTrue(plan.status, kProtected));
  // A coordinator that has not noticed yet does not protect it again.
  plan = Answer(world, 10, {0, 1});
  EXPECT_THAT(Protection(plan), HasSubstr("0 10 of 10 slices have a standby that is in sync; missing: ps-1"));
  plan = Answer(world, 0, {0}, 30);
  EXPECT_FALSE(IsTrue(plan.status, kRecovering)) << "training goes on";
  EXPECT_FALSE(IsTrue(plan.status, kProtected));
  world.Get(kPs, 1).phase = InstancePhase::kRunning;
  EXPECT_FALSE(IsTrue(Answer(world, 10, {0, 1}, 40).status, kProtected)) << "it is no member yet";
  world.Get(kPs, 1).ready = true;
  EXPECT_TRUE(IsTrue(Answer(world, 10, {0, 1}, 50).status, kProtected));
}

TEST(ReplicationTest, WhatAnAsynchronousStandbyMayLackIsSaid) {
  FakeWorld world = WithStandbys();
  world.job.spec.parameter_server->replication = api::ReplicationSpec{api::ReplicationType::kAsync, 5};
  Answer(world, 10, {0, 1});
  world.Fail(kPs, 1, 137);
  EXPECT_THAT(world.Step().events.at(0).message, HasSubstr("up to 5 updates of each of its slices are lost"));
}

TEST(ReplicationTest, TwoAtOnceMayLoseParametersAndGoBack) {
  FakeWorld world = WithStandbys(3);
  Answer(world, 10, {0, 1, 2});
  world.Fail(kPs, 0, 137);
  world.Fail(kPs, 1, 137);
  Plan plan = world.Step();
  EXPECT_TRUE(IsTrue(plan.status, kParametersLost));
  EXPECT_THAT(FindCondition(plan.status, kParametersLost)->message, HasSubstr("parameters may be lost"));
  world.now += 1;
  world.Step();
  plan = Answer(world, 10, {0, 1, 2}, 3, 2);
  EXPECT_FALSE(IsTrue(plan.status, kParametersLost));
  EXPECT_THAT(EventReasons(plan), Contains("TrainingStartedAgain"));
}

TEST(ReplicationTest, OrLoseNothing) {
  FakeWorld world = WithStandbys(3);
  Answer(world, 8, {0, 1, 2});
  world.Fail(kPs, 0, 137);
  EXPECT_TRUE(IsTrue(world.Step().status, kParametersLost));
  EXPECT_TRUE(IsTrue(Answer(world, 8, {0, 1, 2}, 25).status, kParametersLost) || world.Get(kPs, 0).incarnation == 2);
  const Plan plan = Answer(world, 4, {1, 2}, 30);
  EXPECT_FALSE(IsTrue(plan.status, kParametersLost));
  EXPECT_FALSE(IsTrue(plan.status, kRecovering));
}

TEST(ReplicationTest, ASuspendedJobIsNotProtectedAndTellsNothing) {
  FakeWorld world = WithStandbys();
  Answer(world, 10, {0, 1});
  world.job.spec.suspend = true;
  Plan plan = world.Step();
  EXPECT_FALSE(IsTrue(plan.status, kProtected));
  EXPECT_EQ(plan.status.slices, std::nullopt);
  EXPECT_THAT(EventReasons(plan), Not(Contains("Degraded")));
  EXPECT_THAT(EventReasons(Answer(world, 10, {0, 1})), Not(Contains("Protected")));
}

TEST(ReplicationTest, TheEndOfAJobIsNoLossOfProtection) {
  FakeWorld world = WithStandbys();
  Answer(world, 10, {0, 1});
  world.now += 1;
  world.Report(CoordinatorPhase::kDone, 100);
  world.ReportSlices(10, {0, 1});
  world.Step();
  world.Get(kPs, 0).phase = InstancePhase::kSucceeded;
  EXPECT_THAT(EventReasons(world.Step()), Not(Contains("Degraded")));
}

}  // namespace
}  // namespace downpour::planner
