#ifndef DOWNPOUR_CLI_RENDER_TEST_METRICS_H_
#define DOWNPOUR_CLI_RENDER_TEST_METRICS_H_

#include <optional>
#include <string>
#include <vector>

#include "cli/run_history.h"
#include "downpour/v1/control.pb.h"
#include "operator/api/training_job.h"

// What is measured on the test set, and how it is called. All pure; metrics are in the order of the manifest.
namespace downpour::cli {

// Those of an evaluation. One that only has an accuracy, as earlier versions wrote it, has a metric of that name.
std::vector<TestMetric> MetricsOf(const v1::Evaluation& evaluation);
// Likewise of a status, the numbers of which are text: NaN where one is no number.
std::vector<TestMetric> MetricsOf(const api::ProgressStatus& progress);
// Of an earlier version that knew no metrics but an accuracy.
std::vector<TestMetric> AccuracyAlone(double accuracy);

// Those that the manifest names, before any is measured: NaN. It names none: an accuracy.
std::vector<TestMetric> ExpectedMetrics(const api::TrainingJob& job);

bool IsAccuracy(const std::string& name);  // Accuracy or BinaryAccuracy
// The first of them.
std::optional<double> AccuracyOf(const std::vector<TestMetric>& metrics);

// "accuracy" for an accuracy, else the name; clean text.
std::string MetricLabel(const std::string& name);

// "accuracy 0.8712, Top5Accuracy 0.9911"; a dash for what is not finite.
std::string MetricsText(const std::vector<TestMetric>& metrics);

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_RENDER_TEST_METRICS_H_
