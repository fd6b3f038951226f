#include "trainer/core/training_monitor.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace downpour::core {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// After the epochs 1, 2, ...
std::vector<v1::Evaluation> Losses(const std::vector<double>& losses) {
  std::vector<v1::Evaluation> evaluations;
  for (const double loss : losses) {
    v1::Evaluation& evaluation = evaluations.emplace_back();
    evaluation.set_dataset_epoch(static_cast<std::uint32_t>(evaluations.size()));
    evaluation.set_loss(loss);
  }
  return evaluations;
}

std::vector<v1::Evaluation> Accuracies(const std::vector<double>& values) {
  std::vector<v1::Evaluation> evaluations = Losses(values);
  for (v1::Evaluation& evaluation : evaluations) {
    v1::Metric* metric = evaluation.add_metrics();
    metric->set_name("Accuracy");
    metric->set_value(evaluation.loss());
    evaluation.set_loss(0);
  }
  return evaluations;
}

// The epoch after which it stops; 0: it does not.
std::uint32_t StopsAfter(const std::vector<v1::Evaluation>& evaluations, const EarlyStopping& rule) {
  const StopDecision decision = DecideToStop(evaluations, rule);
  EXPECT_EQ(decision.stop, decision.epochs > 0);
  EXPECT_EQ(decision.stop, !decision.reason.empty());
  return decision.epochs;
}

TEST(EarlyStoppingTest, StopsWherePatienceEnds) {
  const std::vector<v1::Evaluation> losses = Losses({5, 4, 4, 3, 3, 3.5, 3, 2, 2, 2});
  EXPECT_EQ(StopsAfter(losses, {.patience = 1}), 3u);
  EXPECT_EQ(StopsAfter(losses, {.patience = 2}), 6u);
  EXPECT_EQ(StopsAfter(losses, {.patience = 3}), 7u);
  EXPECT_EQ(StopsAfter(losses, {.patience = 4}), 0u);
  EXPECT_EQ(StopsAfter({losses.begin(), losses.begin() + 5}, {.patience = 2}), 0u);
  EXPECT_EQ(DecideToStop(losses, {.patience = 2}).reason,
            "stopped early after epoch 6: Loss, 3.5, has not improved in 2 epochs; Loss was best after epoch 4, 3");
  // Of the metrics more is better.
  const MonitoredMetric accuracy{.name = "Accuracy", .less_is_better = false};
  EXPECT_EQ(StopsAfter(Accuracies({0.1, 0.5, 0.4, 0.6, 0.6, 0.6}), {.metric = accuracy, .patience = 2}), 6u);
  EXPECT_EQ(StopsAfter(Losses({1, 2, 3}), {.metric = accuracy}), 0u) << "an evaluation without the metric";
}

TEST(EarlyStoppingTest, AnImprovementIsOneByMoreThanTheLeast) {
  const MonitoredMetric metric{.min_delta = 0.5};
  EXPECT_EQ(StopsAfter(Losses({5, 4.5, 4.4}), {.metric = metric, .patience = 1}), 2u);
  EXPECT_EQ(StopsAfter(Losses({5, 4.6, 4.4, 4}), {.metric = metric, .patience = 2}), 0u) << "4.4 is better than 5";
  EXPECT_EQ(StopsAfter(Losses({5, 4.6, 4.4, 4, 4}), {.metric = metric, .patience = 2}), 5u);
}

TEST(EarlyStoppingTest, TheFirstEpochsAreNotLookedAt) {
  const std::vector<v1::Evaluation> losses = Losses({1, 2, 9, 8, 8, 8});
  EXPECT_EQ(StopsAfter(losses, {.patience = 1}), 2u);
  EXPECT_EQ(StopsAfter(losses, {.patience = 1, .start_from_epoch = 2}), 5u) << "9 is the first that counts";
  EXPECT_EQ(StopsAfter(losses, {.patience = 1, .start_from_epoch = 6}), 0u);
  EXPECT_EQ(StopsAfter(Losses({kNan, kNan}), {.patience = 0}), 2u) << "never after the first";
}

