#include "operator/planner/ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "operator/planner/fake_world.h"
#include "operator/planner/status.h"

namespace downpour::planner {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr auto kWorker = api::Role::kWorker;

std::string Told(const Plan& plan, const char* type) {
  const api::Condition* condition = FindCondition(plan.status, type);
  return condition == nullptr
             ? ""
             : absl::StrCat(condition->status ? "True " : "False ", condition->reason, ": ", condition->message);
}

Plan Answer(FakeWorld& world, int members, bool formed, int formed_count, const std::string& message = "",
            std::uint64_t updates = 20, std::uint64_t generation = 1) {
  world.now += 1;
  world.Report(CoordinatorPhase::kTraining, updates, generation);
  world.ReportRing(members, formed, formed_count, message);
  return world.Step();
}

// Nothing that is said of a job without parameter servers speaks of one.
void ExpectNoPs(const Plan& plan) {
  const auto check = [](const std::string& text) {
    EXPECT_THAT(text, Not(HasSubstr("ps"))) << text;
    EXPECT_THAT(text, Not(HasSubstr("Ps"))) << text;
    EXPECT_THAT(text, Not(HasSubstr("parameter server"))) << text;
  };
  for (const Event& event : plan.events) {
    check(event.reason);
    check(event.message);
  }
  for (const api::Condition& condition : plan.status.conditions) {
    check(condition.reason);
    check(condition.message);
  }
  EXPECT_EQ(plan.status.parameter_server, api::RoleStatus());
  EXPECT_FALSE(plan.protected_ps.has_value());
}

TEST(RingTest, AJobWithoutParameterServersBegins) {
  FakeWorld world(0, 2);
  world.job.spec.strategy = api::Strategy::kAllReduce;
  world.job.spec.parameter_server.reset();
  Plan plan = world.Step();
  EXPECT_THAT(Starts(plan), ElementsAre("coordinator-0#1", "worker-0#1", "worker-1#1"));
  world.now += 1;
  world.Report(CoordinatorPhase::kStarting);
  world.observed.report->message = "1 of 2 workers are there: the others may come";
  plan = world.Step();
  EXPECT_EQ(Told(plan, kRingFormed), "False Waiting: 1 of 2 workers are there: the others may come");
  EXPECT_THAT(EventReasons(plan), IsEmpty());
  EXPECT_FALSE(plan.status.ring.has_value());
  plan = Answer(world, 2, false, 1);
  EXPECT_EQ(Told(plan, kRingFormed), "False Forming: a ring of 2 workers is being formed");
  EXPECT_EQ(Told(plan, kReady), "True AllMembersReady: workers 2/2");
  plan = Answer(world, 2, true, 1);
  EXPECT_EQ(Told(plan, kRingFormed), "True Formed: 2 workers train together, 2 updates a step");
  EXPECT_THAT(EventReasons(plan), ElementsAre("RingFormed"));
  EXPECT_EQ(plan.status.ring, world.observed.report->ring);
  EXPECT_EQ(plan.status.phase, "Running");
  ExpectNoPs(plan);
  EXPECT_THAT(EventReasons(Answer(world, 2, true, 1)), IsEmpty());
}

TEST(RingTest, OfAJobWithParameterServersNothingIsTold) {
  FakeWorld world = FakeWorld::Training(1, 2);
  const Plan plan = Answer(world, 2, true, 1);
  EXPECT_EQ(Told(plan, kRingFormed), "");
  EXPECT_FALSE(plan.status.ring.has_value());
}

TEST(RingTest, AWorkerThatIsLostCostsNothing) {
  FakeWorld world = FakeWorld::TrainingInRing(3);
  world.now += 1;
  world.Fail(kWorker, 1, 137);
  Plan plan = world.Step();
  EXPECT_THAT(EventReasons(plan), ElementsAre("WorkerLost", "WorkerReplaced"));
  EXPECT_EQ(Told(plan, kParametersLost), "");
  EXPECT_EQ(Told(plan, kRecovering), "");
  EXPECT_THAT(Starts(plan), ElementsAre("worker-1#2"));
  plan = Answer(world, 2, false, 2, "rank 1 is gone");
  EXPECT_EQ(Told(plan, kRingFormed), "False Forming: a ring of 2 workers is being formed; rank 1 is gone");
  EXPECT_THAT(EventReasons(plan), ElementsAre("RingBroken"));
  plan = Answer(world, 2, true, 2);
  EXPECT_THAT(EventReasons(plan), ElementsAre("RingFormed"));
  // Two changes between two answers.
  plan = Answer(world, 3, true, 3);
  EXPECT_THAT(EventReasons(plan), ElementsAre("RingFormed"));
  EXPECT_EQ(Told(plan, kRingFormed), "True Formed: 3 workers train together, 3 updates a step");
  ExpectNoPs(plan);
  EXPECT_THAT(EventReasons(Answer(world, 3, true, 0)), IsEmpty()) << "a coordinator that is new has formed none";
}

TEST(RingTest, TheLossOfAllWorkersTakesTrainingBackToACheckpoint) {
  FakeWorld world = FakeWorld::TrainingInRing(2);
  world.job.spec.checkpoint.emplace();
  world.job.spec.checkpoint->uri = "s3://bucket/runs";
  world.now += 1;
  world.Report(CoordinatorPhase::kTraining, 40);
  world.ReportRing(2, true, 1);
  world.ReportCheckpoint("s3://bucket/runs/test/30", 30, world.now);
  world.Step();
  world.now += 5;
  world.Fail(kWorker, 0, 137);
  world.Fail(kWorker, 1, 137);
  Plan plan = world.Step();
  EXPECT_THAT(EventReasons(plan),
              ElementsAre("WorkerLost", "WorkersLost", "WorkerLost", "WorkerReplaced", "WorkerReplaced"))
      << "they are lost once";
  EXPECT_EQ(
      Told(plan, kParametersLost),
      "True WorkersLostInGeneration1: parameters were lost: no worker is left that holds them, worker-0 ended "
      "(killed by signal 9); training goes back to the newest checkpoint, s3://bucket/runs/test/30 (update 30, of "
      "1970-01-01T00:16:42Z) under a new generation");
  EXPECT_EQ(plan.status.phase, "Recovering");
  ExpectNoPs(plan);
  world.now += 1;
  world.Report(CoordinatorPhase::kRecovering, 0, 1);
  world.ReportRing(0, false, 1, "2 workers begin again");
  plan = world.Step();
  EXPECT_TRUE(IsTrue(plan.status, kParametersLost));
  EXPECT_EQ(Told(plan, kRingFormed),
            "False Waiting: there is no ring of the 2 workers that are wanted; 2 workers begin again");
  world.now += 1;
  world.Report(CoordinatorPhase::kTraining, 31, 2);
  world.ReportRing(2, true, 2);
  world.observed.report->restoration = Restoration();
  world.observed.report->restoration->checkpoint = "s3://bucket/runs/test/30";
  world.observed.report->restoration->updates = 30;
  plan = world.Step();
  EXPECT_FALSE(IsTrue(plan.status, kParametersLost));
  EXPECT_FALSE(IsTrue(plan.status, kRecovering));
  EXPECT_EQ(plan.status.phase, "Running");
  EXPECT_THAT(EventReasons(plan), Contains("RolledBack"));
  EXPECT_EQ(plan.status.recovery->lost_updates, 10u);
  ExpectNoPs(plan);
}

TEST(RingTest, AsManyAsThereAreCopiesOfTheOptimizersStateMayTakeSomeOfItWithThem) {
  for (const int copies : {1, 2}) {
    for (int lost = 1; lost <= copies; ++lost) {
      SCOPED_TRACE(absl::StrCat(lost, " lost, ", copies, " copies"));
      FakeWorld world = FakeWorld::TrainingInRing(4);
      world.job.spec.elastic.emplace();
      world.job.spec.elastic->max_replicas = 4;
      world.job.spec.elastic->state_copies = copies;
      Answer(world, 4, true, 1);
      world.now += 1;
      for (int index = 1; index <= lost; ++index) world.Fail(kWorker, index, 137);
      Plan plan = world.Step();
      ASSERT_EQ(IsTrue(plan.status, kParametersLost), lost == copies);
      if (lost < copies) continue;
      EXPECT_THAT(Told(plan, kParametersLost), HasSubstr("no worker that is left has all of the optimizer's state"));
      // The ring says what is so: two that are no neighbours take nothing with them.
      plan = Answer(world, 4 - copies, true, 2);
      EXPECT_FALSE(IsTrue(plan.status, kParametersLost));
      EXPECT_THAT(EventReasons(plan), Contains("ParametersKept"));
    }
  }
}

TEST(RingTest, TheLossOfAllWorkersWithoutCheckpointsTakesItBackToTheBeginning) {
  FakeWorld world = FakeWorld::TrainingInRing(1);
  world.now += 1;
  world.Fail(kWorker, 0, 137);
  Plan plan = world.Step();
  EXPECT_THAT(Told(plan, kParametersLost), HasSubstr("no checkpoint is configured; training starts again"));
  plan = Answer(world, 1, true, 2, "", 1, 2);
  EXPECT_THAT(EventReasons(plan), Contains("TrainingStartedAgain"));
  EXPECT_FALSE(IsTrue(plan.status, kParametersLost));
  EXPECT_FALSE(IsTrue(plan.status, kRecovering));
  ExpectNoPs(plan);
}

TEST(RingTest, WhereSomeWorkerStillHadThemNothingIsLost) {
  FakeWorld world = FakeWorld::TrainingInRing(2);
  world.now += 1;
  world.Get(kWorker, 1).ready = false;  // as far as the coordinator said
  world.Fail(kWorker, 0, 137);
  Plan plan = world.Step();
  EXPECT_TRUE(IsTrue(plan.status, kParametersLost));
  world.Get(kWorker, 1).ready = true;
  plan = Answer(world, 2, false, 2);
  EXPECT_TRUE(IsTrue(plan.status, kParametersLost)) << "it is not formed yet";
  plan = Answer(world, 2, true, 2);
  EXPECT_EQ(Told(plan, kParametersLost), "False ParametersKept: nothing was lost: training went on under generation 1");
}

// Nobody has heard the coordinator yet: that no worker is known to be ready says nothing.
TEST(RingTest, APlannerThatIsNewGoesByWhatRuns) {
  FakeWorld world = FakeWorld::TrainingInRing(2);
  world.now += 1;
  world.observed.report.reset();
  for (Instance& instance : world.observed.instances) instance.ready = false;
  world.Fail(kWorker, 0, 137);
  const Plan plan = world.Step();
  EXPECT_EQ(Told(plan, kParametersLost), "");
  EXPECT_THAT(EventReasons(plan), Contains("WorkerLost"));
}

TEST(RingTest, DrainsWaitForNobody) {
  FakeWorld world = FakeWorld::TrainingInRing(2);
  world.Get(kWorker, 0).node = "node-1";
  world.observed.cordoned_nodes = {{"node-1"}};
  world.now += 1;
  const Plan plan = world.Step();
  EXPECT_FALSE(plan.protected_ps.has_value());
  EXPECT_EQ(Told(plan, kDrainWaits), "");
}

TEST(RingTest, ASuspendedJobHasNone) {
  FakeWorld world = FakeWorld::TrainingInRing(2);
  world.job.spec.suspend = true;
  world.now += 1;
  Plan plan = world.Step();
  EXPECT_EQ(CountActions(plan, ActionType::kStop), 3);
  EXPECT_FALSE(plan.status.ring.has_value());
  EXPECT_FALSE(IsTrue(plan.status, kRingFormed));
  ExpectNoPs(plan);
  world.EndTerminating();
  world.job.spec.suspend = false;
  world.now += 1;
  plan = world.Step();
  EXPECT_THAT(Starts(plan), ElementsAre("coordinator-0#2", "worker-0#2", "worker-1#2"));
}

TEST(RingTest, WithoutAWorkerThatRunsNoCheckpointIsWaitedFor) {
  FakeWorld world = FakeWorld::TrainingInRing(1);
  world.job.spec.checkpoint.emplace();
  world.job.spec.checkpoint->uri = "s3://bucket/runs";
  FakeWorld broken = world;
  world.job.spec.suspend = true;
  world.now += 1;
  EXPECT_TRUE(world.Step().status.checkpoint_request.has_value());
  broken.job.spec.suspend = true;
  broken.now += 1;
  broken.Fail(kWorker, 0, 137);
  const Plan plan = broken.Step();
  EXPECT_FALSE(plan.status.checkpoint_request.has_value());
  EXPECT_TRUE(IsTrue(plan.status, kSuspended));
}

}  // namespace
}  // namespace downpour::planner
