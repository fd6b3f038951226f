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
    sum.Add(3, Of({1, 2}), 2, 1, 2, 0.5);
    sum.Add(3, Of({4, 8}), 2, 0.5, 6, 0.5);
    EXPECT_FALSE(sum.empty());
    EXPECT_EQ(sum.width(), 3u);
    EXPECT_EQ(sum.learning_rate(), 0.5);
    EXPECT_EQ(Values(sum.TakeMean()), (std::vector<float>{1.75, 3.5}));
  }
}

TEST(StepSumTest, WhatWasExportedOrCopiedStaysAsItWas) {
  StepSum sum;
  sum.Add(2, Of({1, 2}), 2, 1, 1, 0.5);
  StepSum copy = sum;
  OptimizerState state;
  sum.Export(&state);
  sum.Add(2, Of({1, 1}), 2, 1, 1, 0.5);
  EXPECT_EQ(Values(copy.TakeMean()), (std::vector<float>{1, 2}));
  EXPECT_EQ(Values(sum.TakeMean()), (std::vector<float>{1, 1.5}));
  StepSum read;
  ASSERT_TRUE(read.Import(&state, 2, 0.25).ok());
  EXPECT_TRUE(state.vectors.empty() && state.scalars.empty());
  EXPECT_EQ(read.learning_rate(), 0.5);
  EXPECT_EQ(Values(read.TakeMean()), (std::vector<float>{1, 2}));
}

TEST(StepSumTest, HalfOfItIsRefused) {
  StepSum sum;
  sum.Add(2, Of({1, 2}), 2, 1, 1, 0.5);
  for (int what = 0; what < 7; ++what) {
    OptimizerState state;
    sum.Export(&state);
    if (what == 0) state.vectors.clear();
    if (what == 1) state.scalars.erase(state.scalars.begin());
    if (what == 2) state.scalars.erase(state.scalars.begin() + 1, state.scalars.end());
    if (what == 3) state.scalars[0].value = -1;
    if (what == 5) state.scalars.erase(state.scalars.begin() + 1);
    if (what == 6) state.scalars[2].value = -1;
    StepSum read;
    EXPECT_EQ(read.Import(&state, what == 4 ? 3 : 2, 0.25).code(), absl::StatusCode::kInvalidArgument) << what;
    EXPECT_TRUE(read.empty());
  }
}

TEST(StepSumTest, AStateOfAVersionWithoutSchedulesHasTheRateOfTheJob) {
  StepSum sum;
  sum.Add(2, Of({1, 2}), 2, 1, 1, 0.5);
  OptimizerState state;
  sum.Export(&state);
  state.scalars.pop_back();
  StepSum read;
  ASSERT_TRUE(read.Import(&state, 2, 0.25).ok());
  EXPECT_EQ(read.learning_rate(), 0.25);
  EXPECT_EQ(read.width(), 2u);
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

// By a walk through all steps, in plans with and without changes of the batch size.
TEST(StepIdTest, UpdatesBeforeAStepAreThoseOfTheStepsBefore) {
  v1::DataPlan proto;
  proto.set_sample_count(50);
  proto.set_batch_size(4);
  proto.set_updates_per_shard(3);
  proto.set_epochs(4);
  const DataPlan plain = *DataPlan::Create(proto);
  const DataPlan changed = *(*plain.WithBatchSize(1, 2, 3)).WithBatchSize(2, 1, 7);
  for (const DataPlan& plan : {plain, changed}) {
    for (const std::uint32_t width : {1u, 2u, 3u, 4u, 7u, 100u}) {
      std::uint64_t updates = 0;
      for (StepId step; step.dataset_epoch < plan.epochs(); ++step.dataset_epoch) {
        EXPECT_EQ(updates, plan.updates_before(step.dataset_epoch));
        for (step.band = 0; step.band * width < plan.shards_in_epoch(step.dataset_epoch); ++step.band) {
          EXPECT_EQ(updates, plan.updates_before(step.dataset_epoch, step.band * width));
          for (step.group = 0;; ++step.group) {
            EXPECT_EQ(UpdatesBefore(step, width, plan), updates) << width;
            const std::uint32_t of_step = ForEachUpdateOf(step, width, plan, [](const UpdateId&) {});
            if (of_step == 0) break;
            updates += of_step;
          }
        }
      }
      EXPECT_EQ(updates, plan.updates());
    }
  }
}

}  // namespace
}  // namespace downpour::core
