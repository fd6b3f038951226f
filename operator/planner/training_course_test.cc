#include "operator/planner/training_course.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/planner/fake_world.h"

namespace downpour::planner {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(TrainingCourseTest, WhatEvaluationsDecidedIsInTheStatusAndToldOnce) {
  FakeWorld world = FakeWorld::Training(1, 2);
  EXPECT_EQ(world.job.status.training, std::nullopt);
  const auto told = [&world](const std::optional<api::TrainingStatus>& training) {
    world.now += 1;
    world.Report(CoordinatorPhase::kTraining, 50);
    world.observed.report->training = training;
    return EventReasons(world.Step());
  };
  api::TrainingStatus training;
  training.best = {.epoch = 2, .reason = "Loss was best after epoch 2", .path = ""};
  EXPECT_THAT(told(training), IsEmpty()) << "there may be a better one with each epoch";
  EXPECT_EQ(world.job.status.training, training);
  training.rate_reason = "multiplied by 0.1";
  EXPECT_THAT(told(training), ElementsAre("LearningRateReduced"));
  EXPECT_THAT(told(training), IsEmpty());
  training.rate_reason = "multiplied by 0.01";
  training.stop_reason = "stopped early after epoch 7";
  EXPECT_THAT(told(training), ElementsAre("StoppedEarly", "LearningRateReduced"));
  EXPECT_THAT(told(training), IsEmpty());
  EXPECT_EQ(world.job.status.training, training);
  // Nobody who could know has answered.
  world.observed.report.reset();
  EXPECT_THAT(EventReasons(world.Step()), IsEmpty());
  EXPECT_EQ(world.job.status.training, training);
  // A generation that went back to before it.
  EXPECT_THAT(told(std::nullopt), IsEmpty());
  EXPECT_EQ(world.job.status.training, std::nullopt);
}

TEST(TrainingCourseTest, AJobThatEndsEarlySucceedsAndKeepsWhatIsKnown) {
  FakeWorld world = FakeWorld::Training(1, 1);
  world.Report(CoordinatorPhase::kDone, 100);
  api::TrainingStatus training;
  training.stop_reason = "stopped early after epoch 7";
  training.best = {.epoch = 4, .reason = "Loss was best after epoch 4", .path = "/models/best.safetensors"};
  world.observed.report->training = training;
  world.observed.report->outcome = training.stop_reason;
  world.Step();
  world.observed.report.reset();
  world.now += 30;
  world.Step();
  world.now += world.job.spec.failure_policy.termination_timeout_seconds;
  world.Step();
  const Plan plan = world.Step();
  ASSERT_TRUE(IsTrue(plan.status, kComplete));
  EXPECT_EQ(FindCondition(plan.status, kComplete)->message,
            "training is finished and every process has ended; stopped early after epoch 7");
  EXPECT_EQ(plan.status.training, training);
}

}  // namespace
}  // namespace downpour::planner
