#ifndef DOWNPOUR_CLI_RUN_FOLDER_H_
#define DOWNPOUR_CLI_RUN_FOLDER_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/files.h"
#include "cli/process_backend.h"
#include "operator/api/training_job.h"

// One folder a run. Everything about a run is in it, so `get` and `top` need nothing else.
namespace downpour::cli {

inline constexpr char kRunsDirectory[] = "downpour-runs";

// Where things lie in a run folder; absolute paths.
struct RunPaths {
  std::string root;

  std::string Job() const { return root + "/job.json"; }
  std::string Config() const { return root + "/config.json"; }
  std::string Status() const { return root + "/status.json"; }
  std::string Metrics() const { return root + "/metrics.jsonl"; }
  std::string Scale() const { return root + "/scale.json"; }  // not taken up yet
  std::string Summary() const { return root + "/summary.json"; }
  std::string Report() const { return root + "/report.html"; }
  std::string Log(const std::string& name) const;             // of "worker-2"
  std::string Address(const std::string& name) const;         // where the process writes its host:port
  std::string MetricsAddress(const std::string& name) const;  // likewise, of its metrics
  std::string LocalData() const { return root + "/local"; }   // where workers and ps find each other's memory
};

// A run folder that this process holds: while it lives, RunIsHeld says so to other processes. The lock is the kernel's
// and goes with the process, however it ends.
class RunFolder {
 public:
  // Makes `directory`, or where it is empty <runs>/<job name>-<n> with the next free n, and the folders in it.
  // kAlreadyExists: the directory holds something already. kInvalidArgument: its path is not UTF-8.
  static absl::StatusOr<RunFolder> Create(const std::string& directory, const std::string& runs,
                                          const std::string& job_name);

  const RunPaths& paths() const { return paths_; }

  // Removes what was made, for a run that could not be started. Best effort.
  void Discard();

 private:
  RunFolder(RunPaths paths, bool made, FileDescriptor lock)
      : paths_(std::move(paths)), made_(made), lock_(std::move(lock)) {}

  RunPaths paths_;
  bool made_;  // was not there before
  FileDescriptor lock_;
};

// True while a process holds the run folder.
bool RunIsHeld(const std::string& root);

// The run folders in `runs`, oldest first. Empty where there is no such directory.
std::vector<std::string> ListRuns(const std::string& runs);

// True if the directory looks like a run folder.
bool IsRunFolder(const std::string& directory);

// status.json: the planner's status and the processes. It is stored before anything that it speaks of is started.
struct RunState {
  std::string job_uid;
  double start_time = 0;
  api::TrainingJobStatus status;
  std::vector<Process> processes;
};

std::string RunStateToJson(const RunState& state);
absl::StatusOr<RunState> RunStateFromJson(const std::string& text);

// What `address_file` says, without line ends. kNotFound until the process serves.
absl::StatusOr<std::string> ReadAddress(const std::string& address_file);

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_RUN_FOLDER_H_
