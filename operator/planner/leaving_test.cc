#include "operator/planner/leaving.h"

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

// A job with standbys that trains, each of its ps on a node of its own, node-0, node-1, ...
FakeWorld TrainingOnNodes(int ps) {
  FakeWorld world = FakeWorld::Training(ps, 1);
  world.job.spec.parameter_server->replication_factor = 2;
  world.job.spec.progress_deadline_seconds = 0;
  for (int i = 0; i < ps; ++i) world.Get(kPs, i).node = absl::StrCat("node-", i);
  world.observed.cordoned_nodes.emplace();
  return world;
}

// A second later the coordinator has heard all, and answers.
Plan Answer(FakeWorld& world, int in_sync, const std::vector<int>& placed) {
  world.now += 1;
  world.Report(CoordinatorPhase::kTraining, 20);
  world.ReportSlices(in_sync, placed);
  return world.Step();
}

std::vector<int> Leaving(const Plan& plan) {
  std::vector<int> indices;
  for (const api::LeavingParameterServer& ps : plan.status.leaving_parameter_servers) indices.push_back(ps.index);
  return indices;
}

TEST(LeavingTest, ADrainWaitsUntilThePsHoldsNothingAndCostsNothing) {
  FakeWorld world = TrainingOnNodes(3);
  Answer(world, 10, {0, 1, 2});
  world.observed.cordoned_nodes = {"node-1"};
  Plan plan = world.Step();
  EXPECT_THAT(Leaving(plan), ElementsAre(1));
  EXPECT_TRUE(IsTrue(plan.status, kDrainWaits));
  EXPECT_THAT(EventReasons(plan), ElementsAre("DrainWaits"));
  EXPECT_FALSE(plan.events[0].warning);
  EXPECT_THAT(plan.events[0].message, HasSubstr("ps-1 runs on node-1: what is there goes to other parameter servers "
                                                "first, and nothing is lost. Evictions are let through of who holds "
                                                "nothing any more, of all at the latest from "));
  EXPECT_TRUE(plan.protected_ps.has_value());
  EXPECT_EQ(plan.protected_ps.value().count, 3);
  EXPECT_THAT(plan.protected_ps.value().free, IsEmpty());

  plan = Answer(world, 10, {0, 1, 2});
  EXPECT_THAT(plan.protected_ps.value().free, IsEmpty());
  plan = Answer(world, 10, {0, 2});
  EXPECT_TRUE(plan.protected_ps.has_value());
  EXPECT_EQ(plan.protected_ps.value().count, 2);
  EXPECT_THAT(plan.protected_ps.value().free, ElementsAre(1));
  EXPECT_FALSE(IsTrue(plan.status, kDrainWaits));
  EXPECT_THAT(EventReasons(plan), ElementsAre("PsEmptied"));
  EXPECT_EQ(plan.events[0].message, "ps-1 holds nothing any more: an eviction costs nothing");

  // It is evicted, and still ends.
  world.Get(kPs, 1).terminating = true;
  world.Get(kPs, 1).conditions = {{"DisruptionTarget", "True"}};
  plan = world.Step();
  EXPECT_THAT(EventReasons(plan), ElementsAre("PsLeft"));
  EXPECT_FALSE(IsTrue(plan.status, kParametersLost));
  EXPECT_FALSE(IsTrue(plan.status, kRecovering));
  EXPECT_THAT(Leaving(plan), ElementsAre(1)) << "it is to get nothing while it is there";
  world.EndTerminating();
  world.now += 1;
  plan = world.Step();
  EXPECT_THAT(Leaving(plan), IsEmpty());
  world.now += 60;
  plan = world.Step();
  EXPECT_THAT(world.Get(kPs, 1).incarnation, 2);
  world.Get(kPs, 1).node = "node-9";
  plan = Answer(world, 10, {0, 1, 2});
  EXPECT_THAT(Leaving(plan), IsEmpty());
  EXPECT_EQ(plan.protected_ps.value().count, 3);
}

TEST(LeavingTest, WithoutStandbysNobodyLeaves) {
  FakeWorld world = TrainingOnNodes(3);
  world.job.spec.parameter_server->replication_factor = 1;
  Answer(world, 0, {0, 1, 2});
  world.observed.cordoned_nodes = {"node-1"};
  const Plan plan = world.Step();
  EXPECT_THAT(Leaving(plan), IsEmpty());
  EXPECT_THAT(FindCondition(plan.status, kDrainWaits)->message, HasSubstr("it would cost all progress"));
}

TEST(LeavingTest, AsManyLeaveAtATimeAsTheOthersCanStandInFor) {
  FakeWorld world = TrainingOnNodes(4);
  Answer(world, 10, {0, 1, 2, 3});
  world.observed.cordoned_nodes = {"node-0", "node-1", "node-2"};
  EXPECT_THAT(Leaving(world.Step()), ElementsAre(0, 1));
  Answer(world, 10, {2, 3});
  world.Get(kPs, 0).node = "node-8";  // another one took its place
  EXPECT_THAT(Leaving(world.Step()), ElementsAre(1, 2));

  FakeWorld two = TrainingOnNodes(2);
  Answer(two, 10, {0, 1});
  two.observed.cordoned_nodes = {"node-0", "node-1"};
  EXPECT_THAT(Leaving(two.Step()), ElementsAre(0));
  two.Get(kPs, 1).phase = InstancePhase::kPending;
  two.job.status.leaving_parameter_servers.clear();
  EXPECT_THAT(Leaving(two.Step()), IsEmpty()) << "there is nobody else";
}

