#include "trainer/model/devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace downpour::model {
namespace {

using ::testing::HasSubstr;

std::string Planned(DeviceChoice choice, int wanted, const absl::StatusOr<int>& visible, std::int64_t batch_size = 64) {
  const absl::StatusOr<DevicePlan> plan = PlanDevices(choice, wanted, batch_size, [&visible] { return visible; });
  if (!plan.ok()) return std::string(plan.status().message());
  const char* const device = plan->device == DeviceChoice::kCpu    ? "cpu"
                             : plan->device == DeviceChoice::kCuda ? "cuda"
                                                                   : "auto";
  return absl::StrCat(device, " ", plan->replicas, plan->suffix);
}

TEST(DevicesTest, AreAsManyAsThereAre) {
  EXPECT_EQ(Planned(DeviceChoice::kCuda, 1, 8), "cuda 1");
  EXPECT_EQ(Planned(DeviceChoice::kCuda, 2, 8), "cuda 2, 2 GPUs");
  EXPECT_EQ(Planned(DeviceChoice::kAuto, 8, 8), "cuda 8, 8 GPUs");
  EXPECT_EQ(Planned(DeviceChoice::kAuto, 4, 3), "cuda 3, 3 of 4 GPUs");
  EXPECT_EQ(Planned(DeviceChoice::kAuto, 4, 1), "cuda 1, 1 of 4 GPUs");
  EXPECT_EQ(Planned(DeviceChoice::kCuda, 4, 3),
            "spec.worker.gpus: must be at most 3, the GPUs that this process sees; got 4");
  EXPECT_EQ(Planned(DeviceChoice::kCpu, 3, absl::InternalError("not asked")), "cpu 3, 3 replicas");
  const absl::Status none = absl::FailedPreconditionError("no NVIDIA driver");
  EXPECT_EQ(Planned(DeviceChoice::kAuto, 2, none), "auto 1");
  EXPECT_EQ(Planned(DeviceChoice::kCuda, 2, none), "cuda 1") << "which will not begin";
}

TEST(DevicesTest, EachHasASampleAtLeast) {
  EXPECT_EQ(Planned(DeviceChoice::kCpu, 4, 0, 4), "cpu 4, 4 replicas");
  EXPECT_EQ(Planned(DeviceChoice::kCpu, 4, 0, 3),
            "spec.training.batchSize: must be at least spec.worker.gpus, 4, got 3");
  EXPECT_EQ(Planned(DeviceChoice::kCpu, 4, 0, 0), "cpu 4, 4 replicas") << "nobody knows";
}

ModelOptions OnCpu() {
  ModelOptions options;
  options.model.name = "MLP";
  options.fields = {{{"image", data::ElementType::kF32, {1, 8, 8}}}, {{"label", data::ElementType::kI64, {}, 10}}};
  options.device = DeviceChoice::kCpu;
  return options;
}

TEST(DevicesTest, ModelsSayWhatTheyComputeOn) {
  ModelOptions options = OnCpu();
  options.threads = 5;
  auto model = CreateModelOnDevices(options, 2);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->description(), "cpu, contiguous, 2 threads, 2 replicas");
  EXPECT_EQ((*model)->devices(), 2);
  model = CreateModelOnDevices(options, 1);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->description(), "cpu, contiguous, 5 threads");
  EXPECT_EQ((*model)->devices(), 1);
}

TEST(DevicesTest, WhatCannotBeIsRefused) {
  ModelOptions options = OnCpu();
  options.local_optimizer.emplace();
  EXPECT_TRUE(CreateModelOnDevices(options, 1).ok());
  absl::Status refused = CreateModelOnDevices(options, 2).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("spec.update.localSteps"));
  options = OnCpu();
  options.model.name = "ResNet50";
  EXPECT_EQ(CreateModelOnDevices(options, 2).status(), CreateModel(options).status());
}

}  // namespace
}  // namespace downpour::model
