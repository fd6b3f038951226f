#include "operator/planner/deadline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/planner/fake_world.h"

namespace downpour::planner {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ActiveDeadlineTest, FailsTheJobThatRunsTooLong) {
  FakeWorld world(1, 1);
  world.job.spec.active_deadline_seconds = 60;
  world.job.spec.progress_deadline_seconds = 0;
  const Plan first = world.Step();
  EXPECT_EQ(first.requeue_after, 60);
  world.now += 59;
  EXPECT_FALSE(IsTrue(world.Step().status, kFailureTarget));
  world.now += 1;
  const Plan plan = world.Step();
  EXPECT_EQ(FindCondition(plan.status, kFailureTarget)->reason, "DeadlineExceeded");
  EXPECT_EQ(CountActions(plan, ActionType::kStop), 3);
}

TEST(ActiveDeadlineTest, StartsAnewOnResume) {
  FakeWorld world(1, 1);
  world.job.spec.active_deadline_seconds = 60;
  world.Step();
  world.now += 59;
  world.job.spec.suspend = true;
  world.Step();
  world.EndTerminating();
  world.now += 1000;
  world.Step();
  world.job.spec.suspend = false;
  world.Step();
  world.now += 59;
  EXPECT_FALSE(IsTrue(world.Step().status, kFailureTarget));
  world.now += 1;
  EXPECT_TRUE(IsTrue(world.Step().status, kFailureTarget));
}

// However the advances and the passes fall, a hang is never found before the deadline since the last advance, and not
// later than the deadline and twice a tenth of it.
TEST(ProgressDeadlineTest, NeverEarlyAndNotMuchLate) {
  for (int period = 1; period <= 12; ++period) {
    for (int last_advance = 5; last_advance <= 40; last_advance += 7) {
      FakeWorld world(1, 1);
      world.job.spec.progress_deadline_seconds = 50;
      world.Step();
      const double start = world.now;
      double advanced_at = start;
      std::uint64_t updates = 0;
      while (!IsTrue(world.job.status, kFailureTarget)) {
        world.now += period;
        ASSERT_LT(world.now, start + 200);
        if (world.now - start <= last_advance) {
          ++updates;
          advanced_at = world.now;
        }
        world.Report(CoordinatorPhase::kTraining, updates);
        world.Step();
      }
      EXPECT_GE(world.now, advanced_at + 50);
      EXPECT_LE(world.now, advanced_at + 60 + 2 * period);
    }
  }
}

TEST(ProgressDeadlineTest, RunsOnWhileTheCoordinatorDoesNotAnswer) {
  for (const bool ever_answered : {false, true}) {
    FakeWorld world = ever_answered ? FakeWorld::Training(1, 1) : FakeWorld(1, 1);
    world.job.spec.progress_deadline_seconds = 100;
    world.Step();
    world.now += 100;
    EXPECT_FALSE(IsTrue(world.Step().status, kFailureTarget)) << "silence alone is no failure";
    world.now += 10;
    const Plan plan = world.Step();
    EXPECT_EQ(FindCondition(plan.status, kFailureTarget)->reason, "ProgressDeadlineExceeded");
    EXPECT_EQ(plan.status.failures.back().cause, "Hang");
  }
}

// Where many jobs run, a coordinator is asked less often than its deadline passes.
TEST(ProgressDeadlineTest, WaitsForAnAnswerThatIsYetToCome) {
  for (const bool advances : {true, false}) {
    FakeWorld world = FakeWorld::Training(1, 1);
    world.job.spec.progress_deadline_seconds = 30;
    std::uint64_t updates = 10;
    for (int answer = 0; answer < 5 && !IsTrue(world.job.status, kFailureTarget); ++answer) {
      world.observed.answer_due = world.now + 50;
      for (int i = 0; i < 45; ++i) {
        world.now += 1;
        ASSERT_FALSE(IsTrue(world.Step().status, kFailureTarget));
      }
      if (advances) updates += 100;
      world.Report(CoordinatorPhase::kTraining, updates);
      world.Step();
    }
    EXPECT_EQ(IsTrue(world.job.status, kFailureTarget), !advances);
  }
}

