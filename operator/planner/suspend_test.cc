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
