#include "trainer/core/step_sum.h"

#include <vector>

#include "gtest/gtest.h"
#include "trainer/core/data_plan.h"
#include "trainer/core/step_id.h"

namespace downpour::core {
namespace {

Payload Of(const std::vector<float>& values) {
  auto owner = std::make_shared<const std::vector<float>>(values);
  return Payload::OfFloats(*owner, owner);
}

std::vector<float> Values(const Payload& payload) {
  std::vector<float> values;
  payload.ForEachFloats(
      [&](std::size_t, absl::Span<const float> run) { values.insert(values.end(), run.begin(), run.end()); });
  return values;
}

TEST(StepSumTest, IsTheMeanOverAllSamples) {
  StepSum sum;
  for (int round = 0; round < 2; ++round) {
    EXPECT_TRUE(sum.empty());
    sum.Add(3, Of({1, 2}), 2, 1, 2);
    sum.Add(3, Of({4, 8}), 2, 0.5, 6);
    EXPECT_FALSE(sum.empty());
    EXPECT_EQ(sum.width(), 3u);
    EXPECT_EQ(Values(sum.TakeMean()), (std::vector<float>{1.75, 3.5}));
  }
}

TEST(StepSumTest, WhatWasExportedOrCopiedStaysAsItWas) {
  StepSum sum;
  sum.Add(2, Of({1, 2}), 2, 1, 1);
  StepSum copy = sum;
  OptimizerState state;
  sum.Export(&state);
  sum.Add(2, Of({1, 1}), 2, 1, 1);
  EXPECT_EQ(Values(copy.TakeMean()), (std::vector<float>{1, 2}));
  EXPECT_EQ(Values(sum.TakeMean()), (std::vector<float>{1, 1.5}));
  StepSum read;
  ASSERT_TRUE(read.Import(&state, 2).ok());
  EXPECT_TRUE(state.vectors.empty() && state.scalars.empty());
  EXPECT_EQ(Values(read.TakeMean()), (std::vector<float>{1, 2}));
}

TEST(StepSumTest, HalfOfItIsRefused) {
  StepSum sum;
  sum.Add(2, Of({1, 2}), 2, 1, 1);
  for (int what = 0; what < 5; ++what) {
    OptimizerState state;
    sum.Export(&state);
    if (what == 0) state.vectors.clear();
    if (what == 1) state.scalars.erase(state.scalars.begin());
    if (what == 2) state.scalars.pop_back();
    if (what == 3) state.scalars[0].value = -1;
    StepSum read;
    EXPECT_EQ(read.Import(&state, what == 4 ? 3 : 2).code(), absl::StatusCode::kInvalidArgument) << what;
    EXPECT_TRUE(read.empty());
  }
}

TEST(StepIdTest, AnEpochsLastStepsHaveFewerUpdates) {
  v1::DataPlan proto;  // data shards of 3, 3, 3, 2 updates
  proto.set_sample_count(21);
  proto.set_batch_size(2);
  proto.set_updates_per_shard(3);
  proto.set_epochs(2);
  const DataPlan plan = *DataPlan::Create(proto);
  const auto count = [&](const StepId& step) { return ForEachUpdateOf(step, 3, plan, [](const UpdateId&) {}); };
  EXPECT_EQ(count({0, 0, 0}), 3u);
  EXPECT_EQ(count({0, 0, 2}), 3u);
  EXPECT_EQ(count({0, 0, 3}), 0u);
  EXPECT_EQ(count({1, 1, 1}), 1u);
  EXPECT_EQ(count({1, 1, 2}), 0u);
  EXPECT_EQ(count({1, 2, 0}), 0u);
  EXPECT_EQ(count({2, 0, 0}), 0u);
  EXPECT_EQ(StepOf({1, 3, 1}, 3), (StepId{1, 1, 1}));
  EXPECT_LT(StepOf({0, 2, 2}, 3), StepOf({0, 3, 0}, 3));
}

}  // namespace
}  // namespace downpour::core
