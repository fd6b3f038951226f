#ifndef DOWNPOUR_CLI_LAUNCH_H_
#define DOWNPOUR_CLI_LAUNCH_H_

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/process_backend.h"
#include "cli/run_folder.h"
#include "operator/api/training_job.h"

// From a TrainingJob to the processes that carry it out.
namespace downpour::cli {

inline constexpr char kWorkerProgram[] = "downpour-worker";

// 32 random hexadecimal digits.
std::string MakeJobUid();

// Where the programs of the roles lie: DOWNPOUR_BINARY_DIR, or else beside this program.
std::string BinaryDirectory();

// kNotFound names the program that is missing there.
absl::Status CheckBinaries(const std::string& binary_directory);

// What the processes read: the TrainingConfig as JSON, with absolute paths. An empty output directory: no model is
// kept.
absl::StatusOr<std::string> MakeConfig(const api::TrainingJob& job, const std::string& job_uid,
                                       const std::string& output_directory);

// How one process is started. All ports are ephemeral; `parent` is the process it must not outlive.
// Where shared memory is to be used, data between workers and ps go through it.
ProcessSpec MakeProcessSpec(const RunPaths& paths, const std::string& binary_directory, pid_t parent,
                            api::Strategy strategy, bool shared_memory, api::Role role, int index, int incarnation);

// Checks on this machine that validation cannot make. kInvalidArgument: "spec.dataset.path: ...".
absl::Status CheckDataset(const api::TrainingJob& job);

// What a run folder needs at least, for the logs, the model and the report.
inline constexpr std::uint64_t kRunFolderBytes = 32ULL << 20;

// kResourceExhausted: the file system of `directory` has less than `needed` bytes.
absl::Status CheckFreeSpace(const std::string& directory, std::uint64_t needed);

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_LAUNCH_H_
