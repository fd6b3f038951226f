#include "operator/planner/elastic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "operator/planner/fake_world.h"

namespace downpour::planner {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int kShrinkAfter = 60;
constexpr int kCooldown = 120;

// A job with 4 workers, 2 at the least, of which every new pod waits for a node.
FakeWorld ElasticWorld() {
  FakeWorld world = FakeWorld::Training(1, 4);
  world.job.spec.elastic = api::ElasticSpec{2, 8, kShrinkAfter, kCooldown};
  world.start_phase = InstancePhase::kPending;
  return world;
}

void Evict(FakeWorld& world, int index) {
  world.Fail(api::Role::kWorker, index, 137);
  world.Get(api::Role::kWorker, index).conditions = {{"DisruptionTarget", "True"}};
}

// The replacement waits in vain.
void Lose(FakeWorld& world, int index) {
  Evict(world, index);
  world.Step();  // counted
  world.now += 1;
  world.Step();  // replaced
  world.Get(api::Role::kWorker, index).waiting_reason = "Unschedulable: 0/3 nodes are available";
}

void SetRunning(FakeWorld& world, int index) {
  Instance& instance = world.Get(api::Role::kWorker, index);
  instance.phase = InstancePhase::kRunning;
  instance.ready = true;
}

bool Parked(const FakeWorld& world, int index) { return IsParked(world.job.status, api::Role::kWorker, index); }

TEST(ElasticTest, TheOthersTrainOnWhileTheReplacementOfAPreemptedWorkerWaits) {
  FakeWorld world = ElasticWorld();
  Evict(world, 3);
  for (int second = 0; second < kShrinkAfter; ++second) {
    world.Report(CoordinatorPhase::kTraining, 100 + static_cast<std::uint64_t>(second));
    const Plan plan = world.Step();
    EXPECT_EQ(CountActions(plan, ActionType::kStop), 0);
    EXPECT_EQ(plan.status.phase, "Running");
    EXPECT_EQ(plan.status.worker.ready, 3);
    EXPECT_EQ(plan.status.restarts_counted, 0);
    world.now += 1;
  }
}

TEST(ElasticTest, AWorkerThatFindsNoPlaceIsGivenUpAndTriedAgain) {
  FakeWorld world = ElasticWorld();
  Lose(world, 3);
  const double lost = world.now;
  world.now = lost + kShrinkAfter - 0.5;
  EXPECT_DOUBLE_EQ(*world.Step().requeue_after, 0.5);
  EXPECT_FALSE(Parked(world, 3));

  world.now = lost + kShrinkAfter;
  const int restarts = world.job.status.restarts_total;
  Plan plan = world.Step();
  EXPECT_THAT(EventReasons(plan), ElementsAre("Shrunk"));
  EXPECT_EQ(plan.events[0].message,
            "worker-3 did not start within 60 s (Unschedulable: 0/3 nodes are available); the job goes on with 3 of 4 "
            "workers");
  EXPECT_EQ(CountActions(plan, ActionType::kStop), 1);
  EXPECT_TRUE(IsTrue(plan.status, kShrunk));
  EXPECT_DOUBLE_EQ(*plan.requeue_after, kCooldown);
  EXPECT_EQ(plan.status.restarts_total, restarts);
  EXPECT_EQ(world.job.spec.worker.replicas, 4);
  world.EndTerminating();

  world.now += 1;
  world.Report(CoordinatorPhase::kTraining, 200);
  plan = world.Step();
  EXPECT_THAT(Starts(plan), IsEmpty());
  EXPECT_THAT(EventReasons(plan), Not(Contains("Shrunk")));
  EXPECT_EQ(plan.status.restarts_total, restarts) << "what the planner removed is no failure";
  EXPECT_EQ(plan.status.worker.desired, 4);
  EXPECT_EQ(plan.status.worker.replicas, 3);
  EXPECT_EQ(plan.status.worker.summary, "3/4");
  EXPECT_TRUE(IsTrue(plan.status, kReady)) << "all that the job goes on with train";
  EXPECT_TRUE(plan.status.recovery->last_duration_seconds.has_value());

  world.now = lost + kShrinkAfter + kCooldown - 1;
  EXPECT_THAT(Starts(world.Step()), IsEmpty());
  world.now += 1;
  plan = world.Step();
  EXPECT_THAT(Starts(plan), ElementsAre("worker-3#3"));
  EXPECT_THAT(EventReasons(plan), IsEmpty()) << "an attempt is no news";
  EXPECT_TRUE(IsTrue(plan.status, kShrunk));

  world.now += 1;
  SetRunning(world, 3);
  plan = world.Step();
  EXPECT_THAT(EventReasons(plan), ElementsAre("Grown"));
  EXPECT_FALSE(IsTrue(plan.status, kShrunk));
  EXPECT_THAT(plan.status.absent_workers, IsEmpty());
  EXPECT_THAT(EventReasons(world.Step()), IsEmpty());
}

TEST(ElasticTest, AnAttemptInVainIsNotToldAgainAndWaitsAsLong) {
  FakeWorld world = ElasticWorld();
  Lose(world, 3);
  world.now += kShrinkAfter;
  world.Step();
  for (int attempt = 0; attempt < 5; ++attempt) {
    world.EndTerminating();
    world.now += kCooldown;
    EXPECT_EQ(Starts(world.Step()).size(), 1u);
    world.now += kShrinkAfter - 1;
    EXPECT_EQ(CountActions(world.Step(), ActionType::kStop), 0);
    world.now += 1;
    const Plan plan = world.Step();
    EXPECT_EQ(CountActions(plan, ActionType::kStop), 1);
    EXPECT_THAT(EventReasons(plan), IsEmpty());
    EXPECT_TRUE(IsTrue(plan.status, kShrunk));
  }
  EXPECT_EQ(world.job.status.restarts_counted, 0);
}

TEST(ElasticTest, NeverBelowTheMinimum) {
  FakeWorld world = ElasticWorld();
  for (const int index : {0, 1, 2, 3}) Evict(world, index);
  world.Step();
  world.now += 1;
  world.Step();
  world.now += 10 * kShrinkAfter;
  world.job.spec.failure_policy.pending_timeout_seconds = 100 * kShrinkAfter;
  const Plan plan = world.Step();
  EXPECT_TRUE(Parked(world, 3));
  EXPECT_TRUE(Parked(world, 2));
  EXPECT_FALSE(Parked(world, 1));
  EXPECT_FALSE(Parked(world, 0));
  EXPECT_THAT(FindCondition(plan.status, kShrunk)->message, HasSubstr("2 of 4 workers: worker-2, worker-3"));

  // An attempt in vain does not swap who waits.
  world.EndTerminating();
  world.now += kCooldown;
  EXPECT_EQ(Starts(world.Step()).size(), 2u);
  world.now += kShrinkAfter;
  world.Step();
  EXPECT_TRUE(Parked(world, 2) && Parked(world, 3) && !Parked(world, 0) && !Parked(world, 1));

  // A higher minimum brings back what it needs, at once.
  world.EndTerminating();
  world.job.spec.elastic->min_replicas = 3;
  EXPECT_THAT(Starts(world.Step()), ElementsAre("worker-2#4"));
  EXPECT_TRUE(Parked(world, 3));
}

TEST(ElasticTest, WhatWasNeverMadeIsGivenUpAsWell) {
  FakeWorld world = ElasticWorld();
  world.job.spec.worker.replicas = 5;
  world.Step();
  const auto refuse = [&world] {
    std::erase_if(world.observed.instances,
                  [](const Instance& instance) { return instance.role == api::Role::kWorker && instance.index == 4; });
    world.observed.obstacle = Obstacle{"QuotaExceeded", "a pod cannot be made: exceeded quota"};
  };
  for (int second = 0; second <= kShrinkAfter; ++second) {
    refuse();
    EXPECT_FALSE(Parked(world, 4));
    world.now += 1;
    world.Step();
  }
  refuse();
  const Plan plan = world.Step();
  EXPECT_TRUE(Parked(world, 4));
  EXPECT_THAT(FindCondition(plan.status, kShrunk)->message, HasSubstr("exceeded quota"));
  EXPECT_EQ(plan.status.restarts_total, 0);
}

TEST(ElasticTest, APodThatStaysPendingOverAndOverDoesNotStartTheClockAnew) {
  FakeWorld world = ElasticWorld();
  Lose(world, 3);
  const double lost = world.now;
  world.now += kShrinkAfter - 5;
  Lose(world, 3);
  world.now = lost + kShrinkAfter;
  world.Step();
  EXPECT_TRUE(Parked(world, 3));
}

TEST(ElasticTest, AllThatWereGivenUpAreTriedTogetherAfterTheNewest) {
  FakeWorld world = ElasticWorld();
  Lose(world, 2);
  world.now += 30;
  Lose(world, 3);
  world.now += kShrinkAfter - 31;
  world.Step();
  EXPECT_TRUE(Parked(world, 2));
  EXPECT_FALSE(Parked(world, 3));
  world.now += 31;
  world.Step();
  EXPECT_TRUE(Parked(world, 3));
  world.EndTerminating();
  world.now += kCooldown - 1;
  EXPECT_THAT(Starts(world.Step()), IsEmpty());
  world.now += 1;
  EXPECT_THAT(Starts(world.Step()), ElementsAre("worker-2#3", "worker-3#3"));

  // One of them finds room.
  SetRunning(world, 2);
  const Plan plan = world.Step();
  EXPECT_THAT(EventReasons(plan), ElementsAre("Grown"));
  EXPECT_EQ(FindCondition(plan.status, kShrunk)->message, "3 of 4 workers: worker-3 given up");
  EXPECT_TRUE(IsTrue(plan.status, kShrunk));
}

TEST(ElasticTest, AParkedWorkerThatIsScaledAwayIsForgotten) {
  FakeWorld world = ElasticWorld();
  Lose(world, 3);
  world.now += kShrinkAfter;
  world.Step();
  world.EndTerminating();
  world.job.spec.worker.replicas = 3;
  const Plan plan = world.Step();
  EXPECT_THAT(plan.status.absent_workers, IsEmpty());
  EXPECT_FALSE(IsTrue(plan.status, kShrunk));
  EXPECT_THAT(EventReasons(plan), Not(Contains("Grown")));
  world.job.spec.worker.replicas = 4;
  EXPECT_THAT(Starts(world.Step()), ElementsAre("worker-3#3"));
}

TEST(ElasticTest, WithoutBoundsAllAreWantedAgain) {
  FakeWorld world = ElasticWorld();
  Lose(world, 3);
  world.now += kShrinkAfter;
  world.Step();
  world.EndTerminating();
  world.job.spec.elastic.reset();
  EXPECT_THAT(Starts(world.Step()), ElementsAre("worker-3#3"));
  EXPECT_FALSE(IsTrue(world.job.status, kShrunk));
}

TEST(ElasticTest, AResumedJobTriesEveryWorker) {
  FakeWorld world = ElasticWorld();
  Lose(world, 3);
  world.now += kShrinkAfter;
  world.Step();
  world.job.spec.suspend = true;
  EXPECT_FALSE(IsTrue(world.Step().status, kShrunk));
  world.Step();
  world.EndTerminating();
  world.job.spec.suspend = false;
  world.now += 1;
  EXPECT_EQ(Starts(world.Step()).size(), 6u);
}

TEST(ElasticTest, AWorkerThatVanishesFromAShrunkJobCounts) {
  FakeWorld world = ElasticWorld();
  Lose(world, 3);
  world.now += kShrinkAfter;
  world.Step();
  world.EndTerminating();
  world.Step();
  const int restarts = world.job.status.restarts_total;
  std::erase_if(world.observed.instances,
                [](const Instance& instance) { return instance.role == api::Role::kWorker && instance.index == 1; });
  const Plan plan = world.Step();
  EXPECT_EQ(plan.status.restarts_total, restarts + 1);
  EXPECT_EQ(plan.status.failures.back().cause, "Deleted");
}

TEST(ElasticTest, APendingTimeoutDoesNotHitWhatIsGivenUp) {
  FakeWorld world = ElasticWorld();
  world.job.spec.failure_policy.pending_timeout_seconds = kShrinkAfter;
  Lose(world, 3);
  world.now += kShrinkAfter;
  const Plan plan = world.Step();
  EXPECT_TRUE(Parked(world, 3));
  EXPECT_EQ(plan.status.restarts_counted, 0);
}

TEST(ElasticTest, AWorkerThatIsStuckInTerminatingIsEndedByForceThoughItIsParked) {
  FakeWorld world = ElasticWorld();
  Lose(world, 3);
  world.now += kShrinkAfter;
  world.Step();
  world.now += 400;
  EXPECT_EQ(CountActions(world.Step(), ActionType::kForceStop), 1);
}

TEST(ElasticTest, AShrunkJobCompletes) {
  FakeWorld world = ElasticWorld();
  Lose(world, 3);
  world.now += kShrinkAfter;
  world.Step();
  world.EndTerminating();
  world.Report(CoordinatorPhase::kDone, 1000);
  world.Step();
  for (int pass = 0; pass < 3; ++pass) {
    world.now += 1;
    world.Step();
    world.EndAll();
  }
  EXPECT_TRUE(IsTrue(world.job.status, kComplete));
}

TEST(ElasticTest, AScaleOutsideTheElasticBoundsIsClamped) {
  api::TrainingJobSpec spec;
  spec.elastic = api::ElasticSpec{2, 5};
  for (const auto& [wanted, desired] : {std::pair{1, 2}, std::pair{2, 2}, std::pair{4, 4}, std::pair{9, 5}}) {
    spec.worker.replicas = wanted;
    EXPECT_EQ(DesiredReplicas(spec, api::Role::kWorker), desired);
  }
}

TEST(ElasticTest, AScaleToZeroIsClampedToOne) {
  FakeWorld world = FakeWorld::Training(1, 2);
  world.job.spec.worker.replicas = 0;
  Plan plan = world.Step();
  EXPECT_EQ(plan.status.worker.desired, 1);
  EXPECT_EQ(CountActions(plan, ActionType::kStop), 1);
  EXPECT_EQ(FindCondition(plan.status, kClamped)->reason, "NoWorkers");
  world.job.spec.worker.replicas = 2;
  EXPECT_FALSE(IsTrue(world.Step().status, kClamped));
  world.job.spec.worker.replicas = 0;
  world.job.spec.elastic = api::ElasticSpec{2, 4};
  plan = world.Step();
  EXPECT_EQ(plan.status.worker.desired, 2);
  EXPECT_EQ(FindCondition(plan.status, kClamped)->reason, "OutsideElasticBounds");
}

}  // namespace
}  // namespace downpour::planner
