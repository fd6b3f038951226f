#ifndef DOWNPOUR_CLI_RUN_COMPARISON_H_
#define DOWNPOUR_CLI_RUN_COMPARISON_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/run_history.h"

// Several runs side by side. All pure; times are seconds since the first update of the run at hand.
namespace downpour::cli {

struct RecordedRun;

// What a run should reach: "accuracy=0.85".
struct MetricTarget {
  std::string text;
  std::string metric;
  double value = 0;
};

// kInvalidArgument: not METRIC=VALUE with a finite number.
absl::StatusOr<MetricTarget> ParseMetricTarget(const std::string& text);

// What is absent was not recorded, or there was none of it.
struct ComparedRun {
  std::string name;  // each another
  std::string directory;
  std::string job;
  std::string phase;
  std::string mode;
  std::string optimizer;
  std::string codec;
  int workers = 0;
  std::optional<int> ps;              // absent: the job has no parameter servers
  std::optional<double> loss;         // of training, the newest
  std::vector<TestMetric> best = {};  // of each metric over all evaluations, in the order of the manifest
  std::optional<double> samples_per_second;
  std::vector<std::optional<double>> seconds_to = {};  // each target; absent: not reached
  std::optional<std::uint64_t> lost_updates;
  std::optional<NetworkBytes> bytes;
};

struct ComparedPoint {
  double value = 0;  // NaN: a gap
  double seconds = 0;
  std::optional<double> samples;  // trained on when it was so
  std::optional<double> bytes;    // received and sent until then
  std::string title = {};         // of an evaluation: which, for people
};

struct ComparedSeries {
  std::size_t run = 0;  // which
  std::vector<ComparedPoint> points;
};

// What changed while the runs trained: the training loss, the loss and each metric on the test set.
struct ComparedQuantity {
  std::string name;  // "training loss", "test accuracy"
  std::string unit;  // "loss", "accuracy"
  bool is_loss = false;
  std::vector<ComparedSeries> series;  // of the runs that have it
};

// A field of the manifests.
struct ManifestDifference {
  std::string path;                                // "spec.update.optimizer.learningRate"
  std::vector<std::optional<std::string>> values;  // of each run; absent: the manifest has no such field
};

struct Comparison {
  std::vector<std::string> targets;
  std::vector<ComparedRun> runs;
  std::vector<ComparedQuantity> quantities;
  std::vector<ManifestDifference> differences;
};

// At least one run. kInvalidArgument: a run is there twice, or no run has the metric of a target.
absl::StatusOr<Comparison> CompareRuns(const std::vector<RecordedRun>& runs, const std::vector<MetricTarget>& targets);

// The figures of the runs and what differs between their manifests; with `curves` the quantities as well, point by
// point.
std::string ComparisonToJson(const Comparison& comparison, bool curves);

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_RUN_COMPARISON_H_
