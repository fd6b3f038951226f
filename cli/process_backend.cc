#include "cli/process_backend.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "cli/files.h"
#include "cli/process_handle.h"
#include "operator/api/manifest.h"

namespace downpour::cli {
namespace {

constexpr std::int64_t kLogTailBytes = 4096;
constexpr int kEndMilliseconds = 1000;  // that a killed process is waited for

// The last line with anything in it that was written at or after `start`.
std::string LastLine(const std::string& path, std::int64_t start) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat information {};
  if (!file.valid() || fstat(file.get(), &information) != 0) return "";
  const std::int64_t from = std::max<std::int64_t>(start, information.st_size - kLogTailBytes);
  if (from >= information.st_size) return "";
  std::string tail(static_cast<std::size_t>(information.st_size - from), '\0');
  const ssize_t count = pread(file.get(), tail.data(), tail.size(), from);
  if (count <= 0) return "";
  absl::string_view text = absl::StripTrailingAsciiWhitespace({tail.data(), static_cast<std::size_t>(count)});
  const std::size_t line_end = text.rfind('\n');
  return std::string(line_end == absl::string_view::npos ? text : text.substr(line_end + 1));
}

// False where a process ended in the middle of a line.
bool EndsInALine(int descriptor) {
  const off_t size = lseek(descriptor, 0, SEEK_END);
  char last = 0;
  return size <= 0 || pread(descriptor, &last, 1, size - 1) != 1 || last == '\n';
}

// posix_spawn's attributes, freed at the end of the scope.
class SpawnSetup {
 public:
  explicit SpawnSetup(int log_descriptor) {
    posix_spawnattr_init(&attributes_);
    posix_spawn_file_actions_init(&actions_);

    // The parent blocks the signals that it reads from a descriptor and ignores some; a child starts with neither.
    // Those that the parent was told to ignore when it began stay ignored, but for the one that asks a child to stop.
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes_, &none);
    sigset_t defaults;
    sigemptyset(&defaults);
    for (const int signal : {SIGPIPE, SIGXFSZ, SIGTERM, SIGCHLD}) sigaddset(&defaults, signal);
    posix_spawnattr_setsigdefault(&attributes_, &defaults);
    posix_spawnattr_setpgroup(&attributes_, 0);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);

    posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions_, log_descriptor, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions_, log_descriptor, STDERR_FILENO);
    posix_spawn_file_actions_addclosefrom_np(&actions_, STDERR_FILENO + 1);
  }
  ~SpawnSetup() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnSetup(const SpawnSetup&) = delete;
  SpawnSetup& operator=(const SpawnSetup&) = delete;

  const posix_spawnattr_t* attributes() const { return &attributes_; }
  const posix_spawn_file_actions_t* actions() const { return &actions_; }

 private:
  posix_spawnattr_t attributes_;
  posix_spawn_file_actions_t actions_;
};

}  // namespace

std::string ProcessName(api::Role role, int index) {
  return absl::StrCat(std::string(api::ToString(role)), "-", index);
}

std::string ProcessUid(api::Role role, int index, int incarnation) {
  return absl::StrCat(ProcessName(role, index), ".", incarnation);
}

std::string EndCause(const Process& process) {
  if (process.exit_code == 0) return "finished";
  if (process.stop_requested) return "stopped";
  if (process.signal != 0) {
    return absl::StrCat("killed by signal ", process.signal, " (", strsignal(process.signal), ")");
  }
  return absl::StrCat("exit code ", process.exit_code);
}

bool ProcessBackend::AnyRunning() const {
  const std::vector<Process> processes = List();
  return std::any_of(processes.begin(), processes.end(), [](const Process& process) { return process.running(); });
}

void ProcessBackend::StopAll(double grace_seconds) {
  for (const Process& process : List()) {
    if (process.running()) Stop(process.uid, grace_seconds);
  }
}

void ProcessGroups::Add(pid_t leader) {
  const std::lock_guard lock(mutex_);
  leaders_.insert(leader);
}

void ProcessGroups::Remove(pid_t leader) {
  const std::lock_guard lock(mutex_);
  leaders_.erase(leader);
}

void ProcessGroups::KillAll() {
  const std::lock_guard lock(mutex_);
  for (const pid_t leader : leaders_) kill(-leader, SIGKILL);
}

LocalProcesses::~LocalProcesses() {
  groups_->KillAll();
  for (auto& [uid, entry] : entries_) {
    if (!entry.process.running()) continue;
    const FileDescriptor end(static_cast<int>(syscall(SYS_pidfd_open, entry.process.pid, 0)));
    pollfd descriptor{end.get(), POLLIN, 0};
    if (end.valid()) poll(&descriptor, 1, kEndMilliseconds);
    groups_->Remove(entry.process.pid);
    waitpid(entry.process.pid, nullptr, WNOHANG);
  }
}