TEST(EarlyStoppingTest, WhatIsNotANumberImprovesNothing) {
  EXPECT_EQ(StopsAfter(Losses({3, kNan, kNan, 2, kNan, kNan, kNan}), {.patience = 3}), 7u);
  EXPECT_EQ(StopsAfter(Losses({kNan, 3, 2, 1}), {.patience = 2}), 0u);
}

// keras/src/callbacks/early_stopping.py, where `epoch` counts from 0.
std::uint32_t KerasStopsAfter(const std::vector<double>& values, bool less, double min_delta, int patience,
                              int start_from_epoch) {
  std::optional<double> best;
  int wait = 0;
  for (int epoch = 0; epoch < static_cast<int>(values.size()); ++epoch) {
    const double current = values[static_cast<std::size_t>(epoch)];
    if (epoch < start_from_epoch) continue;
    ++wait;
    if (!best.has_value() || (less ? current + min_delta < *best : current - min_delta > *best)) {
      best = current;
      wait = 0;
      continue;
    }
    if (wait >= patience && epoch > 0) return static_cast<std::uint32_t>(epoch) + 1;
  }
  return 0;
}

TEST(EarlyStoppingTest, StopsWhereKerasDoes) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<double> values(1 + random() % 30);
    for (double& value : values) value = static_cast<double>(random() % 16) / 16;
    const bool less = random() % 2 == 0;
    const double min_delta = static_cast<double>(random() % 3) / 16;
    const auto patience = static_cast<std::uint32_t>(random() % 5);
    const auto from = static_cast<std::uint32_t>(random() % 4);
    const EarlyStopping rule{
        .metric = {.name = "Accuracy", .less_is_better = less, .min_delta = min_delta},
        .patience = patience,
        .start_from_epoch = from,
    };
    EXPECT_EQ(StopsAfter(Accuracies(values), rule),
              KerasStopsAfter(values, less, min_delta, static_cast<int>(patience), static_cast<int>(from)))
        << ::testing::PrintToString(values) << " patience " << patience;
  }
}

TEST(ReduceOnPlateauTest, ReducesBehindThePatienceAndNotInTheCooldown) {
  ReduceOnPlateau rule{.factor = 0.5, .patience = 1, .cooldown = 2, .learning_rate = 1};
  const auto scales = [&rule](const std::vector<double>& losses) {
    std::vector<double> after;
    const std::vector<v1::Evaluation> evaluations = Losses(losses);
    for (std::size_t count = 0; count <= losses.size(); ++count) {
      const ScaleDecision decision = DecideScale(absl::MakeConstSpan(evaluations).first(count), rule);
      EXPECT_EQ(decision.scale < 1, !decision.reason.empty());
      after.push_back(decision.scale);
    }
    return after;
  };
  using Scales = std::vector<double>;
  // Bad are 4 and 4; then two epochs are not counted; then 4 and 4 are bad again.
  EXPECT_EQ(scales({4, 4, 4, 4, 4, 4, 4}), (Scales{1, 1, 1, 0.5, 0.5, 0.5, 0.5, 0.25}));
  EXPECT_EQ(scales({4, 4, 3, 3, 2, 2, 1}), (Scales{1, 1, 1, 1, 1, 1, 1, 1}));
  rule.cooldown = 0;
  EXPECT_EQ(scales({4, 4, 4, 4, 4, 3, 4}), (Scales{1, 1, 1, 0.5, 0.5, 0.25, 0.25, 0.25}));
  rule.min_learning_rate = 0.3;
  EXPECT_EQ(scales({4, 4, 4, 4, 4, 4, 4}), (Scales{1, 1, 1, 0.5, 0.5, 0.3, 0.3, 0.3}));
  rule.min_learning_rate = 0;
  rule.metric.min_delta = 0.5;
  EXPECT_EQ(scales({4, 3.75, 3.5}), (Scales{1, 1, 1, 0.5}));
  EXPECT_EQ(scales({4, kNan, kNan}), (Scales{1, 1, 1, 0.5}));
}

TEST(ReduceOnPlateauTest, SaysWhy) {
  const ReduceOnPlateau rule{.factor = 0.5, .patience = 1, .learning_rate = 1};
  const ScaleDecision decision = DecideScale(Losses({4, 3, 3, 3, 2}), rule);
  EXPECT_EQ(decision.epochs, 4u);
  EXPECT_EQ(decision.reason,
            "the learning rate is multiplied by 0.5 since epoch 4: Loss had not improved in 2 epochs; Loss was best "
            "after epoch 2, 3");
}