// As for a leader that is new: the stored time is old, and the coordinator was just asked.
TEST(ProgressDeadlineTest, BeforeTheFirstAnswerNothingIsDecided) {
  FakeWorld world = FakeWorld::Training(1, 1);
  world.job.spec.progress_deadline_seconds = 30;
  world.now += 100;
  world.observed.report.reset();
  world.observed.answer_due = world.now + 7;
  const Plan plan = world.Step();
  EXPECT_FALSE(IsTrue(plan.status, kFailureTarget));
  ASSERT_TRUE(plan.requeue_after.has_value());
  EXPECT_LE(*plan.requeue_after, 7);
  world.now += 7;
  EXPECT_TRUE(IsTrue(world.Step().status, kFailureTarget)) << "none came";
}

TEST(ProgressDeadlineTest, ZeroIsOff) {
  FakeWorld world(1, 1);
  world.job.spec.progress_deadline_seconds = 0;
  world.Step();
  world.now += 1e7;
  EXPECT_FALSE(IsTrue(world.Step().status, kFailureTarget));
}

TEST(ProgressDeadlineTest, ANewGenerationCountsFromTheBeginning) {
  FakeWorld world = FakeWorld::Training(1, 1);
  world.now += 100;
  world.Report(CoordinatorPhase::kTraining, 5000);
  world.Step();
  const double before = *world.job.status.last_progress_time;
  world.now += 100;
  world.Report(CoordinatorPhase::kTraining, 0, 2);
  world.Step();
  EXPECT_EQ(world.job.status.last_progress_time, before) << "starting over is no progress";
  world.now += 100;
  world.Report(CoordinatorPhase::kTraining, 1, 2);
  world.Step();
  EXPECT_EQ(world.job.status.last_progress_time, world.now);
}

TEST(PendingTimeoutTest, ARuleMayNameWhatTheContainerWaitedFor) {
  for (const bool no_image : {true, false}) {
    FakeWorld world(1, 1);
    api::FailurePolicy& policy = world.job.spec.failure_policy;
    policy.pending_timeout_seconds = 30;
    policy.rules.resize(1);
    policy.rules[0].name = "no-image";
    policy.rules[0].on_container_reasons = {"ErrImagePull", "ImagePullBackOff"};
    policy.rules[0].action = api::RestartAction::kFailJob;
    world.Step();
    world.Get(api::Role::kWorker, 0).phase = InstancePhase::kPending;
    if (no_image) world.Get(api::Role::kWorker, 0).waiting_reason = "ImagePullBackOff: Back-off pulling";
    FakeWorld deleted = world;
    world.now += 30;
    const Plan plan = world.Step();
    EXPECT_EQ(IsTrue(plan.status, kFailureTarget), no_image);
    EXPECT_EQ(plan.status.failures.back().cause, "PendingTimeout");
    // Somebody's deletion of a pod that waits is no such end.
    deleted.Get(api::Role::kWorker, 0).terminating = true;
    EXPECT_FALSE(IsTrue(deleted.Step().status, kFailureTarget));
  }
}

TEST(PendingTimeoutTest, StopsCountsAndReplaces) {
  FakeWorld world(1, 1);
  world.job.spec.failure_policy.pending_timeout_seconds = 30;
  world.Step();
  Instance& worker = world.Get(api::Role::kWorker, 0);
  worker.phase = InstancePhase::kPending;
  const Plan waiting = world.Step();
  EXPECT_EQ(waiting.requeue_after, 30);
  world.now += 30;
  Plan plan = world.MakePlanNow();
  world.Apply(plan.actions.at(0), plan);  // stored, and the planner dies before the stop
  plan = world.Step();
  EXPECT_EQ(CountActions(plan, ActionType::kStop), 1);
  EXPECT_EQ(plan.status.failures.back().cause, "PendingTimeout");
  EXPECT_EQ(plan.status.restarts_counted, 1);
  EXPECT_THAT(Starts(plan), IsEmpty());
  EXPECT_THAT(Starts(world.Step()), IsEmpty()) << "the old one is still there";
  world.EndTerminating();
  plan = world.Step();
  EXPECT_THAT(Starts(plan), ElementsAre("worker-0#2"));
  EXPECT_EQ(plan.status.restarts_total, 1);
}

}  // namespace
}  // namespace downpour::planner
