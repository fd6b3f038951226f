#ifndef DOWNPOUR_CLI_WAKE_H_
#define DOWNPOUR_CLI_WAKE_H_

#include <functional>
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

// SIGINT, SIGTERM and SIGHUP ask to stop, except those that were ignored when the program began, as under nohup or in
// the background of a script: they stay ignored. SIGCHLD tells of children. Nothing runs in a signal handler. SIGPIPE
// and SIGXFSZ are ignored: the failed write says it.
//
// From then on a thread of its own counts the signals, and ends the program kPatienceSeconds after the second one, with
// one line on standard error and exit code 130, whatever the rest of the program waits for.
class SignalWaiter final : public Waiter {
 public:
  static constexpr int kPatienceSeconds = 3;

  // Once in a program and before any other thread is started: threads inherit the signal mask.
  static absl::StatusOr<SignalWaiter> Create();

  int Wait(double seconds, int descriptor) override;

 private:
  SignalWaiter(FileDescriptor stops, FileDescriptor children)
      : stops_(std::move(stops)), children_(std::move(children)) {}

  FileDescriptor stops_;  // counts them
  FileDescriptor children_;
};

// What is done before a program is ended by force, on the thread that ends it: it must not wait for anything. One at a
// time; forgotten when this goes.
class LastAct {
 public:
  explicit LastAct(std::function<void()> act);
  ~LastAct();
  LastAct(const LastAct&) = delete;
  LastAct& operator=(const LastAct&) = delete;
};

// The same wish of the user as a stop token, for commands that wait for answers of others.
class SignalStop {
 public:
  // As SignalWaiter::Create.
  static absl::StatusOr<std::unique_ptr<SignalStop>> Create();
  ~SignalStop();
  SignalStop(const SignalStop&) = delete;
  SignalStop& operator=(const SignalStop&) = delete;

  // Whatever is to happen at once when it is requested must not block.
  std::stop_token token() const { return stop_.get_token(); }

 private:
  SignalStop(SignalWaiter waiter, FileDescriptor end) : waiter_(std::move(waiter)), end_(std::move(end)) {}

  SignalWaiter waiter_;
  const FileDescriptor end_;  // readable at the end of the thread
  std::stop_source stop_;
  std::jthread thread_;
};

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_WAKE_H_