TEST(LeavingTest, AnAnswerAboutAnEarlierDrainFreesNobody) {
  FakeWorld world = TrainingOnNodes(3);
  Answer(world, 10, {0, 1, 2});
  world.observed.cordoned_nodes = {"node-1"};
  world.Step();
  EXPECT_THAT(Answer(world, 10, {0, 2}).protected_ps.value().free, ElementsAre(1));
  world.observed.cordoned_nodes->clear();
  EXPECT_THAT(Leaving(world.Step()), IsEmpty());
  world.now += 2;  // meanwhile it may have got something
  world.observed.cordoned_nodes = {"node-1"};
  Plan plan = world.Step();
  EXPECT_THAT(Leaving(plan), ElementsAre(1));
  EXPECT_THAT(plan.protected_ps.value().free, IsEmpty());
  EXPECT_THAT(Answer(world, 10, {0, 2}).protected_ps.value().free, ElementsAre(1));
  world.now += 31;
  plan = world.Step();
  EXPECT_THAT(plan.protected_ps.value().free, IsEmpty()) << "nothing has been heard for long";
  EXPECT_TRUE(IsTrue(plan.status, kDrainWaits));
}

TEST(LeavingTest, WhileNobodyKnowsOfTheNodesWhatIsStoredHolds) {
  FakeWorld world = TrainingOnNodes(3);
  Answer(world, 10, {0, 1, 2});
  world.observed.cordoned_nodes = {"node-1"};
  world.Step();
  world.observed.cordoned_nodes.reset();
  EXPECT_THAT(Leaving(world.Step()), ElementsAre(1));
  EXPECT_THAT(Answer(world, 10, {0, 2}).protected_ps.value().free, ElementsAre(1));
}

TEST(LeavingTest, WhatCannotGoElsewhereInTimeIsSavedOrLetThrough) {
  FakeWorld world = TrainingOnNodes(3);
  world.job.spec.parameter_server->max_protect_seconds = 100;
  world.job.spec.checkpoint.emplace();
  world.job.spec.checkpoint->on_disruption = api::OnDisruption{45};
  Answer(world, 10, {0, 1, 2});
  world.observed.cordoned_nodes = {"node-1"};
  Plan plan = world.Step();
  EXPECT_EQ(plan.status.checkpoint_request, std::nullopt) << "standbys take over";
  plan = Answer(world, 4, {0, 1, 2});
  EXPECT_TRUE(plan.status.checkpoint_request.has_value()) << "copies may take long";
  EXPECT_TRUE(plan.protected_ps.has_value());
  plan = Answer(world, 4, {0, 2});
  EXPECT_EQ(plan.status.checkpoint_request, std::nullopt) << "they did not";
  EXPECT_THAT(plan.protected_ps.value().free, ElementsAre(1));

  FakeWorld late = TrainingOnNodes(3);
  late.job.spec.parameter_server->max_protect_seconds = 100;
  Answer(late, 10, {0, 1, 2});
  late.observed.cordoned_nodes = {"node-1"};
  EXPECT_TRUE(late.Step().protected_ps.has_value());
  late.now += 100;
  plan = late.Step();
  EXPECT_FALSE(plan.protected_ps.has_value());
  EXPECT_THAT(EventReasons(plan), Contains("DrainLetThrough"));
}

TEST(LeavingTest, NeedlessPsAreProtectedWhileTheyHoldSomething) {
  FakeWorld world = TrainingOnNodes(4);
  world.job.spec.parameter_server->replicas = 2;
  ++world.job.metadata.generation;
  EXPECT_EQ(Answer(world, 10, {0, 1, 2, 3}).protected_ps.value().count, 4);
  EXPECT_EQ(Answer(world, 10, {0, 1, 3}).protected_ps.value().count, 3);
  world.job.spec.parameter_server->replicas = 6;
  ++world.job.metadata.generation;
  EXPECT_EQ(Answer(world, 10, {0, 1, 3}).protected_ps.value().count, 6) << "those that are to come as well";
}

TEST(LeavingTest, AJobThatTrainsNoMoreHasNobodyLeaving) {
  FakeWorld world = TrainingOnNodes(3);
  Answer(world, 10, {0, 1, 2});
  world.observed.cordoned_nodes = {"node-1"};
  EXPECT_THAT(Leaving(world.Step()), ElementsAre(1));
  world.job.spec.suspend = true;
  EXPECT_THAT(Leaving(world.Step()), IsEmpty());
  EXPECT_THAT(EventReasons(world.Step()), Not(Contains("PsEmptied")));
}

}  // namespace
}  // namespace downpour::planner
