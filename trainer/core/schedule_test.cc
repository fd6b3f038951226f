#include "trainer/core/schedule.h"

#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "trainer/core/step_id.h"

namespace downpour::core {
namespace {

// Epochs of 13 updates, the last of one with fewer samples, in data shards of 3.
DataPlan Plan() {
  v1::DataPlan plan;
  plan.set_sample_count(50);
  plan.set_batch_size(4);
  plan.set_updates_per_shard(3);
  plan.set_epochs(4);
  return *DataPlan::Create(plan);
}

// Halves the rate with every update: what it gives says where it was asked.
LearningRate Halving(const DataPlan& plan, std::uint32_t step_width, double scale = 1) {
  v1::ScheduleConfig config;
  config.set_type(v1::SCHEDULE_STEP);
  config.set_gamma(0.5);
  config.set_every_updates(1);
  return LearningRate(config, 1, plan, step_width, scale);
}

std::vector<UpdateId> UpdatesOf(const DataPlan& plan) {
  std::vector<UpdateId> updates;
  for (std::uint32_t epoch = 0; epoch < plan.epochs(); ++epoch) {
    for (std::uint32_t shard = 0; shard < plan.shards_in_epoch(epoch); ++shard) {
      for (std::uint32_t group = 0; group < plan.updates_in_shard(epoch, shard); ++group) {
        updates.push_back({epoch, shard, group});
      }
    }
  }
  return updates;
}

TEST(LearningRateTest, IsThatOfTheUpdatesPlaceInThePlan) {
  const DataPlan plan = Plan();
  const LearningRate rate = Halving(plan, 0);
  double expected = 1;
  for (const UpdateId& update : UpdatesOf(plan)) {
    EXPECT_EQ(rate.At(update), expected);
    expected /= 2;
  }
  EXPECT_EQ(Halving(plan, 0, 0.125).At({0, 0, 1}), 0.0625) << "times the scale";
}

TEST(LearningRateTest, TheUpdatesOfAStepHaveOneWhichIsThatOfItsFirst) {
  const DataPlan plan = Plan();
  for (const std::uint32_t width : {1u, 2u, 3u, 10u}) {
    const LearningRate rate = Halving(plan, width);
    double expected = 1;
    for (StepId step; step.dataset_epoch < plan.epochs(); ++step.dataset_epoch) {
      for (step.band = 0; step.band * width < plan.shards_in_epoch(step.dataset_epoch); ++step.band) {
        for (step.group = 0; step.group < 3; ++step.group) {
          const double of_step = expected;
          ForEachUpdateOf(step, width, plan, [&](const UpdateId& update) {
            EXPECT_EQ(rate.At(update), of_step) << width;
            expected /= 2;
          });
        }
      }
    }
  }
}

TEST(LearningRateTest, LocalStepsLieBetweenTheirUpdateAndTheNext) {
  v1::ScheduleConfig config;
  config.set_type(v1::SCHEDULE_COSINE);
  const DataPlan plan = Plan();
  for (const std::uint32_t width : {0u, 2u, 3u}) {
    const LearningRate rate(config, 1, plan, width, 1);
    for (const UpdateId& update : UpdatesOf(plan)) {
      const double begin = rate.At(update);
      EXPECT_LT(rate.At(update, 0.5), begin);
      EXPECT_LT(rate.At(update, 0.75), rate.At(update, 0.5));
    }
  }
  const LearningRate one(config, 1, plan, 0, 1);
  EXPECT_LT(one.At({0, 0, 1}), one.At({0, 0, 0}, 0.999));
  const LearningRate of_two(config, 1, plan, 2, 1);
  EXPECT_LT(of_two.At({0, 1, 1}), of_two.At({0, 0, 0}, 0.999));
}

TEST(LearningRateTest, EpochsAreThoseOfThePlan) {
  v1::ScheduleConfig config;
  config.set_type(v1::SCHEDULE_STEP);
  config.set_gamma(0.5);
  config.set_every_epochs(2);
  const LearningRate step(config, 1, Plan(), 0, 1);
  EXPECT_EQ(step.At({1, 4, 0}), 1);
  EXPECT_EQ(step.At({2, 0, 0}), 0.5);
  EXPECT_EQ(step.At({3, 4, 0}, 0.5), 0.5);
  config.set_type(v1::SCHEDULE_EXPONENTIAL);
  config.set_every_epochs(1);
  config.set_gamma(0.25);
  const LearningRate exponential(config, 1, Plan(), 0, 1);
  EXPECT_NEAR(exponential.At({1, 0, 0}), 0.25, 1e-12);
  EXPECT_NEAR(exponential.At({2, 0, 0}), 0.0625, 1e-12);
  EXPECT_NEAR(exponential.At({0, 2, 0}, 0.5), 0.5, 1e-12) << "6.5 updates of 13";
}

// What a resumption with another batch size leaves as it was has the numbers that it had.
TEST(LearningRateTest, AChangeOfTheBatchSizeMovesNothingBeforeIt) {
  const DataPlan plan = Plan();
  const DataPlan changed = *plan.WithBatchSize(1, 2, 10);
  for (const UpdateId& update : UpdatesOf(plan)) {
    if (update.dataset_epoch > 1 || (update.dataset_epoch == 1 && update.data_shard >= 2)) continue;
    EXPECT_EQ(Halving(plan, 0).At(update), Halving(changed, 0).At(update));
  }
  std::set<double> rates;
  for (const UpdateId& update : UpdatesOf(changed)) EXPECT_TRUE(rates.insert(Halving(changed, 0).At(update)).second);
}

TEST(CheckScheduleTest, RefusesWhatTheTypeUsesOutsideItsRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinite = std::numeric_limits<double>::infinity();
  using Config = v1::ScheduleConfig;
  const auto refused = [](v1::ScheduleType type, void (Config::*set)(double), double value) {
    Config config;
    config.set_type(type);
    config.set_gamma(1);
    config.set_every_epochs(1);
    config.set_pct_start(0.3);
    config.set_div_factor(25);
    config.set_final_div_factor(1e4);
    EXPECT_TRUE(CheckSchedule(config).ok()) << CheckSchedule(config);
    (config.*set)(value);
    return CheckSchedule(config).code() == absl::StatusCode::kInvalidArgument;
  };
  for (const double value : {0.0, -1.0, 1.5, nan}) {
    EXPECT_TRUE(refused(v1::SCHEDULE_STEP, &Config::set_gamma, value)) << value;
    EXPECT_TRUE(refused(v1::SCHEDULE_EXPONENTIAL, &Config::set_gamma, value)) << value;
    EXPECT_FALSE(refused(v1::SCHEDULE_COSINE, &Config::set_gamma, value)) << value;
  }
  for (const double value : {-0.5, infinite, nan})
    EXPECT_TRUE(refused(v1::SCHEDULE_COSINE, &Config::set_eta_min, value));
  for (const double value : {-0.5, 1.0, nan})
    EXPECT_TRUE(refused(v1::SCHEDULE_ONE_CYCLE, &Config::set_pct_start, value));
  for (const double value : {0.0, -1.0, infinite, nan}) {
    EXPECT_TRUE(refused(v1::SCHEDULE_ONE_CYCLE, &Config::set_div_factor, value));
    EXPECT_TRUE(refused(v1::SCHEDULE_ONE_CYCLE, &Config::set_final_div_factor, value));
  }
  Config config;
  config.set_type(v1::SCHEDULE_STEP);
  config.set_gamma(0.5);
  EXPECT_EQ(CheckSchedule(config).code(), absl::StatusCode::kInvalidArgument) << "neither updates nor epochs";
  config.set_every_epochs(1);
  config.set_every_updates(1);
  EXPECT_EQ(CheckSchedule(config).code(), absl::StatusCode::kInvalidArgument) << "both";
  config.clear_every_epochs();
  EXPECT_TRUE(CheckSchedule(config).ok());
  v1::WarmUpConfig& warm_up = *config.mutable_warm_up();
  EXPECT_EQ(CheckSchedule(config).code(), absl::StatusCode::kInvalidArgument) << "neither updates nor a fraction";
  warm_up.set_updates(1);
  EXPECT_TRUE(CheckSchedule(config).ok());
  warm_up.set_fraction(0.5);
  EXPECT_EQ(CheckSchedule(config).code(), absl::StatusCode::kInvalidArgument) << "both";
  warm_up.clear_updates();
  EXPECT_TRUE(CheckSchedule(config).ok());
  for (const double value : {1.0, -0.5, nan}) {
    warm_up.set_from(value);
    EXPECT_EQ(CheckSchedule(config).code(), absl::StatusCode::kInvalidArgument) << value;
  }
  warm_up.set_from(0);
  for (const double value : {1.25, -0.5, nan}) {
    warm_up.set_fraction(value);
    EXPECT_EQ(CheckSchedule(config).code(), absl::StatusCode::kInvalidArgument) << value;
  }
  config.Clear();
  config.set_type(static_cast<v1::ScheduleType>(77));
  EXPECT_EQ(CheckSchedule(config).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace downpour::core
