#ifndef DOWNPOUR_CLI_RUN_LOOP_H_
#define DOWNPOUR_CLI_RUN_LOOP_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/clock.h"
#include "cli/coordinator_link.h"
#include "cli/history_recorder.h"
#include "cli/process_backend.h"
#include "cli/run_folder.h"
#include "cli/run_history.h"
#include "cli/wake.h"
#include "operator/planner/plan.h"

// Carries a job out with local processes: look, plan, act, ask, show, until the planner says that it is over.
namespace downpour::cli {

// Shows a run while it goes on.
class RunView {
 public:
  virtual ~RunView() = default;
  virtual void Show(const Snapshot& snapshot, const RunHistory& history) = 0;
};

// What the loop acts on; everything outlives it.
struct RunParts {
  const Clock& clock;
  ProcessBackend& processes;
  CoordinatorLink& coordinator;
  Waiter& waiter;
  RunView& view;
  HistoryRecorder& recorder;
  // How a process is started.
  std::function<ProcessSpec(api::Role role, int index, int incarnation)> make_process;
  // Makes the state durable. An error ends the run.
  std::function<absl::Status(const RunState&)> store;
  // Appends to metrics.jsonl. An error ends the run.
  std::function<absl::Status(const std::string& line)> append_metrics;
  // Audits the tables of the ps, or of a ring's workers, within seconds. Silence, and one that lags behind, is asked
  // again for `audit_patience`.
  std::function<absl::StatusOr<LedgerSummary>()> read_ledger;
  // The job as the user wants it from now on, with the next revision, if he changed it since it was asked last; the
  // next start of a process follows it. An error is told him, and the job stays as it is.
  std::function<absl::StatusOr<std::optional<api::TrainingJob>>(const api::TrainingJob& job)> take_change;
  // Tells these processes to exit 0, within seconds.
  std::function<void(const std::vector<Process>& running)> finish;
  double audit_patience = 30;  // seconds
};

struct RunOutcome {
  std::string phase;  // kSucceeded, kFailed or kStopped
  std::string message;
  bool bad_input = false;               // it failed because a process refused its input
  std::optional<LedgerSummary> ledger;  // absent though it succeeded: it could not be read, `message` says why
};

// When it returns no process of the job runs any more. `job.status` is where the job stands (empty: not started).
// `start_time` is when the run began, on the clock.
RunOutcome RunJob(api::TrainingJob job, const std::string& job_uid, double start_time, const RunParts& parts);

// How the run looks at `now`. `reply_time`: when the answer came, if there is one.
Snapshot MakeSnapshot(double start_time, double now, const api::TrainingJobStatus& status,
                      const std::vector<Process>& processes, const std::optional<v1::ProgressReply>& reply,
                      double reply_time);

// Whether the coordinator counts this very start of it as a member.
bool IsReady(const Process& process, const std::optional<v1::ProgressReply>& reply, double reply_time);

// What the planner sees.
planner::Observed Observe(const std::vector<Process>& processes, const std::optional<v1::ProgressReply>& reply,
                          double reply_time);

// The outcome that the planner has set, if the job is over.
std::optional<RunOutcome> FinalOutcome(const api::TrainingJobStatus& status);

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_RUN_LOOP_H_
