#include "operator/planner/suspend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/planner/fake_world.h"

namespace downpour::planner {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(SuspendTest, StopsSaysWhatIsLostAndStartsAnew) {
  FakeWorld world = FakeWorld::Training(1, 1);
  world.job.spec.suspend = true;
  world.now += 1;
  Plan plan = world.Step();
  EXPECT_EQ(CountActions(plan, ActionType::kStop), 3);
  EXPECT_THAT(EventReasons(plan), ElementsAre("JobSuspended"));
  EXPECT_EQ(FindCondition(plan.status, kSuspended)->message,
            "the job is suspended; its progress is lost since no checkpoint is configured");
  EXPECT_EQ(plan.status.phase, "Suspended");

  // Resumed before all has ended: nothing of the old run may meet the new one.
  world.job.spec.suspend = false;
  world.now += 1;
  plan = world.Step();
  EXPECT_THAT(Starts(plan), IsEmpty());
  EXPECT_EQ(plan.status.phase, "Suspended");

  world.now += 1;
  world.EndTerminating();
  plan = world.Step();
  EXPECT_THAT(Starts(plan), ElementsAre("coordinator-0#2", "ps-0#2", "worker-0#2"));
  EXPECT_EQ(plan.status.start_time, world.now);
  EXPECT_EQ(plan.status.last_progress_step, 0u);
  EXPECT_EQ(plan.status.restarts_total, 0) << "what was stopped did not fail";
  EXPECT_FALSE(IsTrue(plan.status, kSuspended));
  EXPECT_EQ(plan.status.phase, "Pending");