// torch/optim/lr_scheduler.py, ReduceLROnPlateau.step with threshold_mode "abs".
class TorchPlateau {
 public:
  TorchPlateau(const ReduceOnPlateau& rule, bool less)
      : rule_(rule),
        less_(less),
        best_(less ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity()),
        rate_(rule.learning_rate) {}

  double Step(double current) {
    const double threshold = rule_.metric.min_delta;
    if (less_ ? current < best_ - threshold : current > best_ + threshold) {
      best_ = current;
      bad_epochs_ = 0;
    } else {
      ++bad_epochs_;
    }
    if (cooldown_counter_ > 0) {
      --cooldown_counter_;
      bad_epochs_ = 0;
    }
    if (bad_epochs_ > rule_.patience) {
      const double reduced = std::max(rate_ * rule_.factor, rule_.min_learning_rate);
      if (rate_ - reduced > 1e-8) rate_ = reduced;
      cooldown_counter_ = rule_.cooldown;
      bad_epochs_ = 0;
    }
    return rate_;
  }

 private:
  ReduceOnPlateau rule_;
  bool less_;
  double best_;
  double rate_;
  std::uint32_t bad_epochs_ = 0;
  std::uint32_t cooldown_counter_ = 0;
};

TEST(ReduceOnPlateauTest, ReducesWhereTorchDoes) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 500; ++trial) {
    std::vector<double> values(60);
    for (double& value : values) value = static_cast<double>(random() % 64) / 64;
    const bool less = random() % 2 == 0;
    const ReduceOnPlateau rule{
        .metric = {.name = "Accuracy", .less_is_better = less, .min_delta = static_cast<double>(random() % 3) / 64},
        .factor = 0.1 + 0.2 * static_cast<double>(random() % 4),
        .patience = static_cast<std::uint32_t>(random() % 4),
        .cooldown = static_cast<std::uint32_t>(random() % 4),
        .min_learning_rate = random() % 2 == 0 ? 0 : 0.001,
        .learning_rate = 0.25,
    };
    const std::vector<v1::Evaluation> evaluations = Accuracies(values);
    TorchPlateau torch(rule, less);
    for (std::size_t count = 1; count <= values.size(); ++count) {
      const double expected = torch.Step(values[count - 1]);
      const ScaleDecision decision = DecideScale(absl::MakeConstSpan(evaluations).first(count), rule);
      ASSERT_NEAR(decision.scale * rule.learning_rate, expected, 1e-9) << "trial " << trial << ", epoch " << count;
    }
  }
}

TEST(FindBestTest, IsTheFirstOfTheBest) {
  const MonitoredMetric loss{.min_delta = 1};
  EXPECT_EQ(FindBest(Losses({3, 2.5, kNan, 2.5, 4}), loss).index, 1u);
  EXPECT_EQ(FindBest(Losses({3, 2.5, kNan, 2.5, 4}), loss).reason, "Loss was best after epoch 2, 2.5");
  const MonitoredMetric accuracy{.name = "Accuracy", .less_is_better = false};
  EXPECT_EQ(FindBest(Accuracies({0.5, 0.25, 0.75}), accuracy).index, 2u);
  for (const auto& none : {Losses({1}), Accuracies({}), Accuracies({kNan})}) {
    EXPECT_FALSE(FindBest(none, accuracy).index.has_value());
    EXPECT_EQ(FindBest(none, accuracy).reason, "Accuracy has had no value");
  }
}

TEST(TrainingMonitorTest, KnowsWhichWayIsBetter) {
  for (const char* metric : {"Accuracy", "Top5Accuracy", "BinaryAccuracy", "OwnScore"}) {
    EXPECT_FALSE(LessIsBetter(metric)) << metric;
  }
  for (const char* metric : {"Loss", "MeanAbsoluteError", "own_loss"}) EXPECT_TRUE(LessIsBetter(metric)) << metric;
}

}  // namespace
}  // namespace downpour::core
