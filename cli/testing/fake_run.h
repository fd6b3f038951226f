#ifndef DOWNPOUR_CLI_TESTING_FAKE_RUN_H_
#define DOWNPOUR_CLI_TESTING_FAKE_RUN_H_

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "cli/coordinator_link.h"
#include "cli/process_backend.h"
#include "cli/run_loop.h"
#include "cli/wake.h"

// The surroundings of the run loop without processes, sockets and time.
namespace downpour::cli::testing {

class FakeClock final : public Clock {
 public:
  double Now() const override { return now; }
  double now = 1000;
};

// Processes that end when the test or a signal says so.
class FakeProcesses final : public ProcessBackend {
 public:
  explicit FakeProcesses(const Clock& clock) : clock_(clock) {}

  absl::Status Start(const ProcessSpec& spec) override {
    if (!start_error.ok()) return start_error;
    if (on_start) on_start(spec);
    Process process;
    process.name = ProcessName(spec.role, spec.index);
    process.uid = ProcessUid(spec.role, spec.index, spec.incarnation);
    for (const auto& [uid, other] : processes_) {
      if (other.name == process.name && other.running()) return absl::AlreadyExistsError(uid);
    }
    process.role = spec.role;
    process.index = spec.index;
    process.incarnation = spec.incarnation;
    process.pid = ++last_pid_;
    process.created_time = clock_.Now();
    std::erase_if(processes_, [&](const auto& item) { return item.second.name == process.name; });
    processes_[process.uid] = process;
    ++starts;
    return absl::OkStatus();
  }

  void Stop(const std::string& uid, double grace_seconds) override {
    const auto found = processes_.find(uid);
    if (found == processes_.end() || !found->second.running()) return;
    found->second.stop_requested = true;
    if (grace_seconds <= 0) {
      End(uid, 137, 9);
    } else if (!stubborn) {
      End(uid, 0, 0);
    } else {
      kill_times_.try_emplace(uid, clock_.Now() + grace_seconds);
    }
  }

  bool Poll() override {
    for (const auto& [uid, time] : kill_times_) {
      if (time <= clock_.Now() && processes_[uid].running()) End(uid, 137, 9);
    }
    return false;
  }

  std::optional<double> NextDeadline() const override { return std::nullopt; }

  std::vector<Process> List() const override {
    std::vector<Process> list;
    for (const auto& [uid, process] : processes_) list.push_back(process);
    return list;
  }

  void End(const std::string& uid, int exit_code, int signal, const std::string& last_line = "") {
    Process& process = processes_.at(uid);
    if (!process.running()) return;
    process.finished_time = clock_.Now();
    process.exit_code = exit_code;
    process.signal = signal;
    process.last_log_line = last_line;
  }

  std::function<void(const ProcessSpec&)> on_start;
  absl::Status start_error;
  bool stubborn = false;  // ignores SIGTERM
  int starts = 0;

 private:
  const Clock& clock_;
  std::map<std::string, Process> processes_;
  std::map<std::string, double> kill_times_;
  pid_t last_pid_ = 100;
};

// A coordinator that answers what the test computes, unless it is not running.
class FakeCoordinator final : public CoordinatorLink {
 public:
  bool Ask(const v1::ProgressRequest& asked_for) override {
    asked_ = true;
    question = asked_for;
    return true;
  }
  std::optional<absl::StatusOr<v1::ProgressReply>> Take() override {
    if (!std::exchange(asked_, false)) return std::nullopt;
    return answer();
  }
  int wake_descriptor() const override { return -1; }
  void Reset() override {}

  std::function<absl::StatusOr<v1::ProgressReply>()> answer;
  v1::ProgressRequest question;  // the newest

 private:
  bool asked_ = false;
};

// Time passes only here.
class FakeWaiter final : public Waiter {
 public:
  explicit FakeWaiter(FakeClock& clock) : clock_(clock) {}
  int Wait(double seconds, int) override {
    clock_.now += std::max(seconds, 0.001);
    return on_wait ? on_wait() : 0;
  }

  std::function<int()> on_wait;  // how often the user asked to stop

 private:
  FakeClock& clock_;
};

class FakeView final : public RunView {
 public:
  void Show(const Snapshot& snapshot, const RunHistory&) override { last = snapshot; }
  Snapshot last;
};

}  // namespace downpour::cli::testing

#endif  // DOWNPOUR_CLI_TESTING_FAKE_RUN_H_
