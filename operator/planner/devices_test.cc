#include "operator/planner/devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "operator/planner/fake_world.h"

namespace downpour::planner {
namespace {

using ::testing::Contains;
using ::testing::Not;

constexpr char kOnCpu[] = "cpu, fused, 2 threads; no GPU: LibTorch finds no CUDA device";

Plan Answer(FakeWorld& world, std::vector<WorkerDevice> devices) {
  world.now += 1;
  world.Report(CoordinatorPhase::kTraining, 10);
  world.observed.report->devices = std::move(devices);
  return world.Step();
}

std::string InUse(const Plan& plan) {
  const api::Condition* condition = FindCondition(plan.status, kGpuInUse);
  return condition == nullptr ? "" : absl::StrCat(condition->status, " ", condition->reason, ": ", condition->message);
}

TEST(DevicesTest, WorkersThatFindNoGpuAreNamedOnce) {
  FakeWorld world = FakeWorld::Training(1, 3);
  world.observed.gpus = "nvidia.com/gpu";
  Plan plan = Answer(world, {{0, "cuda, contiguous, 1 thread"}, {1, kOnCpu}, {2, kOnCpu}});
  EXPECT_EQ(InUse(plan), absl::StrCat("0 FellBackToCPU: worker-1 and 1 more asked for nvidia.com/gpu and computes on: ",
                                      kOnCpu, "; with device CUDA it would not begin"));
  EXPECT_THAT(EventReasons(plan), Contains("FellBackToCPU"));
  plan = Answer(world, {{0, "cuda, contiguous, 1 thread"}, {1, kOnCpu}});
  EXPECT_EQ(InUse(plan), absl::StrCat("0 FellBackToCPU: worker-1 asked for nvidia.com/gpu and computes on: ", kOnCpu,
                                      "; with device CUDA it would not begin"));
  EXPECT_THAT(EventReasons(plan), Not(Contains("FellBackToCPU"))) << "that is known";
  plan = Answer(world, {{0, "cuda, contiguous, 1 thread"}, {1, "cuda, contiguous, 1 thread"}});
  EXPECT_EQ(InUse(plan), "1 InUse: all of 2 workers compute on nvidia.com/gpu");
  EXPECT_THAT(EventReasons(Answer(world, {{0, kOnCpu}})), Contains("FellBackToCPU")) << "it was replaced";
}

TEST(DevicesTest, WorkersWithFewerGpusThanTheyAskForAreNamed) {
  FakeWorld world = FakeWorld::Training(1, 2);
  world.observed.gpus = "nvidia.com/gpu";
  world.observed.worker_gpus = 2;
  const WorkerDevice both{0, "cuda, contiguous, 1 thread, 2 GPUs", 2};
  const WorkerDevice one{1, "cuda, contiguous, 1 thread, 1 of 2 GPUs", 1};
  Plan plan = Answer(world, {both, one});
  EXPECT_EQ(
      InUse(plan),
      "0 FewerGPUs: worker-1 asked for nvidia.com/gpu, 2 GPUs each and computes on: cuda, contiguous, 1 thread, 1 of 2 "
      "GPUs; with device CUDA it would not begin");
  EXPECT_THAT(EventReasons(plan), Contains("FewerGPUs"));
  EXPECT_THAT(EventReasons(Answer(world, {both, one})), Not(Contains("FewerGPUs"))) << "that is known";
  plan = Answer(world, {{0, kOnCpu}, one});
  EXPECT_THAT(InUse(plan),
              ::testing::StartsWith("0 FellBackToCPU: worker-0 asked for nvidia.com/gpu, 2 GPUs each and"));
  EXPECT_THAT(EventReasons(plan), Contains("FellBackToCPU")) << "that is something else";
  EXPECT_EQ(InUse(Answer(world, {both})), "1 InUse: all of 1 workers compute on nvidia.com/gpu, 2 GPUs each");
}

TEST(DevicesTest, WhoAsksForNoGpuOrForACpuIsNotTold) {
  FakeWorld world = FakeWorld::Training(1, 1);
  EXPECT_EQ(InUse(Answer(world, {{0, kOnCpu}})), "");
  world.observed.gpus = "nvidia.com/gpu";
  EXPECT_EQ(InUse(Answer(world, {})), "") << "nobody knows";
  world.job.spec.training.device = api::Device::kCpu;
  EXPECT_EQ(InUse(Answer(world, {{0, kOnCpu}})), "");
}

}  // namespace
}  // namespace downpour::planner
