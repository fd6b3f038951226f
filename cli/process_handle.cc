#include "cli/process_handle.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace downpour::cli {
namespace {

// In /proc/PID/stat, counted from the state, which is the first behind the name.
constexpr std::size_t kState = 0;
constexpr std::size_t kStartTime = 19;

}  // namespace

std::optional<std::uint64_t> StartTicks(pid_t pid) {
  const absl::StatusOr<std::string> stat = ReadFile(absl::StrCat("/proc/", pid, "/stat"));
  if (!stat.ok()) return std::nullopt;
  const std::size_t name_end = stat->rfind(") ");  // the name may hold anything
  if (name_end == std::string::npos) return std::nullopt;
  const std::vector<std::string> fields = absl::StrSplit(stat->substr(name_end + 2), ' ');
  std::uint64_t ticks = 0;
  if (fields.size() <= kStartTime || !absl::SimpleAtoi(fields[kStartTime], &ticks)) return std::nullopt;
  if (fields[kState] == "Z" || fields[kState] == "X") return std::nullopt;
  return ticks;
}

absl::StatusOr<FileDescriptor> OpenProcess(pid_t pid, std::uint64_t start_ticks) {
  FileDescriptor process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!process.valid() && errno != ESRCH) return SystemError(errno, absl::StrCat("process ", pid), "cannot be opened");
  // From here on the number cannot pass to another process without the descriptor saying that this one has ended.
  if (!process.valid() || StartTicks(pid) != start_ticks) {
    return absl::NotFoundError(absl::StrCat("process ", pid, " has ended"));
  }
  return process;
}

absl::Status SignalProcess(int pidfd, int signal) {
  if (syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0) == 0) return absl::OkStatus();
  if (errno == ESRCH) return absl::NotFoundError("the process has ended");
  return SystemError(errno, absl::StrCat("signal ", signal), "cannot be sent");
}

}  // namespace downpour::cli
