// Against the formulas that PyTorch's documentation and code have, written down once more: where torch goes on from the
// rate before, so do these.
#include "trainer/core/schedules/schedules.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>

#include "gtest/gtest.h"
#include "trainer/core/schedule.h"
#include "trainer/core/schedules/portable_math.h"

namespace downpour::core {
namespace {

constexpr int kUpdates = 1000;
constexpr int kUpdatesOfEpoch = 40;
constexpr double kRate = 0.1;

SchedulePosition PositionOf(int update) {
  return {.update = static_cast<double>(update),
          .updates = kUpdates,
          .epoch = static_cast<std::uint32_t>(update / kUpdatesOfEpoch),
          .part_of_epoch = static_cast<double>(update % kUpdatesOfEpoch) / kUpdatesOfEpoch};
}

// `expected(u, r)`: of the update u, where r was the rate of the one before.
void ExpectFollows(const v1::ScheduleConfig& config, const std::function<double(int, double)>& expected) {
  ASSERT_TRUE(CheckSchedule(config).ok()) << CheckSchedule(config);
  const auto schedule = CreateSchedule(config, kRate);
  double rate = kRate;
  for (int update = 0; update < kUpdates; ++update) {
    rate = expected(update, rate);
    ASSERT_NEAR(schedule->RateAt(PositionOf(update)), rate, 1e-10) << "update " << update;
  }
}

v1::ScheduleConfig ConfigOf(v1::ScheduleType type) {
  v1::ScheduleConfig config;
  config.set_type(type);
  config.set_gamma(0.9);
  config.set_every_epochs(type == v1::SCHEDULE_STEP || type == v1::SCHEDULE_EXPONENTIAL ? 1 : 0);
  config.set_pct_start(0.3);
  config.set_div_factor(25);
  config.set_final_div_factor(1e4);
  return config;
}

v1::ScheduleConfig EveryUpdates(v1::ScheduleType type, double gamma, std::uint64_t updates) {
  v1::ScheduleConfig config = ConfigOf(type);
  config.set_gamma(gamma);
  config.clear_every_epochs();
  config.set_every_updates(updates);
  return config;
}

TEST(ScheduleTest, ConstantIsConstant) {
  ExpectFollows(ConfigOf(v1::SCHEDULE_CONSTANT), [](int, double rate) { return rate; });
  ExpectFollows(v1::ScheduleConfig(), [](int, double) { return kRate; });
}

// StepLR.get_lr.
TEST(ScheduleTest, StepIsStepLr) {
  for (const int size : {1, 7, 100, 1000, 5000}) {
    ExpectFollows(EveryUpdates(v1::SCHEDULE_STEP, 0.7, static_cast<std::uint64_t>(size)),
                  [size](int update, double rate) { return update == 0 || update % size != 0 ? rate : rate * 0.7; });
  }
  v1::ScheduleConfig config = ConfigOf(v1::SCHEDULE_STEP);
  config.set_every_epochs(3);
  ExpectFollows(config, [](int update, double rate) {
    return update == 0 || update % (3 * kUpdatesOfEpoch) != 0 ? rate : rate * 0.9;
  });
}

// ExponentialLR.get_lr, stepped after each update; and after each epoch, where those have an effect.
TEST(ScheduleTest, ExponentialIsExponentialLr) {
  ExpectFollows(EveryUpdates(v1::SCHEDULE_EXPONENTIAL, 0.99, 1),
                [](int update, double rate) { return update == 0 ? rate : rate * 0.99; });
  const auto schedule = CreateSchedule(ConfigOf(v1::SCHEDULE_EXPONENTIAL), kRate);
  double rate = kRate;
  for (int update = 0; update < kUpdates; update += kUpdatesOfEpoch, rate *= 0.9) {
    EXPECT_NEAR(schedule->RateAt(PositionOf(update)), rate, 1e-10);
  }
  // keras.optimizers.schedules.ExponentialDecay with staircase=False.
  ExpectFollows(EveryUpdates(v1::SCHEDULE_EXPONENTIAL, 0.5, 64),
                [](int update, double) { return kRate * std::pow(0.5, update / 64.0); });
}

// CosineAnnealingLR.get_lr with T_max = 1000.
TEST(ScheduleTest, CosineIsCosineAnnealingLr) {
  for (const double least : {0.0, 0.001, 0.05}) {
    v1::ScheduleConfig config = ConfigOf(v1::SCHEDULE_COSINE);
    config.set_eta_min(least);
    ExpectFollows(config, [least](int update, double rate) {
      if (update == 0) return rate;
      return (1 + std::cos(M_PI * update / kUpdates)) / (1 + std::cos(M_PI * (update - 1) / kUpdates)) *
                 (rate - least) +
             least;
    });
  }
}

// OneCycleLR.get_lr with total_steps = 1000 and three_phase = False.
double OneCycleLr(int update, double most, double pct_start, double div_factor, double final_div_factor) {
  const double initial = most / div_factor;
  const struct {
    double end, from, to;
  } phases[] = {{pct_start * kUpdates - 1, initial, most}, {kUpdates - 1, most, initial / final_div_factor}};
  double start = 0;
  for (const auto& phase : phases) {
    if (update <= phase.end) {
      const double part = (update - start) / (phase.end - start);
      return phase.to + (phase.from - phase.to) / 2 * (std::cos(M_PI * part) + 1);
    }
    start = phase.end;
  }
  return 0;
}

TEST(ScheduleTest, OneCycleIsOneCycleLr) {
  for (const double pct_start : {0.3, 0.1, 0.75, 0.0}) {
    v1::ScheduleConfig config = ConfigOf(v1::SCHEDULE_ONE_CYCLE);
    config.set_pct_start(pct_start);
    ExpectFollows(config, [=](int update, double) { return OneCycleLr(update, kRate, pct_start, 25, 1e4); });
  }
  v1::ScheduleConfig config = ConfigOf(v1::SCHEDULE_ONE_CYCLE);
  config.set_div_factor(2);
  config.set_final_div_factor(0.5);
  ExpectFollows(config, [](int update, double) { return OneCycleLr(update, kRate, 0.3, 2, 0.5); });
}

// Where torch divides by 0: its first phase ends where it begins.
TEST(ScheduleTest, OneCycleOfFewUpdatesIsFinite) {
  for (const double updates : {1, 2, 3, 10}) {
    for (const double pct_start : {0.0, 0.1, 0.5}) {
      v1::ScheduleConfig config = ConfigOf(v1::SCHEDULE_ONE_CYCLE);
      config.set_pct_start(pct_start);
      const auto schedule = CreateSchedule(config, kRate);
      for (double update = 0; update < updates; update += 0.25) {
        const double rate = schedule->RateAt({.update = update, .updates = updates});
        EXPECT_GT(rate, 0) << update << " of " << updates << ", " << pct_start;
        EXPECT_LE(rate, kRate * (1 + 1e-12));
      }
      EXPECT_NEAR(schedule->RateAt({.update = updates - 1, .updates = updates}), kRate / 25 / 1e4, 1e-12);
    }
  }
}

// LinearLR.get_lr.
double LinearLr(int update, double rate, double from, int updates) {
  if (update == 0) return rate * from;
  if (update > updates) return rate;
  return rate * (1 + (1 - from) / (updates * from + (update - 1) * (1 - from)));
}

TEST(ScheduleTest, WarmUpIsLinearLr) {
  v1::ScheduleConfig config;
  config.mutable_warm_up()->set_updates(200);
  config.mutable_warm_up()->set_from(0.25);
  ExpectFollows(config, [](int update, double rate) { return LinearLr(update, rate, 0.25, 200); });
  config.mutable_warm_up()->clear_updates();
  config.mutable_warm_up()->set_fraction(0.2);
  ExpectFollows(config, [](int update, double rate) { return LinearLr(update, rate, 0.25, 200); });
  config.mutable_warm_up()->set_from(0);
  ExpectFollows(config, [](int update, double) { return kRate * std::min(update / 200.0, 1.0); });
  config.mutable_warm_up()->clear_fraction();
  config.mutable_warm_up()->set_updates(2 * kUpdates);
  ExpectFollows(config, [](int update, double) { return kRate * update / 2000.0; });
}

// SequentialLR of LinearLR and the other, with the milestone 100.
TEST(ScheduleTest, WhatSpansTheJobBeginsBehindTheWarmUp) {
  v1::ScheduleConfig config = ConfigOf(v1::SCHEDULE_COSINE);
  config.mutable_warm_up()->set_updates(100);
  config.mutable_warm_up()->set_from(0.5);
  ExpectFollows(config, [](int update, double rate) {
    if (update < 100) return LinearLr(update, rate, 0.5, 100);
    return kRate * (1 + std::cos(M_PI * (update - 100) / 900)) / 2;
  });
  config = ConfigOf(v1::SCHEDULE_ONE_CYCLE);
  config.mutable_warm_up()->set_fraction(0.1);
  const auto schedule = CreateSchedule(config, kRate);
  const auto alone = CreateSchedule(ConfigOf(v1::SCHEDULE_ONE_CYCLE), kRate);
  for (int update = 0; update < kUpdates; ++update) {
    const double expected =
        update < 100 ? kRate / 25 * update / 100 : alone->RateAt({.update = update - 100.0, .updates = 900});
    ASSERT_NEAR(schedule->RateAt(PositionOf(update)), expected, 1e-10) << update;
  }
}

// ChainedScheduler of LinearLR and the other.
TEST(ScheduleTest, WhatCountsUpdatesOrEpochsCountsThoseOfTheWarmUp) {
  v1::ScheduleConfig config = EveryUpdates(v1::SCHEDULE_STEP, 0.5, 60);
  config.mutable_warm_up()->set_updates(100);
  config.mutable_warm_up()->set_from(0.5);
  ExpectFollows(config, [](int update, double rate) {
    rate = LinearLr(update, rate, 0.5, 100);
    return update == 0 || update % 60 != 0 ? rate : rate * 0.5;
  });
  config = EveryUpdates(v1::SCHEDULE_EXPONENTIAL, 0.99, 1);
  *config.mutable_warm_up() = v1::WarmUpConfig();
  config.mutable_warm_up()->set_updates(100);
  config.mutable_warm_up()->set_from(0.5);
  ExpectFollows(config, [](int update, double rate) {
    rate = LinearLr(update, rate, 0.5, 100);
    return update == 0 ? rate : rate * 0.99;
  });
}

TEST(PortableMathTest, IsAsPreciseAsItSays) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> unit(0, 1);
  for (int i = 0; i < 100000; ++i) {
    const double x = i == 0 ? 0 : i == 1 ? 1 : unit(random);
    EXPECT_NEAR(CosineOfPi(x), std::cos(M_PI * x), 1e-15) << x;
    const double base = 1 - unit(random);
    const double exponent = unit(random) * (i % 2 == 0 ? 1 : 50);
    const double expected = std::pow(base, exponent);
    EXPECT_NEAR(Power(base, exponent), expected, 1e-12 * expected) << base << "^" << exponent;
    const std::uint64_t whole = random() % 1000;
    EXPECT_NEAR(WholePower(base, whole), std::pow(base, static_cast<double>(whole)), 1e-12);
  }
  EXPECT_EQ(CosineOfPi(0.5), 0);
  EXPECT_EQ(Power(1, 1e9), 1);
  EXPECT_EQ(Power(0.5, 0), 1);
  EXPECT_EQ(Power(0.5, 1e9), 0);
  EXPECT_EQ(WholePower(0, 0), 1);
}

}  // namespace
}  // namespace downpour::core
