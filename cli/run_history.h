#ifndef DOWNPOUR_CLI_RUN_HISTORY_H_
#define DOWNPOUR_CLI_RUN_HISTORY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "downpour/v1/control.pb.h"
#include "operator/api/training_job.h"

// What `downpour run` knows of a run at one moment and over its length; filled by the run loop, read by the renderers.
namespace downpour::cli {

// A member of the job: a process of this machine, or a pod.
struct ProcessView {
  std::string name;  // "worker-2"
  api::Role role = api::Role::kWorker;
  int index = 0;
  int incarnation = 1;
  int pid = 0;
  std::string state;  // starting, running, stopping, ended; of a pod also why it waits
  int restarts = 0;
  std::string log_path;
  std::string node = {};  // of a pod
};

struct Snapshot {
  double seconds = 0;       // since the run began
  bool on_cluster = false;  // members are pods, of whom single figures are not known
  std::string note;         // why the job is not as it should be; empty: nothing, or the progress says it
  api::TrainingJobStatus status;
  std::optional<v1::ProgressReply> progress;  // the newest answer; absent: the coordinator never answered
  double progress_age_seconds = 0;
  std::vector<ProcessView> processes;
};

// Payloads of the data plane, as the ps counted them: pushes received, pulls sent.
struct NetworkBytes {
  std::uint64_t received = 0;
  std::uint64_t sent = 0;
  friend bool operator==(const NetworkBytes&, const NetworkBytes&) = default;
};

// One point a progress answer, thinned to at most a few thousand over the run.
struct CurvePoint {
  double seconds = 0;
  std::uint64_t updates = 0;
  double epochs = 0;                         // fractional
  std::optional<double> loss;                // absent: not known
  std::optional<double> samples_per_second;  // absent: not known
  int workers = 0;
  std::uint64_t generation = 1;
  std::uint64_t samples = 0;               // of the updates
  std::optional<NetworkBytes> bytes = {};  // absent: an earlier version did not write them
};

struct TimelineEvent {
  double seconds = 0;
  bool warning = false;
  std::string reason;  // WorkerReplaced, PsLost, EpochDone, ...
  std::string message;
};

// A process from its start to its end.
struct TimelineSpan {
  std::string name;
  int incarnation = 1;
  double start_seconds = 0;
  std::optional<double> end_seconds;  // absent: until the end of the run
  std::string end_cause;              // "finished", "killed by signal 9", ...
};

struct LedgerSummary {
  std::uint64_t expected = 0;    // updates the job must apply
  std::uint64_t applied = 0;     // on the slice that has fewest
  std::uint64_t missing = 0;     // summed over the slices' worst case: expected but not on every slice
  std::uint64_t duplicated = 0;  // steps a slice took beyond its table, the largest over the slices
  std::uint64_t skipped = 0;
  bool of_workers = false;  // of a job without parameter servers: each worker has every slice
};

// One of spec.model.metrics, over the whole test set.
struct TestMetric {
  std::string name;
  double value = 0;
  friend bool operator==(const TestMetric&, const TestMetric&) = default;
};

// An evaluation as metrics.jsonl has it.
struct EvaluationPoint {
  double seconds = 0;
  std::uint64_t generation = 1;
  double epochs = 0;                // done when it was made
  std::vector<TestMetric> metrics;  // in the order of the manifest
  std::optional<double> loss;
};

struct RunSummary {
  std::string job;
  std::string job_uid;
  std::string phase;                          // Succeeded, Failed, Stopped
  std::string message;                        // why, unless it succeeded
  std::vector<TestMetric> test_metrics = {};  // of the newest evaluation, in the order of the manifest
  std::optional<double> test_loss;
  double epochs = 0;
  // Mean over training, evaluation and recovery included; absent: fewer than two updates were applied.
  std::optional<double> samples_per_second;
  double first_update_seconds = 0;
  double total_seconds = 0;
  int restarts = 0;
  std::uint64_t generation = 0;
  std::string resumed_from = {};  // URI of the checkpoint that it began with; empty: with initial values
  std::string checkpoint = {};    // URI of the newest of this job; empty: there is none
  std::uint64_t checkpoint_updates = 0;
  NetworkBytes bytes = {};
  std::uint64_t lost_updates = 0;       // that were applied and lost again
  std::uint64_t push_bytes = 0;         // of gradients as the workers last reported them
  std::uint64_t push_bytes_saved = 0;   // by the codec: so much more they would have been as float32
  std::optional<LedgerSummary> ledger;  // absent: the ps could not be read, `message` says why
  std::string model_path;
  std::string stop_reason = {};        // why it ended before all epochs were done; empty: it did not
  std::string rate_reason = {};        // why the learning rate was less than the schedule said; empty: it was not
  std::optional<int> best_epoch = {};  // where a model is kept for being the best: after so many epochs
  std::string best_reason = {};
  std::string best_path = {};
  std::string run_directory;
  std::vector<std::string> warnings = {};  // what the job went on without, each once
};

struct RunHistory {
  api::TrainingJob job;
  RunSummary summary;
  std::vector<CurvePoint> curve;
  std::vector<v1::Evaluation> evaluations;
  std::vector<double> evaluation_seconds;  // when each was first seen
  std::vector<TimelineSpan> spans;
  std::vector<TimelineEvent> events;
};

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_RUN_HISTORY_H_
