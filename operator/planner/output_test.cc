#include "operator/planner/output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/planner/fake_world.h"

namespace downpour::planner {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kWorker = api::Role::kWorker;

FakeWorld Begun(const std::string& temporary_output) {
  FakeWorld world(1, 3);
  world.job.metadata.namespace_name = "team";
  world.observed.temporary_output = temporary_output;
  world.Step();
  return world;
}

// The job is over for all but the workers' processes; worker-1 wrote the model.
FakeWorld Done(int keep_seconds = 600, std::optional<int> ttl = std::nullopt) {
  FakeWorld world(1, 3);
  world.job.metadata.namespace_name = "team";
  world.job.spec.output.keep_seconds = keep_seconds;
  world.job.spec.ttl_seconds_after_finished = ttl;
  world.observed.temporary_output = "/output";
  world.Step();
  world.now += 10;
  world.Report(CoordinatorPhase::kDone, 100);
  world.observed.report->model = api::OutputStatus{"/output/model.safetensors", 1, 1, std::nullopt};
  world.Step();
  world.Step();
  return world;
}

// The coordinator, the ps and the other workers have ended.
FakeWorld Kept(int keep_seconds = 600, std::optional<int> ttl = std::nullopt) {
  FakeWorld world = Done(keep_seconds, ttl);
  for (const int worker : {0, 2}) world.End(world.Get(kWorker, worker), InstancePhase::kSucceeded, 0);
  world.now += 1;
  return world;
}

TEST(OutputTest, AModelThatGoesWithItsPodIsAnnouncedOnce) {
  FakeWorld world = Begun("/output");
  const api::Condition* told = FindCondition(world.job.status, kOutputTemporary);
  ASSERT_NE(told, nullptr);
  EXPECT_TRUE(told->status);
  EXPECT_THAT(told->message, HasSubstr("/output"));
  EXPECT_THAT(told->message, HasSubstr("3600 s after the end"));
  EXPECT_THAT(world.Step().events, IsEmpty());
}

TEST(OutputTest, TheWarningComesWithTheStart) {
  FakeWorld world(1, 1);
  world.observed.temporary_output = "/output";
  const Plan plan = world.MakePlanNow();
  EXPECT_THAT(EventReasons(plan), ElementsAre("OutputTemporary"));
  EXPECT_TRUE(plan.events[0].warning);
}

TEST(OutputTest, OfAModelThatStaysNothingIsSaid) {
  EXPECT_EQ(FindCondition(Begun("").job.status, kOutputTemporary), nullptr);
}

TEST(OutputTest, WhoWroteTheModelKeepsItAndTheJobIsComplete) {
  FakeWorld world = Kept();
  Plan plan = world.Step();
  EXPECT_TRUE(IsTrue(plan.status, kComplete));
  EXPECT_EQ(plan.status.completion_time, world.now);
  ASSERT_TRUE(plan.status.output.has_value());
  EXPECT_EQ(plan.status.output->kept_until, world.now + 600);
  EXPECT_EQ(CountActions(plan, ActionType::kStop), 0);
  EXPECT_THAT(EventReasons(plan), ElementsAre("JobSucceeded", "ModelKept"));
  EXPECT_THAT(plan.events[1].message,
              HasSubstr("kubectl exec -n team test-worker-1 -c trainer -- cat /output/model.safetensors"));

  plan = world.Step();
  EXPECT_EQ(CountActions(plan, ActionType::kRemove), 4) << "all but the one that has it";
  EXPECT_EQ(CountActions(plan, ActionType::kStop), 0);
  EXPECT_EQ(plan.requeue_after, 600);

  world.now += 600;
  plan = world.Step();
  EXPECT_EQ(CountActions(plan, ActionType::kStop), 1);
  EXPECT_EQ(FindCondition(plan.status, kOutputTemporary)->reason, "Gone");
  world.EndTerminating();
  plan = world.Step();
  EXPECT_EQ(CountActions(plan, ActionType::kRemove), 1);
  EXPECT_THAT(world.Step().actions, IsEmpty());
  EXPECT_EQ(world.job.status.restarts_total, 0);
}

TEST(OutputTest, OthersThatDoNotEndAreWaitedForAndStopped) {
  FakeWorld world = Done();
  EXPECT_FALSE(IsTrue(world.Step().status, kComplete));
  world.now += 30;
  EXPECT_EQ(CountActions(world.Step(), ActionType::kStop), 2);
  EXPECT_THAT(FindCondition(world.job.status, kSuccessCriteriaMet)->message, EndsWith("not ended: worker-0, worker-2"));
  world.EndTerminating();
  EXPECT_TRUE(IsTrue(world.Step().status, kComplete));
  EXPECT_EQ(CountActions(world.Step(), ActionType::kStop), 0);
}

TEST(OutputTest, WhereItIsNotToBeKeptTheJobEndsAsEver) {
  FakeWorld world = Kept(0);
  EXPECT_FALSE(IsTrue(world.Step().status, kComplete)) << "worker-1 has not ended";
  world.End(world.Get(kWorker, 1), InstancePhase::kSucceeded, 0);
  const Plan plan = world.Step();
  EXPECT_TRUE(IsTrue(plan.status, kComplete));
  EXPECT_EQ(plan.status.output->kept_until, std::nullopt);
}

TEST(OutputTest, APodThatEndsWhileItKeepsTheModelIsNoFailure) {
  FakeWorld world = Kept();
  world.Step();
  world.Step();
  world.Fail(kWorker, 1, 137);
  world.now += 1;
  const Plan plan = world.Step();
  EXPECT_TRUE(IsTrue(plan.status, kComplete));
  EXPECT_EQ(FindCondition(plan.status, kOutputTemporary)->reason, "Gone");
  EXPECT_EQ(plan.status.restarts_total, 0);
  EXPECT_THAT(Starts(plan), IsEmpty());
}

TEST(OutputTest, ThePathIsOneWordOfTheCommand) {
  FakeWorld world = Kept();
  world.job.status.output->path = "/out put/it's";
  EXPECT_THAT(world.Step().events[1].message, HasSubstr(R"(cat '/out put/it'\''s' > model.safetensors)"));
}

TEST(OutputTest, ADeletedJobKeepsNothing) {
  FakeWorld world = Kept();
  world.Step();
  world.observed.deletion_requested = true;
  EXPECT_EQ(CountActions(world.Step(), ActionType::kStop), 1);
}

TEST(OutputTest, AJobThatIsDeletedSoonerKeepsItNoLonger) {
  FakeWorld world = Kept(600, 60);
  EXPECT_EQ(world.Step().status.output->kept_until, world.now + 60);
}

}  // namespace
}  // namespace downpour::planner
