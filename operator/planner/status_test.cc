#include "operator/planner/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/planner/fake_world.h"

namespace downpour::planner {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr auto kCoordinator = api::Role::kCoordinator;
constexpr auto kPs = api::Role::kParameterServer;
constexpr auto kWorker = api::Role::kWorker;

TEST(StatusTest, PhasesOfAStart) {
  FakeWorld world(1, 2);
  world.start_phase = InstancePhase::kPending;
  EXPECT_EQ(world.Step().status.phase, "Pending");
  EXPECT_EQ(world.Step().status.phase, "Pending");
  EXPECT_EQ(world.job.status.worker.pending, 2);
  for (Instance& instance : world.observed.instances) instance.phase = InstancePhase::kRunning;
  world.now += 1;
  EXPECT_EQ(world.Step().status.phase, "Starting");
  world.Report(CoordinatorPhase::kStarting);
  EXPECT_EQ(world.Step().status.phase, "Starting");
  world.now += 1;
  world.Report(CoordinatorPhase::kTraining);
  EXPECT_EQ(world.Step().status.phase, "Running");
  EXPECT_FALSE(IsTrue(world.job.status, kReady));
  for (Instance& instance : world.observed.instances) instance.ready = true;
  world.now += 1;
  const Plan plan = world.Step();
  EXPECT_TRUE(IsTrue(plan.status, kReady));
  EXPECT_EQ(FindCondition(plan.status, kReady)->message, "ps 1/1, workers 2/2");
  EXPECT_EQ(FindCondition(plan.status, kReady)->last_transition_time, world.now);
  EXPECT_EQ(plan.status.worker.ready, 2);
  EXPECT_EQ(plan.status.worker.replicas, 2);
  world.now += 1;
  world.Report(CoordinatorPhase::kFinishing, 5);
  EXPECT_EQ(world.Step().status.phase, "Finishing");
}

TEST(StatusTest, NothingIsStoredWhereNothingChanged) {
  FakeWorld world = FakeWorld::Training(2, 2);
  world.Step();
  world.now += 5;
  const Plan plan = world.Step();
  EXPECT_THAT(plan.actions, IsEmpty());
  EXPECT_THAT(plan.events, IsEmpty());
  EXPECT_EQ(plan.status, world.job.status);
}

TEST(StatusTest, TransitionTimeChangesOnlyWithTheStatus) {
  FakeWorld world = FakeWorld::Training(1, 2);
  world.Step();
  const double ready_at = FindCondition(world.job.status, kReady)->last_transition_time;
  world.now += 5;
  world.Get(kWorker, 0).ready = false;
  world.Step();
  const api::Condition first = *FindCondition(world.job.status, kReady);
  EXPECT_GT(first.last_transition_time, ready_at);
  world.now += 5;
  world.Get(kWorker, 1).ready = false;
  world.Step();
  const api::Condition second = *FindCondition(world.job.status, kReady);
  EXPECT_NE(first.message, second.message);
  EXPECT_EQ(first.last_transition_time, second.last_transition_time);
}

TEST(StatusTest, ParametersLostUntilTrainingUnderANewerGeneration) {
  FakeWorld world = FakeWorld::Training(1, 1);
  for (std::uint64_t generation = 1; generation <= 3; ++generation) {
    world.now += 1;
    world.Fail(kPs, 0, 137);
    world.Step();
    EXPECT_TRUE(IsTrue(world.job.status, kParametersLost));
    // The coordinator has not noticed yet.
    world.now += 1;
    world.Report(CoordinatorPhase::kTraining, 20, generation);
    world.Step();
    EXPECT_TRUE(IsTrue(world.job.status, kParametersLost));
    EXPECT_EQ(world.job.status.phase, "Recovering");
    world.now += 1;
    world.Report(CoordinatorPhase::kStarting, 0, generation + 1);
    world.Step();
    EXPECT_TRUE(IsTrue(world.job.status, kParametersLost));
    world.now += 1;
    world.Report(CoordinatorPhase::kTraining, 0, generation + 1);
    const Plan plan = world.Step();
    EXPECT_FALSE(IsTrue(plan.status, kParametersLost));
    EXPECT_FALSE(IsTrue(plan.status, kRecovering));
    EXPECT_THAT(EventReasons(plan), Contains("TrainingStartedAgain"));
    EXPECT_EQ(plan.status.phase, "Running");
  }
}

TEST(StatusTest, ProgressFallsOnlyWhenANewGenerationTrains) {
  FakeWorld world = FakeWorld::Training(1, 1);
  const auto step_after = [&world](double wait, CoordinatorPhase phase, std::uint64_t updates) {
    world.now += wait;
    world.Report(phase, updates);
    world.observed.report->updates_expected = 1000;
    const Plan plan = world.Step();
    return plan.status.progress.has_value() ? plan.status.progress->step : 0;
  };
  EXPECT_EQ(step_after(11, CoordinatorPhase::kTraining, 500), 500u);
  EXPECT_EQ(step_after(11, CoordinatorPhase::kStarting, 0), 500u) << "a coordinator that starts knows nothing yet";
  EXPECT_EQ(step_after(11, CoordinatorPhase::kRecovering, 0), 500u);
  EXPECT_EQ(step_after(11, CoordinatorPhase::kTraining, 510), 510u);
  EXPECT_EQ(step_after(1, CoordinatorPhase::kTraining, 3), 3u) << "at once, though progress was stored a second ago";
}

TEST(StatusTest, TheLastEvaluationIsShownAlthoughTheLastUpdateWasBefore) {
  FakeWorld world = FakeWorld::Training(1, 1);
  const auto progress_after = [&world](CoordinatorPhase phase, std::uint64_t updates, double error) {
    world.now += 11;
    world.Report(phase, updates);
    world.observed.report->updates_expected = 1000;
    world.observed.report->test_metrics = {{"MeanAbsoluteError", error}, {"Custom", 1234.5}};
    return world.Step().status.progress.value();
  };
  const auto expected = [](const std::string& error) {
    return std::vector<api::TestMetricStatus>{{"MeanAbsoluteError", error}, {"Custom", "1234.5000"}};
  };
  EXPECT_EQ(progress_after(CoordinatorPhase::kTraining, 500, 0.5).test_metrics, expected("0.5000"));
  EXPECT_EQ(progress_after(CoordinatorPhase::kFinishing, 1000, 0.5).step, 1000u);
  EXPECT_EQ(progress_after(CoordinatorPhase::kFinishing, 1000, 0.25).test_metrics, expected("0.5000"))
      << "only with the end or the next update";
  const api::ProgressStatus end = progress_after(CoordinatorPhase::kDone, 1000, 0.0312);
  EXPECT_EQ(end.test_metrics, expected("0.0312"));
  EXPECT_EQ(end.test_accuracy, "") << "none was measured";
  world.observed.report->test_accuracy = 0.125;  // nothing but a new evaluation is news
  world.observed.report->test_metrics.clear();   // of a coordinator that was replaced
  EXPECT_EQ(world.Step().status.progress, end);
}

TEST(StatusTest, ParametersLostWhileAPsIsMissing) {
  FakeWorld world = FakeWorld::Training(2, 1);
  world.now += 1;
  world.Fail(kPs, 0, 137);
  world.Step();
  world.now += 1;
  world.Get(kPs, 1).phase = InstancePhase::kPending;
  world.Report(CoordinatorPhase::kTraining, 0, 2);
  EXPECT_TRUE(IsTrue(world.Step().status, kParametersLost));
  world.Get(kPs, 1).phase = InstancePhase::kRunning;
  EXPECT_FALSE(IsTrue(world.Step().status, kParametersLost));
}

TEST(StatusTest, ParametersLostTogetherWithTheCoordinator) {
  FakeWorld world = FakeWorld::Training(1, 1);
  world.now += 1;
  world.Fail(kPs, 0, 137);
  world.Step();
  world.now += 1;
  world.Fail(kCoordinator, 0, 137);
  world.Step();
  world.now += 1;
  // It remembers nothing, so it counts from the first generation.
  world.Report(CoordinatorPhase::kTraining, 0, 1);
  EXPECT_FALSE(IsTrue(world.Step().status, kParametersLost));
}

TEST(StatusTest, RecoveringUntilTheNewCoordinatorReportsTraining) {
  FakeWorld world = FakeWorld::Training(1, 1);
  world.now += 1;
  world.Fail(kCoordinator, 0, 137);
  world.Step();
  EXPECT_TRUE(IsTrue(world.job.status, kRecovering));
  world.now += 1;
  EXPECT_TRUE(IsTrue(world.Step().status, kRecovering)) << "the report is of the one before";
  world.Report(CoordinatorPhase::kRecovering, 10);
  EXPECT_TRUE(IsTrue(world.Step().status, kRecovering));
  world.now += 1;
  world.Report(CoordinatorPhase::kTraining, 11);
  const Plan plan = world.Step();
  EXPECT_FALSE(IsTrue(plan.status, kRecovering));
  EXPECT_EQ(plan.status.phase, "Running");
  EXPECT_THAT(EventReasons(plan), Contains("Recovered"));
  EXPECT_THAT(EventReasons(world.Step()), Not(Contains("Recovered")));
}

TEST(StatusTest, WhereNothingIsLostNothingRecovers) {
  FakeWorld world(1, 1);
  const Plan refused = world.MakePlanNow();
  world.Apply(refused.actions[0], refused);  // stored, and refused: the coordinator is told that it is the second
  world.Step();
  world.now += 1;
  world.Report(CoordinatorPhase::kRecovering, 0);
  EXPECT_FALSE(IsTrue(world.Step().status, kRecovering));
  world.Fail(kPs, 0, 1);
  world.Step();
  EXPECT_EQ(FindCondition(world.job.status, kParametersLost), nullptr) << "training has not begun";
}

TEST(StatusTest, WhatWasKnownHoldsUntilTheCoordinatorCanHaveBeenHeard) {
  FakeWorld world = FakeWorld::Training(1, 2);
  world.Step();
  ASSERT_TRUE(IsTrue(world.job.status, kReady));
  // Whoever plans from now on has asked nobody yet.
  world.observed.report.reset();
  for (Instance& instance : world.observed.instances) instance.ready = false;
  world.observed.answer_due = world.now + 10;
  EXPECT_EQ(world.MakePlanNow().status, world.job.status);
  world.Get(kWorker, 1).phase = InstancePhase::kPending;
  EXPECT_EQ(world.MakePlanNow().status.worker.summary, "1/2") << "that one cannot be ready";
  EXPECT_FALSE(IsTrue(world.MakePlanNow().status, kReady));
  EXPECT_EQ(world.MakePlanNow().status.phase, "Running");
  world.Get(kWorker, 1).phase = InstancePhase::kRunning;
  world.now += 10;
  EXPECT_EQ(world.MakePlanNow().status.worker.summary, "0/2") << "it should have answered";
  EXPECT_FALSE(IsTrue(world.MakePlanNow().status, kReady));
}

TEST(StatusTest, ARecoveryHasFourParts) {
  FakeWorld world = FakeWorld::Training(1, 1);
  world.now += 20;
  world.Report(CoordinatorPhase::kTraining, 30);
  world.Step();
  world.Fail(kWorker, 0, 137);
  world.now += 2;  // until it is seen
  world.start_phase = InstancePhase::kPending;
  world.Step();
  EXPECT_EQ(world.job.status.recovery->phases.detect, 2);
  EXPECT_EQ(world.job.status.recovery->step, 30u);
  world.now += 3;
  Instance& worker = world.Get(kWorker, 0);
  worker.phase = InstancePhase::kRunning;
  worker.started_time = world.now;
  world.Step();
  world.now += 4;
  worker.ready = true;
  world.Report(CoordinatorPhase::kTraining, 30);
  world.Step();
  const api::RecoveryPhases phases = world.job.status.recovery->phases;
  EXPECT_EQ(phases.schedule, 3);
  EXPECT_EQ(phases.start, 4);
  EXPECT_EQ(phases.restore, std::nullopt);
  EXPECT_EQ(world.job.status.recovery->last_duration_seconds, std::nullopt) << "there is no new update";
  world.now += 5;
  world.Report(CoordinatorPhase::kTraining, 31);
  world.Step();
  EXPECT_EQ(world.job.status.recovery->phases.restore, 5);
  EXPECT_EQ(world.job.status.recovery->last_duration_seconds, 12);
  EXPECT_EQ(world.job.status.recovery->lost_updates, std::nullopt);
}

TEST(StatusTest, CountsByState) {
  FakeWorld world = FakeWorld::Training(1, 5);
  world.Get(kWorker, 0).phase = InstancePhase::kPending;
  world.Get(kWorker, 1).terminating = true;
  world.Fail(kWorker, 2, 1);
  world.job.spec.suspend = true;  // so that nothing is replaced
  const Plan plan = world.MakePlanNow();
  const api::RoleStatus& counts = plan.status.worker;
  EXPECT_EQ(counts.desired, 5);
  EXPECT_EQ(counts.pending, 1);
  EXPECT_EQ(counts.terminating, 1);
  EXPECT_EQ(counts.failed, 1);
  EXPECT_EQ(counts.ready, 2);
}

}  // namespace
}  // namespace downpour::planner
