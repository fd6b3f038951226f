#include "cli/render/test_metrics.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/render/format.h"

namespace downpour::cli {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr char kAccuracy[] = "Accuracy";

}  // namespace

bool IsAccuracy(const std::string& name) { return name == kAccuracy || name == "BinaryAccuracy"; }

std::vector<TestMetric> AccuracyAlone(double accuracy) { return {{kAccuracy, accuracy}}; }

std::vector<TestMetric> MetricsOf(const v1::Evaluation& evaluation) {
  std::vector<TestMetric> metrics;
  for (const v1::Metric& metric : evaluation.metrics()) metrics.push_back({metric.name(), metric.value()});
  return metrics.empty() && evaluation.has_accuracy() ? AccuracyAlone(evaluation.accuracy()) : metrics;
}

std::vector<TestMetric> MetricsOf(const api::ProgressStatus& progress) {
  std::vector<TestMetric> metrics;
  for (const api::TestMetricStatus& metric : progress.test_metrics) {
    metrics.push_back({metric.name, ParseDecimal(metric.value)});
  }
  const bool accuracy_alone = metrics.empty() && !progress.test_accuracy.empty();
  return accuracy_alone ? AccuracyAlone(ParseDecimal(progress.test_accuracy)) : metrics;
}

std::vector<TestMetric> ExpectedMetrics(const api::TrainingJob& job) {
  std::vector<TestMetric> metrics;
  for (const std::string& name : job.spec.model.metrics) metrics.push_back({name, kUnknown});
  return metrics.empty() ? AccuracyAlone(kUnknown) : metrics;
}

std::optional<double> AccuracyOf(const std::vector<TestMetric>& metrics) {
  const auto found =
      std::find_if(metrics.begin(), metrics.end(), [](const TestMetric& metric) { return IsAccuracy(metric.name); });
  return found == metrics.end() ? std::nullopt : std::optional(found->value);
}

std::string MetricLabel(const std::string& name) { return IsAccuracy(name) ? "accuracy" : CleanText(name); }

std::string MetricsText(const std::vector<TestMetric>& metrics) {
  return absl::StrJoin(metrics, ", ", [](std::string* text, const TestMetric& metric) {
    absl::StrAppend(text, MetricLabel(metric.name), " ", FormatDecimal(metric.value, 4));
  });
}

}  // namespace downpour::cli
