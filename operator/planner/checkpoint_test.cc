#include "operator/planner/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/planner/fake_world.h"

namespace downpour::planner {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kPs = api::Role::kParameterServer;

// A job with a store that trains: ten updates, of a hundred.
FakeWorld Training() {
  FakeWorld world(1, 1);
  world.job.spec.checkpoint.emplace();
  world.job.spec.checkpoint->uri = "/ckpt";
  world.now = 1'800'000'000;
  world.Step();
  world.now += 1;
  world.Report(CoordinatorPhase::kTraining, 10);
  world.Step();
  return world;
}

void Report(FakeWorld& world, std::uint64_t updates, std::uint64_t generation = 1) {
  world.now += 20;
  world.Report(CoordinatorPhase::kTraining, updates, generation);
  world.observed.report->updates_expected = 100;
}

std::string Message(const FakeWorld& world, const char* type) {
  const api::Condition* condition = FindCondition(world.job.status, type);
  return condition == nullptr ? "" : condition->message;
}

TEST(CheckpointTest, OnesThatGoWithTheirPodsAreAnnouncedAtTheStart) {
  FakeWorld world(1, 1);
  world.job.spec.checkpoint.emplace();
  world.job.spec.checkpoint->uri = "/ckpt";
  world.observed.temporary_checkpoints = "spec.parameterServer.template";
  EXPECT_THAT(EventReasons(world.Step()), ElementsAre("CheckpointTemporary"));
  EXPECT_TRUE(IsTrue(world.job.status, kCheckpointTemporary));
  EXPECT_EQ(
      Message(world, kCheckpointTemporary),
      "checkpoints go to /ckpt, which is in no volume that outlives its pod: they go with it. To keep them, mount "
      "one volume there in spec.parameterServer.template, or let them go to s3://BUCKET/PREFIX");
  EXPECT_THAT(world.Step().events, IsEmpty());
}

TEST(CheckpointTest, TheStatusHasTheNewestAndNothingIsSaidOfOneThatIsWritten) {
  FakeWorld world = Training();
  EXPECT_EQ(world.job.status.checkpoint, std::nullopt);
  Report(world, 20);
  world.Checkpoint();
  world.Step();
  EXPECT_EQ(world.job.status.checkpoint, std::nullopt) << "there is none yet";
  Report(world, 30);
  world.ReportCheckpoint("/ckpt/test/1", 25, world.now - 3);
  EXPECT_THAT(world.Step().events, IsEmpty());
  const api::CheckpointStatus first = world.job.status.checkpoint.value();
  EXPECT_EQ(first, (api::CheckpointStatus{"/ckpt/test/1", 25, world.now - 3, 0, ""}));
  Report(world, 40);
  world.ReportCheckpoint("/ckpt/test/1", 25, first.time.value() + 0.01);
  world.Step();
  EXPECT_EQ(world.job.status.checkpoint, first) << "its age is told anew each time";
  Report(world, 50);
  world.Checkpoint();
  world.Step();
  EXPECT_EQ(world.job.status.checkpoint, first) << "a coordinator that is new has not looked yet";
}

TEST(CheckpointTest, FailingIsToldOnceUntilOneIsWritten) {
  FakeWorld world = Training();
  Report(world, 20);
  world.Checkpoint().error = "disk full";
  world.Checkpoint().failed = 1;
  Plan plan = world.Step();
  EXPECT_THAT(EventReasons(plan), ElementsAre("CheckpointFailing"));
  EXPECT_TRUE(plan.events[0].warning);
  EXPECT_EQ(Message(world, kCheckpointFailing),
            "the newest checkpoint could not be made: disk full; there is none yet, so a loss costs all progress");
  EXPECT_EQ(world.job.status.checkpoint->failures, 1);

  Report(world, 30);
  world.ReportCheckpoint("/ckpt/test/1", 25, 1'800'000'000);
  world.Checkpoint().error = "disk full";
  EXPECT_THAT(world.Step().events, IsEmpty());
  EXPECT_THAT(Message(world, kCheckpointFailing),
              HasSubstr("training can go back to the newest checkpoint, /ckpt/test/1 (update 25, of "
                        "2027-01-15T08:00:00Z)"));
  Report(world, 40);
  world.Checkpoint();
  world.Step();
  EXPECT_TRUE(IsTrue(world.job.status, kCheckpointFailing)) << "a coordinator that is new has not tried yet";
  Report(world, 50);
  world.ReportCheckpoint("/ckpt/test/2", 45, world.now);
  EXPECT_THAT(world.Step().events, IsEmpty());
  EXPECT_FALSE(IsTrue(world.job.status, kCheckpointFailing));
  EXPECT_EQ(world.job.status.checkpoint->error, "");
}

TEST(CheckpointTest, WhatTrainingBeganWithIsToldOnce) {
  FakeWorld world(1, 1);
  world.job.spec.checkpoint.emplace();
  world.Step();
  world.now += 1;
  world.Report(CoordinatorPhase::kTraining, 40);
  world.observed.report->updates_expected = 100;
  world.observed.report->restoration = Restoration{"/ckpt/before/7", 40, {"8: torn"}, std::nullopt, std::nullopt};
  Plan plan = world.Step();
  ASSERT_THAT(EventReasons(plan), ElementsAre("Resumed"));
  EXPECT_FALSE(plan.events[0].warning);
  EXPECT_EQ(plan.events[0].message,
            "resumed from /ckpt/before/7 at update 40 of 100; newer ones were not used: 8: torn");
  EXPECT_EQ(FindCondition(plan.status, kResumed)->reason, "FromCheckpoint");
  EXPECT_EQ(plan.status.progress->eta_seconds, std::nullopt) << "nothing was done since";
  world.now += 20;
  world.observed.report->received_time = world.now;
  world.observed.report->updates_applied = 50;
  plan = world.Step();
  EXPECT_THAT(plan.events, IsEmpty());
  EXPECT_EQ(plan.status.progress->eta_seconds, 100) << "10 in 20 s, 50 are left";
}

TEST(CheckpointTest, ALostPsTakesTrainingBackAndSaysWhatItCosts) {
  FakeWorld world = Training();
  Report(world, 60);
  world.ReportCheckpoint("/ckpt/test/1", 50, world.now - 8);
  world.Step();
  world.Fail(kPs, 0, 137);
  Plan plan = world.Step();
  EXPECT_THAT(EventReasons(plan), ElementsAre("PsLost", "PsReplaced"));
  EXPECT_EQ(Message(world, kParametersLost),
            "parameters were lost: ps-0 ended (killed by signal 9); training goes back to the newest checkpoint, "
            "/ckpt/test/1 (update 50, of 2027-01-15T08:00:13Z) under a new generation");

  Report(world, 50, 2);
  world.observed.report->restoration = Restoration{"/ckpt/test/1", 50, {}, 12, 7.6};
  plan = world.Step();
  EXPECT_THAT(EventReasons(plan), ElementsAre("RolledBack", "Recovered"));
  EXPECT_EQ(plan.events[0].message,
            "training went on from /ckpt/test/1 (update 50; lost 12 updates, 8 s of training) under generation 2");
  EXPECT_FALSE(IsTrue(plan.status, kParametersLost));
  EXPECT_EQ(FindCondition(plan.status, kParametersLost)->reason, "RolledBack");
  EXPECT_EQ(plan.status.recovery->restored_from, "/ckpt/test/1");
  EXPECT_EQ(plan.status.recovery->lost_updates, 12u);
  EXPECT_EQ(plan.status.recovery->lost_seconds, 8);
  EXPECT_EQ(plan.status.recovery->last_duration_seconds, std::nullopt) << "nothing is trained yet";

  Report(world, 55, 2);
  world.observed.report->restoration = Restoration{"/ckpt/test/1", 50, {}, 12, 7.6};
  plan = world.Step();
  EXPECT_THAT(plan.events, IsEmpty()) << "neither rolled back nor resumed again";
  EXPECT_EQ(plan.status.recovery->last_duration_seconds, 40);
}

TEST(CheckpointTest, WhatWasLostIsReckonedWhereTheCoordinatorWasLostToo) {
  FakeWorld world = Training();
  Report(world, 60);
  world.ReportCheckpoint("/ckpt/test/1", 50, world.now - 8);
  world.Step();
  world.Fail(kPs, 0, 137);
  world.Step();
  world.now += 5;
  world.Fail(api::Role::kCoordinator, 0, 137);
  world.Step();
  Report(world, 52, 1);
  world.observed.report->restoration = Restoration{"/ckpt/test/1", 50, {}, std::nullopt, std::nullopt};
  const Plan plan = world.Step();
  EXPECT_EQ(plan.status.recovery->lost_updates, 10u);
  EXPECT_EQ(plan.status.recovery->lost_seconds, 8);
  EXPECT_THAT(EventReasons(plan), ::testing::Contains("RolledBack"));
}

TEST(CheckpointTest, WithoutOneToGoBackToEverythingIsLost) {
  FakeWorld world = Training();
  Report(world, 60);
  world.Step();
  world.Fail(kPs, 0, 137);
  world.Step();
  EXPECT_THAT(Message(world, kParametersLost), HasSubstr("no checkpoint of this job is known"));
  Report(world, 1, 2);
  const Plan plan = world.Step();
  EXPECT_THAT(EventReasons(plan), ::testing::Contains("TrainingStartedAgain"));
  EXPECT_EQ(Message(world, kParametersLost),
            "training started again under generation 2, from the beginning: there was no checkpoint to go back to");
  EXPECT_EQ(plan.status.recovery->lost_updates, 60u);
  EXPECT_EQ(plan.status.recovery->restored_from, "");
}

TEST(CheckpointTest, ARequestStaysUntilItIsMadeFailsOrIsLate) {
  FakeWorld world = Training();
  world.job.spec.checkpoint->on_disruption = api::OnDisruption{30};
  const auto want = [&world](const std::string& name) {
    Context context(world.job, world.observed, world.now);
    const RequestOutcome outcome = WantCheckpoint(context, kDrainRequest, name);
    EXPECT_TRUE(outcome != RequestOutcome::kPending || context.requeue_after.has_value());
    world.job.status = context.status;
    return outcome;
  };
  EXPECT_EQ(want("drain-1"), RequestOutcome::kPending);
  const double since = world.now;
  EXPECT_EQ(world.job.status.checkpoint_request, (api::CheckpointRequestStatus{"drain-1", since}));
  world.now += 10;
  EXPECT_EQ(want("drain-2"), RequestOutcome::kPending);
  EXPECT_EQ(world.job.status.checkpoint_request, (api::CheckpointRequestStatus{"drain-1", since})) << "the same kind";
  world.AnswerRequest(RequestState::kPending);
  EXPECT_EQ(want("drain-1"), RequestOutcome::kPending);
  world.AnswerRequest(RequestState::kDone);
  EXPECT_EQ(want("drain-1"), RequestOutcome::kMade);
  world.Checkpoint().request = "drain-0";
  EXPECT_EQ(want("drain-1"), RequestOutcome::kPending) << "that is about another one";
  world.AnswerRequest(RequestState::kFailed);
  EXPECT_EQ(want("drain-1"), RequestOutcome::kNotMade);
  world.observed.report.reset();
  world.now = since + 29;
  EXPECT_EQ(want("drain-1"), RequestOutcome::kPending);
  world.now = since + 30;
  EXPECT_EQ(want("drain-1"), RequestOutcome::kLate);
}

}  // namespace
}  // namespace downpour::planner
