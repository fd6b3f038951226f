#include "trainer/cuda/optimizer_step.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/core/testing/optimizers.h"

// That its steps are those of core::Optimizer is in device_kernels_test.cc.
namespace downpour::cuda {
namespace {

TEST(OptimizerStepTest, RefusesWhatHasNoKernel) {
  for (const v1::OptimizerConfig& config : core::testing::AllConfigs()) {
    const absl::StatusOr<OptimizerStep> step = OptimizerStep::Create(config);
    const bool gap = config.staleness_aware() && config.staleness_rule() == v1::STALENESS_GAP;
    const bool known = config.type() == v1::SGD || config.type() == v1::MOMENTUM || config.type() == v1::NESTEROV ||
                       config.type() == v1::ADAM || config.type() == v1::ADAM_W;
    ASSERT_EQ(step.ok(), known && !gap) << config.ShortDebugString();
    if (step.ok()) {
      EXPECT_EQ(step->vectors(), core::testing::Make(config, 1)->vectors()) << config.ShortDebugString();
    } else {
      EXPECT_EQ(step.status().code(), absl::StatusCode::kUnimplemented);
      EXPECT_THAT(std::string(step.status().message()), ::testing::StartsWith("no kernel for GPUs"));
    }
  }
}

}  // namespace
}  // namespace downpour::cuda
