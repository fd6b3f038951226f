#ifndef DOWNPOUR_CLI_HISTORY_RECORDER_H_
#define DOWNPOUR_CLI_HISTORY_RECORDER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/process_backend.h"
#include "cli/run_history.h"

namespace downpour::cli {

// RunSummary::phase.
inline constexpr char kSucceeded[] = "Succeeded";
inline constexpr char kFailed[] = "Failed";
inline constexpr char kStopped[] = "Stopped";

// Makes the history of a run out of what the run loop sees. No I/O and no clock: times are given. Not thread-safe.
class HistoryRecorder {
 public:
  // The curve keeps at most `max_points`: when it is full, every other point goes.
  HistoryRecorder(api::TrainingJob job, std::string job_uid, std::string run_directory, double start_time,
                  std::size_t max_points = 2000);

  // A progress answer that came at `time`. `coordinator_start`: when the first incarnation of the coordinator, whose
  // answer this is, was started; absent for a later one. Returns what is new, as lines for metrics.jsonl.
  std::vector<std::string> AddProgress(double time, const v1::ProgressReply& reply,
                                       std::optional<double> coordinator_start, int restarts);
  void AddProcesses(const std::vector<Process>& processes);
  void AddEvent(double time, bool warning, const std::string& reason, const std::string& message);

  // The newest recovery, as often as it changes.
  void AddRecovery(const api::RecoveryStatus& recovery);
  // Fills in what is known only at the end.
  void Finish(double time, const std::string& phase, const std::string& message, int restarts,
              std::optional<LedgerSummary> ledger);

  const RunHistory& history() const { return history_; }

 private:
  void AddPoint(const CurvePoint& point);
  void AddBytes(const v1::ProgressReply& reply);

  const double start_time_;
  const std::size_t max_points_;
  RunHistory history_;
  std::size_t stride_ = 1;  // every stride-th point is kept
  std::size_t skipped_ = 0;

  std::uint64_t generation_ = 0;
  std::uint32_t epochs_done_ = 0;
  std::uint64_t last_updates_ = 0;
  double last_samples_ = 0;
  double last_update_seconds_ = 0;
  std::optional<double> first_update_seconds_;
  std::uint64_t base_updates_ = 0;                // of another run, which this one began with
  std::map<std::uint64_t, NetworkBytes> bytes_;   // by the session of a ps, which is its process
  std::map<double, std::uint64_t> lost_updates_;  // by the begin of the recovery
  // By index and incarnation of the worker: bytes pushed and saved.
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::pair<std::uint64_t, std::uint64_t>> pushed_;
  std::string model_path_;
  std::string best_path_;
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::size_t> evaluation_index_;  // (generation, epochs) -> place
  std::map<std::string, std::size_t> span_index_;                                    // uid -> place
};

// Finished epochs, the current one in part.
double EpochsDone(const v1::ProgressReply& reply);

// summary.json.
std::string SummaryToJson(const RunSummary& summary);

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_HISTORY_RECORDER_H_
