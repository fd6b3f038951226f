#include "trainer/core/training_monitor.h"

#include <algorithm>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace downpour::core {
namespace {

constexpr double kLeastChange = 1e-8;  // of a learning rate: torch's eps

// The best value so far.
struct Best {
  std::optional<double> value;
  std::uint32_t epochs = 0;  // finished then

  // Whether the value is better than it, which it becomes then.
  bool Take(double measured, std::uint32_t finished, const MonitoredMetric& metric) {
    const double worst = std::numeric_limits<double>::infinity();
    // Compared so that what is not a number is no improvement.
    const bool improved = metric.less_is_better ? measured + metric.min_delta < value.value_or(worst)
                                                : measured - metric.min_delta > value.value_or(-worst);
    if (!improved) return false;
    value = measured;
    epochs = finished;
    return true;
  }
  std::string Describe(const MonitoredMetric& metric) const {
    if (!value.has_value()) return absl::StrCat(metric.name, " has had no value");
    return DescribeBest(metric.name, epochs, *value);
  }
};

std::string Since(std::uint32_t count) { return absl::StrCat("in ", count, count == 1 ? " epoch" : " epochs"); }

}  // namespace

std::string DescribeBest(const std::string& metric, std::uint32_t epochs, double value) {
  return absl::StrCat(metric, " was best after epoch ", epochs, ", ", value);
}

bool LessIsBetter(absl::string_view metric) {
  return absl::EndsWithIgnoreCase(metric, "Loss") || absl::EndsWithIgnoreCase(metric, "Error");
}

MonitoredMetric MonitoredMetricOf(const std::string& metric, double min_delta) {
  return {metric, LessIsBetter(metric), min_delta};
}

EarlyStopping EarlyStoppingOf(const v1::EarlyStoppingConfig& config) {
  return {MonitoredMetricOf(config.metric(), config.min_delta()), config.patience(), config.start_from_epoch()};
}

ReduceOnPlateau ReduceOnPlateauOf(const v1::ReduceOnPlateauConfig& config, double learning_rate) {
  return {.metric = MonitoredMetricOf(config.metric(), config.min_delta()),
          .factor = config.factor(),
          .patience = config.patience(),
          .cooldown = config.cooldown(),
          .min_learning_rate = config.min_learning_rate(),
          .learning_rate = learning_rate};
}

std::optional<double> MeasuredValue(const v1::Evaluation& evaluation, const std::string& metric) {
  if (metric == "Loss") return evaluation.loss();
  for (const v1::Metric& measured : evaluation.metrics()) {
    if (measured.name() == metric) return measured.value();
  }
  return std::nullopt;
}

StopDecision DecideToStop(absl::Span<const v1::Evaluation> evaluations, const EarlyStopping& rule) {
  Best best;
  std::uint32_t without = 0;
  for (const v1::Evaluation& evaluation : evaluations) {
    const std::uint32_t epochs = evaluation.dataset_epoch();
    const std::optional<double> measured = MeasuredValue(evaluation, rule.metric.name);
    if (!measured.has_value() || epochs <= rule.start_from_epoch) continue;
    if (best.Take(*measured, epochs, rule.metric)) {
      without = 0;
      continue;
    }
    ++without;
    if (without < rule.patience || epochs <= 1) continue;
    return {true, epochs,
            absl::StrCat("stopped early after epoch ", epochs, ": ", rule.metric.name, ", ", *measured,
                         ", has not improved ", Since(without), "; ", best.Describe(rule.metric))};
  }
  return {};
}

ScaleDecision DecideScale(absl::Span<const v1::Evaluation> evaluations, const ReduceOnPlateau& rule) {
  ScaleDecision decision;
  Best best;
  std::uint32_t without = 0;
  std::uint32_t cooldown = 0;
  const double least = rule.min_learning_rate / rule.learning_rate;
  for (const v1::Evaluation& evaluation : evaluations) {
    const std::optional<double> measured = MeasuredValue(evaluation, rule.metric.name);
    if (!measured.has_value()) continue;
    without = best.Take(*measured, evaluation.dataset_epoch(), rule.metric) ? 0 : without + 1;
    if (cooldown > 0) {
      --cooldown;
      without = 0;
    }
    if (without <= rule.patience) continue;
    const double scale = std::max(decision.scale * rule.factor, least);
    if (rule.learning_rate * (decision.scale - scale) > kLeastChange) {
      decision = {
          scale, evaluation.dataset_epoch(),
          absl::StrCat("the learning rate is multiplied by ", scale, " since epoch ", evaluation.dataset_epoch(), ": ",
                       rule.metric.name, " had not improved ", Since(without), "; ", best.Describe(rule.metric))};
    }
    cooldown = rule.cooldown;
    without = 0;
  }
  return decision;
}

BestDecision FindBest(absl::Span<const v1::Evaluation> evaluations, const MonitoredMetric& metric) {
  MonitoredMetric exact = metric;
  exact.min_delta = 0;
  BestDecision decision;
  Best best;
  for (std::size_t i = 0; i < evaluations.size(); ++i) {
    const std::optional<double> measured = MeasuredValue(evaluations[i], metric.name);
    if (measured.has_value() && best.Take(*measured, evaluations[i].dataset_epoch(), exact)) decision.index = i;
  }
  decision.reason = best.Describe(metric);
  return decision;
}

}  // namespace downpour::core
