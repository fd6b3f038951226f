#ifndef DOWNPOUR_CLI_WAKE_H_
#define DOWNPOUR_CLI_WAKE_H_

#include <memory>
#include <stop_token>
#include <thread>

#include "absl/status/statusor.h"
#include "cli/files.h"

namespace downpour::cli {

// What the run loop sleeps on.
class Waiter {
 public:
  virtual ~Waiter() = default;
  // Returns after `seconds`, or sooner when a child ended, `descriptor` (unless -1) is readable, or the user asked to
  // stop. Returns how often the user asked since the last call.
  virtual int Wait(double seconds, int descriptor) = 0;
};

// SIGINT, SIGTERM and SIGHUP ask to stop, SIGCHLD tells of children; all are read from a descriptor, so nothing runs in
// a signal handler. SIGPIPE and SIGXFSZ are ignored: the failed write says it.
class SignalWaiter final : public Waiter {
 public:
  // Before any thread is started: threads inherit the signal mask.
  static absl::StatusOr<SignalWaiter> Create();

  int Wait(double seconds, int descriptor) override;

 private:
  explicit SignalWaiter(FileDescriptor signals) : signals_(std::move(signals)) {}

  FileDescriptor signals_;
};

// The same wish of the user as a stop token, for commands that wait for answers of others.
class SignalStop {
 public:
  // Before any thread is started but its own.
  static absl::StatusOr<std::unique_ptr<SignalStop>> Create();
  ~SignalStop();
  SignalStop(const SignalStop&) = delete;
  SignalStop& operator=(const SignalStop&) = delete;

  // Whatever is to happen at once when it is requested must not block.
  std::stop_token token() const { return stop_.get_token(); }

 private:
  SignalStop(SignalWaiter waiter, FileDescriptor end);

  SignalWaiter waiter_;
  const FileDescriptor end_;  // readable at the end of the thread
  std::stop_source stop_;
  std::jthread thread_;
};

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_WAKE_H_
