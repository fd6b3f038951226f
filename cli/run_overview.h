#ifndef DOWNPOUR_CLI_RUN_OVERVIEW_H_
#define DOWNPOUR_CLI_RUN_OVERVIEW_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/run_folder.h"
#include "cli/run_history.h"

// What a run folder says about its run, for a process that is not the run; and how a run or a job is listed.
namespace downpour::cli {

// RunOverview::phase of a run whose process is gone without a summary.
inline constexpr char kLost[] = "Lost";

struct RunOverview {
  std::string name;            // of the folder, or of the job on a cluster
  std::string namespace_name;  // of a job on a cluster
  std::string run_directory;   // of a run
  std::string job;
  std::string phase;
  std::string reason;   // why the phase is what it is, in a word
  std::string message;  // of a run that has ended: why, unless it succeeded
  bool running = false;
  int workers_ready = 0;
  int workers_desired = 0;
  bool has_ps = true;  // the job is one with parameter servers
  int ps_ready = 0;
  int ps_desired = 0;
  std::optional<api::RingStatus> ring;  // of a job without; absent: not known
  std::uint64_t step = 0;               // updates applied
  std::uint64_t total_steps = 0;
  double epochs = 0;
  int epochs_total = 0;                  // 0: not known, as of a job of so many steps
  std::vector<TestMetric> test_metrics;  // of the newest evaluation, in the order of the manifest
  int restarts = 0;
  double age_seconds = 0;
};

// `now`: seconds since the epoch.
absl::StatusOr<RunOverview> ReadRunOverview(const std::string& root, double now);

struct MetricsTail {
  std::vector<CurvePoint> curve;
  std::vector<EvaluationPoint> evaluations;
};

// What a metrics.jsonl holds; of an unreadable file, nothing. A last line that is still being written is left out.
MetricsTail ParseMetrics(const std::string& text);
MetricsTail ReadMetrics(const std::string& path);

// Its manifest.
absl::StatusOr<api::TrainingJob> ReadRunJob(const std::string& root);
// The state as the run stored it last.
absl::StatusOr<RunState> ReadRunState(const std::string& root);
// Asks its coordinator, within half a second.
absl::StatusOr<v1::ProgressReply> AskRun(const std::string& root, const std::string& job_uid);

// The run that is meant: the run folder `name`, or that name in ./downpour-runs. kNotFound also says how a job on a
// cluster is meant.
absl::StatusOr<std::string> FindRun(const std::string& name);

// A table; `namespaces`: with a column for them. There is one for metrics if any of them is not the accuracy.
std::string OverviewsToText(const std::vector<RunOverview>& runs, bool namespaces = false);
std::string OverviewsToJson(const std::vector<RunOverview>& runs);

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_RUN_OVERVIEW_H_