absl::Status LocalProcesses::Start(const ProcessSpec& spec) {
  const std::string name = ProcessName(spec.role, spec.index);
  for (const auto& [uid, entry] : entries_) {
    if (entry.process.name == name && entry.process.running()) {
      return absl::AlreadyExistsError(absl::StrCat(uid, " is still running"));
    }
  }
  const FileDescriptor log(open(spec.log_path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!log.valid()) return SystemError(errno, spec.log_path, "cannot be opened");

  const double now = clock_.Now();
  const std::string header = absl::StrCat(
      EndsInALine(log.get()) ? "" : "\n", "==== ", name, ", incarnation ", spec.incarnation, ", ",
      absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::UnixEpoch() + absl::Seconds(now), absl::UTCTimeZone()), " ====\n");
  errno = ENOSPC;  // what a short write means
  if (write(log.get(), header.data(), header.size()) != static_cast<ssize_t>(header.size())) {
    return SystemError(errno, spec.log_path, "cannot be written");
  }

  Entry entry;
  entry.log_start = lseek(log.get(), 0, SEEK_END);
  std::vector<std::string> command = spec.command;
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  const SpawnSetup setup(log.get());
  const int error =
      posix_spawn(&entry.process.pid, arguments[0], setup.actions(), setup.attributes(), arguments.data(), environ);
  if (error != 0) return SystemError(error, spec.command.front(), "cannot be started");

  groups_->Add(entry.process.pid);
  entry.process.start_ticks = StartTicks(entry.process.pid).value_or(0);
  entry.process.uid = ProcessUid(spec.role, spec.index, spec.incarnation);
  entry.process.name = name;
  entry.process.role = spec.role;
  entry.process.index = spec.index;
  entry.process.incarnation = spec.incarnation;
  entry.process.log_path = spec.log_path;
  entry.process.created_time = now;
  std::erase_if(entries_, [&name](const auto& item) { return item.second.process.name == name; });
  std::string uid = entry.process.uid;
  entries_.emplace(std::move(uid), std::move(entry));
  return absl::OkStatus();
}

void LocalProcesses::Stop(const std::string& uid, double grace_seconds) {
  const auto found = entries_.find(uid);
  if (found == entries_.end() || !found->second.process.running()) return;
  Entry& entry = found->second;
  const double kill_time = clock_.Now() + grace_seconds;
  if (!entry.process.stop_requested) kill(-entry.process.pid, SIGTERM);
  entry.process.stop_requested = true;
  entry.kill_time = std::min(entry.kill_time.value_or(kill_time), kill_time);
  if (grace_seconds <= 0) kill(-entry.process.pid, SIGKILL);
}

bool LocalProcesses::Poll() {
  bool any_ended = false;
  for (auto& [uid, entry] : entries_) {
    Process& process = entry.process;
    if (!process.running()) continue;
    const double now = clock_.Now();
    if (entry.kill_time.has_value() && *entry.kill_time <= now) {
      kill(-process.pid, SIGKILL);
      entry.kill_time.reset();
    }
    siginfo_t information{};
    if (waitid(P_PID, static_cast<id_t>(process.pid), &information, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        information.si_pid == 0) {
      continue;
    }
    // Until it is reaped its number cannot be given to another group: what it left behind is killed before that.
    kill(-process.pid, SIGKILL);
    groups_->Remove(process.pid);
    int status = 0;
    while (waitpid(process.pid, &status, 0) < 0 && errno == EINTR) {
    }
    process.finished_time = now;
    process.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    process.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (process.exit_code != 0) process.last_log_line = LastLine(process.log_path, entry.log_start);
    entry.kill_time.reset();
    any_ended = true;
  }
  return any_ended;
}

std::optional<double> LocalProcesses::NextDeadline() const {
  std::optional<double> next;
  for (const auto& [uid, entry] : entries_) {
    if (entry.kill_time.has_value()) next = std::min(next.value_or(*entry.kill_time), *entry.kill_time);
  }
  if (next.has_value()) *next = std::max(0.0, *next - clock_.Now());
  return next;
}

std::vector<Process> LocalProcesses::List() const {
  std::vector<Process> processes;
  for (const auto& [uid, entry] : entries_) processes.push_back(entry.process);
  std::sort(processes.begin(), processes.end(), [](const Process& left, const Process& right) {
    return std::tie(left.role, left.index) < std::tie(right.role, right.index);
  });
  return processes;
}

}  // namespace downpour::cli