  plan = world.Step();
  EXPECT_THAT(Starts(plan), IsEmpty());
  EXPECT_EQ(plan.status.phase, "Starting") << "the report is of the run before";
}

// With a store, and a newest checkpoint that is 7 s old.
FakeWorld TrainingWithCheckpoints() {
  FakeWorld world = FakeWorld::Training(2, 1);
  world.job.metadata.generation = 3;
  world.job.spec.checkpoint.emplace();
  world.ReportCheckpoint("/ckpt/test/1", 5, world.now - 6);
  world.Step();
  world.job.spec.suspend = true;
  world.job.metadata.generation = 4;
  world.now += 1;
  return world;
}

TEST(SuspendTest, ACheckpointIsMadeFirst) {
  FakeWorld world = TrainingWithCheckpoints();
  Plan plan = world.Step();
  EXPECT_EQ(CountActions(plan, ActionType::kStop), 0);
  EXPECT_THAT(plan.events, IsEmpty());
  EXPECT_EQ(plan.status.checkpoint_request->name, "suspend-4");
  EXPECT_FALSE(IsTrue(plan.status, kSuspended));
  EXPECT_EQ(FindCondition(plan.status, kSuspended)->message, "making a checkpoint before it is suspended");
  EXPECT_EQ(plan.status.phase, "Running");
  EXPECT_EQ(plan.status.reason, "MakingCheckpoint");
  EXPECT_LE(plan.requeue_after.value(), 60);

  world.now += 1;
  world.AnswerRequest(RequestState::kPending);
  world.job.metadata.generation = 5;
  world.Fail(api::Role::kWorker, 0, 1);
  plan = world.Step();
  EXPECT_EQ(plan.status.checkpoint_request->name, "suspend-4") << "another change of the job asks for no other";
  EXPECT_THAT(plan.actions, ElementsAre(::testing::Field(&Action::type, ActionType::kStoreStatus)))
      << "nobody is replaced";

  world.AnswerRequest(RequestState::kDone);
  world.ReportCheckpoint("/ckpt/test/2", 12, world.now);
  plan = world.Step();
  EXPECT_EQ(CountActions(plan, ActionType::kStop), 3);
  EXPECT_THAT(EventReasons(plan), ElementsAre("JobSuspended"));
  EXPECT_EQ(FindCondition(plan.status, kSuspended)->message,
            "the job is suspended; it goes on from /ckpt/test/2 (update 12)");
  EXPECT_EQ(plan.status.checkpoint->newest, "/ckpt/test/2");
  EXPECT_EQ(plan.status.checkpoint->updates, 12u);
  EXPECT_EQ(plan.status.checkpoint_request, std::nullopt);
  EXPECT_EQ(plan.status.restarts_total, 0);
}

TEST(SuspendTest, ACheckpointThatFailsOrIsLateIsNotWaitedFor) {
  FakeWorld world = TrainingWithCheckpoints();
  world.Step();
  world.AnswerRequest(RequestState::kFailed);
  world.Checkpoint().error = "disk full";
  EXPECT_EQ(FindCondition(world.MakePlanNow().status, kSuspended)->message,
            "the job is suspended although the checkpoint failed: disk full; progress since the newest checkpoint is "
            "lost: /ckpt/test/1 (update 5, 7 s old)");
  world.AnswerRequest(RequestState::kPending);
  world.Checkpoint().error.clear();
  world.now += 59.5;
  EXPECT_EQ(CountActions(world.MakePlanNow(), ActionType::kStop), 0);
  world.now += 0.5;
  const Plan plan = world.Step();
  EXPECT_EQ(CountActions(plan, ActionType::kStop), 4);
  EXPECT_EQ(FindCondition(plan.status, kSuspended)->message,
            "the job is suspended although the checkpoint was not made within 60 s; progress since the newest "
            "checkpoint is lost: /ckpt/test/1 (update 5, 67 s old)");
}

TEST(SuspendTest, WhereNoneCanBeMadeNoneIsWaitedFor) {
  FakeWorld world = TrainingWithCheckpoints();
  world.Step();
  world.Fail(api::Role::kParameterServer, 1, 137);
  const Plan plan = world.Step();
  EXPECT_EQ(CountActions(plan, ActionType::kStop), 3);
  EXPECT_THAT(FindCondition(plan.status, kSuspended)->message,
              ::testing::StartsWith("the job is suspended while it recovers; progress since the newest checkpoint"));
}

TEST(SuspendTest, WhoChangesItsMindGoesOn) {
  FakeWorld world = TrainingWithCheckpoints();
  world.Step();
  world.job.spec.suspend = false;
  const Plan plan = world.Step();
  EXPECT_EQ(CountActions(plan, ActionType::kStop), 0);
  EXPECT_EQ(plan.status.checkpoint_request, std::nullopt);
  EXPECT_EQ(FindCondition(plan.status, kSuspended)->message, "the job goes on");
  EXPECT_THAT(world.Step().actions, IsEmpty());
}

TEST(SuspendTest, SuspendedBeforeTheStartStartsNothing) {
  FakeWorld world(1, 1);
  world.job.spec.suspend = true;
  const Plan plan = world.Step();
  EXPECT_THAT(Starts(plan), IsEmpty());
  EXPECT_EQ(FindCondition(plan.status, kSuspended)->message, "the job is suspended before its start");
  EXPECT_EQ(plan.status.start_time, std::nullopt);
  const Plan again = world.Step();
  EXPECT_THAT(again.actions, IsEmpty());
  EXPECT_THAT(again.events, IsEmpty());
}

TEST(SuspendTest, StopsAreRepeatedByAPlannerThatDiedAfterStoring) {
  FakeWorld world = FakeWorld::Training(1, 1);
  world.job.spec.suspend = true;
  const Plan plan = world.MakePlanNow();
  world.Apply(plan.actions.at(0), plan);
  EXPECT_EQ(CountActions(world.Step(), ActionType::kStop), 3);
}

TEST(SuspendTest, AFinishedTrainingIsNotThrownAway) {
  FakeWorld world = FakeWorld::Training(1, 1);
  world.job.spec.suspend = true;
  world.Report(CoordinatorPhase::kDone, 100);
  world.Step();
  world.Step();
  world.EndAll();
  EXPECT_TRUE(IsTrue(world.Step().status, kComplete));
}

}  // namespace
}  // namespace downpour::planner
