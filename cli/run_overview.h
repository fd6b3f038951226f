#ifndef DOWNPOUR_CLI_RUN_OVERVIEW_H_
#define DOWNPOUR_CLI_RUN_OVERVIEW_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/run_history.h"

// What a run folder says about its run, for a process that is not the run.
namespace downpour::cli {

// RunOverview::phase of a run whose process is gone without a summary.
inline constexpr char kLost[] = "Lost";

struct RunOverview {
  std::string name;  // of the folder
  std::string run_directory;
  std::string job;
  std::string phase;
  bool running = false;
  int workers_ready = 0;
  int workers_desired = 0;
  int ps_ready = 0;
  int ps_desired = 0;
  double epochs = 0;
  int epochs_total = 0;
  std::optional<double> accuracy;
  int restarts = 0;
  double age_seconds = 0;
};

// `now`: seconds since the epoch.
absl::StatusOr<RunOverview> ReadRunOverview(const std::string& root, double now);

struct MetricsTail {
  std::vector<CurvePoint> curve;
  std::optional<double> accuracy;  // of the newest evaluation
};

// What a metrics.jsonl holds; of an unreadable file, nothing. A last line that is still being written is left out.
MetricsTail ParseMetrics(const std::string& text);
MetricsTail ReadMetrics(const std::string& path);

std::string OverviewsToText(const std::vector<RunOverview>& runs);
std::string OverviewsToJson(const std::vector<RunOverview>& runs);

// "12s", "3m5s", "2h10m", "4d3h".
std::string FormatAge(double seconds);

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_RUN_OVERVIEW_H_
