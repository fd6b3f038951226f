#ifndef DOWNPOUR_CLI_PROCESS_HANDLE_H_
#define DOWNPOUR_CLI_PROCESS_HANDLE_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/files.h"

// Processes that are not children of this one, told from others that were given their numbers since.
namespace downpour::cli {

// When the kernel started it, in its ticks since the machine began: with the number this names one process of the
// machine. Absent: no process of this number runs; one that has ended and is not reaped does not.
std::optional<std::uint64_t> StartTicks(pid_t pid);

// A pidfd of the process that began then. kNotFound: it has ended.
absl::StatusOr<FileDescriptor> OpenProcess(pid_t pid, std::uint64_t start_ticks);

// kNotFound: it has ended.
absl::Status SignalProcess(int pidfd, int signal);

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_PROCESS_HANDLE_H_
