#include "operator/planner/success.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/planner/fake_world.h"

namespace downpour::planner {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr auto kWorker = api::Role::kWorker;

TEST(SuccessTest, OutcomeIsStoredThenProcessesAreToldThenTheJobIsComplete) {
  FakeWorld world = FakeWorld::Training(1, 2);
  world.now += 1;
  world.Report(CoordinatorPhase::kDone, 100);
  Plan plan = world.Step();
  ASSERT_EQ(plan.actions.size(), 1u);
  EXPECT_EQ(plan.actions[0].type, ActionType::kStoreStatus);
  EXPECT_TRUE(IsTrue(plan.status, kSuccessCriteriaMet));
  EXPECT_EQ(plan.requeue_after, 0);
  EXPECT_EQ(plan.status.phase, "Finishing");
  EXPECT_THAT(EventReasons(plan), IsEmpty());

  plan = world.Step();
  EXPECT_EQ(CountActions(plan, ActionType::kFinish), 1);
  EXPECT_EQ(CountActions(plan, ActionType::kStop), 0);
  EXPECT_FALSE(IsTrue(plan.status, kComplete));

  world.Fail(kWorker, 0, 137);  // no failure any more
  world.End(world.Get(kWorker, 1), InstancePhase::kSucceeded, 0);
  world.now += 1;
  plan = world.Step();
  EXPECT_THAT(Starts(plan), IsEmpty());
  EXPECT_EQ(plan.status.restarts_total, 0);
  EXPECT_TRUE(IsTrue(plan.status, kComplete));
  EXPECT_EQ(plan.status.phase, "Succeeded");
  EXPECT_EQ(plan.status.completion_time, world.now);
  EXPECT_THAT(EventReasons(plan), ElementsAre("JobSucceeded"));

  world.now += 1000;
  world.observed.instances.clear();
  plan = world.Step();
  EXPECT_THAT(plan.events, IsEmpty());
  EXPECT_EQ(plan.requeue_after, std::nullopt);
  EXPECT_EQ(CountActions(plan, ActionType::kStart), 0);
  EXPECT_EQ(plan.status.completion_time, world.now - 1000);
}

TEST(SuccessTest, WhatIsMissingIsToldOnce) {
  FakeWorld world = FakeWorld::Training(1, 1);
  world.Report(CoordinatorPhase::kDone, 100);
  world.observed.report->warnings = {"the evaluation could not be made"};
  Plan plan = world.Step();
  EXPECT_TRUE(IsTrue(plan.status, kSuccessCriteriaMet)) << "the model is there";
  ASSERT_THAT(EventReasons(plan), ElementsAre("TrainingIncomplete"));
  EXPECT_TRUE(plan.events[0].warning);
  EXPECT_EQ(plan.events[0].message, "the evaluation could not be made");
  EXPECT_THAT(EventReasons(world.Step()), IsEmpty());
}

// Also once the coordinator that knew it is gone.
TEST(SuccessTest, HowASearchEndedIsTold) {
  FakeWorld world = FakeWorld::Training(1, 1);
  world.Report(CoordinatorPhase::kDone, 100);
  world.observed.report->outcome = "converged after 12 iterations";
  world.Step();
  world.observed.report.reset();
  world.now += 30;
  EXPECT_THAT(FindCondition(world.Step().status, kSuccessCriteriaMet)->message,
              StartsWith("training is finished and the model is stored; converged after 12 iterations; 30 s later"));
  world.now += world.job.spec.failure_policy.termination_timeout_seconds;
  world.Step();
  const Plan plan = world.Step();
  EXPECT_EQ(FindCondition(plan.status, kSuccessCriteriaMet)->message,
            "training is finished and the model is stored; converged after 12 iterations");
  EXPECT_EQ(FindCondition(plan.status, kComplete)->message,
            "training is finished and every process has ended; converged after 12 iterations");
}

TEST(SuccessTest, WhatDoesNotEndIsStoppedThenForced) {
  FakeWorld world = FakeWorld::Training(1, 1);
  world.Report(CoordinatorPhase::kDone, 100);
  world.Step();
  Plan plan = world.Step();
  EXPECT_EQ(plan.requeue_after, 30);
  world.now += 30;
  plan = world.Step();
  EXPECT_EQ(CountActions(plan, ActionType::kStop), 1) << "the worker";
  EXPECT_EQ(CountActions(plan, ActionType::kFinish), 0);
  world.now += world.job.spec.failure_policy.termination_timeout_seconds;
  plan = world.Step();
  EXPECT_EQ(CountActions(plan, ActionType::kForceStop), 1);
  EXPECT_TRUE(IsTrue(world.Step().status, kComplete));
}

TEST(SuccessTest, WhatDoesNotEndIsNamedAndTheContainerThatRunsInIt) {
  FakeWorld world = FakeWorld::Training(1, 3);
  world.Report(CoordinatorPhase::kDone, 100);
  world.Step();
  EXPECT_EQ(FindCondition(world.Step().status, kSuccessCriteriaMet)->message,
            "training is finished and the model is stored")
      << "they may take a moment";
  world.End(world.Get(kWorker, 0), InstancePhase::kSucceeded, 0);
  world.Get(kWorker, 1).running_containers = {"sidecar"};
  world.Get(kWorker, 2).running_containers = {"trainer", "proxy"};
  world.now += 30;
  EXPECT_EQ(FindCondition(world.Step().status, kSuccessCriteriaMet)->message,
            "training is finished and the model is stored; 30 s later these have not ended: worker-1 (container "
            "sidecar), worker-2 (containers trainer, proxy)");
  EXPECT_EQ(world.job.status.phase, "Finishing");
  world.EndTerminating();
  const Plan plan = world.Step();
  EXPECT_TRUE(IsTrue(plan.status, kComplete));
  EXPECT_EQ(FindCondition(plan.status, kSuccessCriteriaMet)->message, "training is finished and the model is stored");
}

TEST(SuccessTest, OfManyThatDoNotEndAFewAreNamed) {
  FakeWorld world = FakeWorld::Training(1, 9);
  world.Report(CoordinatorPhase::kDone, 100);
  world.Step();
  world.Step();
  world.now += 30;
  EXPECT_THAT(FindCondition(world.Step().status, kSuccessCriteriaMet)->message,
              EndsWith("worker-0, worker-1, worker-2 and 6 more"));
}

TEST(SuccessTest, AReportFromBeforeThisStartSaysNothing) {
  FakeWorld world(1, 1);
  world.Report(CoordinatorPhase::kDone, 100);
  world.now += 1;
  EXPECT_FALSE(IsTrue(world.Step().status, kSuccessCriteriaMet));
  EXPECT_FALSE(IsTrue(world.Step().status, kSuccessCriteriaMet));
}

TEST(AbortTest, FailureTargetIsStoredEverythingStoppedThenFailed) {
  FakeWorld world = FakeWorld::Training(1, 2);
  world.Report(CoordinatorPhase::kFailed);
  world.observed.report->message = "data shard 7 failed three times";
  Plan plan = world.Step();
  EXPECT_EQ(plan.actions.front().type, ActionType::kStoreStatus);
  EXPECT_EQ(CountActions(plan, ActionType::kStop), 4);
  EXPECT_THAT(EventReasons(plan), ElementsAre("JobFailing"));
  EXPECT_FALSE(IsTrue(plan.status, kFailed));
  plan = world.Step();
  EXPECT_FALSE(IsTrue(plan.status, kFailed)) << "processes are still there";
  EXPECT_EQ(plan.status.completion_time, std::nullopt);
  world.EndTerminating();
  plan = world.Step();
  EXPECT_TRUE(IsTrue(plan.status, kFailed));
  EXPECT_EQ(FindCondition(plan.status, kFailed)->message, "data shard 7 failed three times");
  EXPECT_EQ(plan.status.phase, "Failed");
  EXPECT_EQ(plan.status.reason, "TrainingFailed");
  EXPECT_EQ(plan.status.completion_time, world.now);
  EXPECT_THAT(EventReasons(plan), ElementsAre("JobFailed"));
  EXPECT_EQ(plan.status.restarts_total, 0);
  EXPECT_THAT(world.Step().actions, IsEmpty());
}

TEST(AbortTest, ADataShardThatEndsItsWorkersHasAReasonOfItsOwn) {
  FakeWorld world = FakeWorld::Training(1, 1);
  world.now += 1;
  world.Report(CoordinatorPhase::kFailed, 10);
  world.observed.report->message = "data shard 7 of epoch 1 ended 3 workers that held it";
  world.observed.report->failure_reason = "DataShardFailed";
  const Plan plan = world.Step();
  EXPECT_EQ(plan.status.reason, "DataShardFailed");
  EXPECT_EQ(FindCondition(plan.status, kFailureTarget)->message, world.observed.report->message);
}

TEST(AbortTest, AsksForAnotherPassWhereNothingIsLeftToStop) {
  FakeWorld world(0, 1);
  world.job.spec.progress_deadline_seconds = 0;
  world.Step();
  world.Fail(api::Role::kWorker, 0, 2);
  world.Fail(api::Role::kCoordinator, 0, 2);
  EXPECT_EQ(world.Step().requeue_after, 0);
  EXPECT_TRUE(IsTrue(world.Step().status, kFailed));
}

TEST(AbortTest, StopsAreRepeatedByAPlannerThatDiedAfterStoring) {
  FakeWorld world = FakeWorld::Training(1, 1);
  world.Report(CoordinatorPhase::kFailed);
  const Plan plan = world.MakePlanNow();
  world.Apply(plan.actions.at(0), plan);
  EXPECT_EQ(CountActions(world.Step(), ActionType::kStop), 3);
}

TEST(DeletionTest, StopsEverythingAndStartsNothing) {
  FakeWorld world = FakeWorld::Training(1, 2);
  world.observed.deletion_requested = true;
  EXPECT_EQ(CountActions(world.Step(), ActionType::kStop), 4);
  world.EndTerminating();
  const Plan plan = world.Step();
  EXPECT_EQ(CountActions(plan, ActionType::kStart), 0);
  EXPECT_EQ(plan.status.restarts_total, 0);
  EXPECT_THAT(world.Step().actions, IsEmpty());
}

}  // namespace
}  // namespace downpour::planner
