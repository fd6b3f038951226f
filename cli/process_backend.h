#ifndef DOWNPOUR_CLI_PROCESS_BACKEND_H_
#define DOWNPOUR_CLI_PROCESS_BACKEND_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cli/clock.h"
#include "operator/api/training_job.h"

// The local counterpart of a cluster: carries out the planner's actions with processes of this machine.
namespace downpour::cli {

// How a program of a job ends that refuses its input.
inline constexpr int kBadInputExitCode = 2;

struct ProcessSpec {
  api::Role role = api::Role::kWorker;
  int index = 0;
  int incarnation = 1;
  std::vector<std::string> command;  // the program's path and its arguments
  std::string log_path;              // standard output and error are appended
};

// A process from its start on; it stays listed after its end until a newer incarnation takes its place.
struct Process {
  std::string uid;   // "worker-2.3": unique within the run
  std::string name;  // "worker-2"
  api::Role role = api::Role::kWorker;
  int index = 0;
  int incarnation = 1;
  pid_t pid = 0;                  // also its process group
  std::uint64_t start_ticks = 0;  // see StartTicks; 0: not known
  std::string log_path;
  double created_time = 0;
  std::optional<double> finished_time;
  int exit_code = 0;  // once finished; 128 + signal where a signal ended it
  int signal = 0;     // that signal, or 0
  bool stop_requested = false;
  std::string last_log_line;  // once finished, unless it ended well: the last line it wrote

  bool running() const { return !finished_time.has_value(); }
};

// "finished", "stopped", "exit code 3", "killed by signal 9 (Killed)".
std::string EndCause(const Process& process);

std::string ProcessName(api::Role role, int index);                  // "worker-2"
std::string ProcessUid(api::Role role, int index, int incarnation);  // "worker-2.3"

// Not thread-safe: Start must be called on the thread that lives as long as the processes should (the kernel ties their
// parent-death signal to it).
class ProcessBackend {
 public:
  virtual ~ProcessBackend() = default;

  // Starts a process. kAlreadyExists: that role and index still has a running process.
  virtual absl::Status Start(const ProcessSpec& spec) = 0;
  // Asks the process to stop (SIGTERM); Poll kills it when it is still there `grace_seconds` later. Unknown and ended
  // ones are ignored; a later call can only bring the kill forward.
  virtual void Stop(const std::string& uid, double grace_seconds) = 0;
  // Notes which processes ended and kills those whose grace is over. True if a process ended.
  virtual bool Poll() = 0;
  // Seconds until Poll has something to kill; absent: nothing is being stopped.
  virtual std::optional<double> NextDeadline() const = 0;
  // Every running process and the newest incarnation of each role and index, ordered by role and index.
  virtual std::vector<Process> List() const = 0;

  bool AnyRunning() const;
  void StopAll(double grace_seconds);
};

// The process groups of the children that are not reaped yet. Thread-safe.
class ProcessGroups {
 public:
  void Add(pid_t leader);
  // Before the leader is reaped: from then on its number may be another's.
  void Remove(pid_t leader);
  void KillAll();

 private:
  std::mutex mutex_;
  std::set<pid_t> leaders_;
};

// Each process leads a process group of its own, so nothing it starts outlives it, and a Ctrl-C at the terminal reaches
// only the parent. Of the signals that this process ignores, a child ignores SIGINT, SIGQUIT and SIGHUP likewise (see
// nohup); the others, SIGTERM among them, are as usual. The destructor kills every group that is left and waits for
// the processes, each at most a second: what the kernel cannot end is left to it.
class LocalProcesses final : public ProcessBackend {
 public:
  // `clock` must outlive this.
  explicit LocalProcesses(const Clock& clock) : clock_(clock) {}
  ~LocalProcesses() override;
  LocalProcesses(const LocalProcesses&) = delete;
  LocalProcesses& operator=(const LocalProcesses&) = delete;

  absl::Status Start(const ProcessSpec& spec) override;
  void Stop(const std::string& uid, double grace_seconds) override;
  bool Poll() override;
  std::optional<double> NextDeadline() const override;
  std::vector<Process> List() const override;

  // Of its children, for whoever ends this process by force.
  std::shared_ptr<ProcessGroups> groups() const { return groups_; }

 private:
  struct Entry {
    Process process;
    std::optional<double> kill_time;  // when the grace of a stop is over
    std::int64_t log_start = 0;       // where this incarnation's lines begin
  };

  const Clock& clock_;
  const std::shared_ptr<ProcessGroups> groups_ = std::make_shared<ProcessGroups>();
  std::map<std::string, Entry> entries_;  // by uid
};

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_PROCESS_BACKEND_H_
