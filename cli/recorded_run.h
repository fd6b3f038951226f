#ifndef DOWNPOUR_CLI_RECORDED_RUN_H_
#define DOWNPOUR_CLI_RECORDED_RUN_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "cli/run_history.h"
#include "cli/run_overview.h"
#include "operator/api/training_job.h"

namespace downpour::cli {

// What the folder of a run says of it, whether it is over or not.
struct RecordedRun {
  std::string name;  // of the folder
  std::string directory;
  std::string phase;  // as `downpour get` has it
  api::TrainingJob job;
  MetricsTail metrics;
  // What only the summary says. Absent: the run is not over, or lost, or there was none of it.
  std::optional<double> first_update_seconds;
  std::optional<double> samples_per_second;
  std::optional<std::uint64_t> lost_updates;
  std::optional<NetworkBytes> bytes;
};

// Errors name the file.
absl::StatusOr<RecordedRun> ReadRecordedRun(const std::string& root);

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_RECORDED_RUN_H_
