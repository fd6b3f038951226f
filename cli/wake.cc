#include "cli/wake.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/commands.h"
#include "cli/render/live_view.h"
#include "cli/thread.h"

namespace downpour::cli {
namespace {

using SteadyClock = std::chrono::steady_clock;

struct LastActs {
  std::mutex mutex;
  std::function<void()> act;
};
// Never destroyed: the thread that reads it lives as long as the process.
LastActs& TheLastAct() {
  static LastActs* const acts = new LastActs;
  return *acts;
}

bool IsIgnored(int signal) {
  struct sigaction now {};
  return sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

int ReadSignals(int descriptor) {
  int count = 0;
  signalfd_siginfo information{};
  while (read(descriptor, &information, sizeof information) == sizeof information) ++count;
  return count;
}

[[noreturn]] void EndByForce() {
  {
    LastActs& last = TheLastAct();
    const std::lock_guard lock(last.mutex);
    if (last.act) last.act();
  }
  // Where nobody reads standard error, the line is lost and the end comes all the same.
  fcntl(STDERR_FILENO, F_SETFL, fcntl(STDERR_FILENO, F_GETFL) | O_NONBLOCK);
  const std::string line =
      absl::StrCat(isatty(STDERR_FILENO) != 0 ? LiveView::Farewell() : "", "downpour: ended by force ",
                   SignalWaiter::kPatienceSeconds, " s after the second signal: something did not come to its end\n");
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) _exit(kExitStopped);
  _exit(kExitStopped);
}

// Hands the signals on; of the second one it makes the end of the program certain. Allocates nothing before that.
void WatchSignals(int signals, int stops) {
  int asked = 0;
  SteadyClock::time_point end;
  for (;;) {
    int wait = -1;
    if (asked >= 2) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - SteadyClock::now()).count();
      if (left <= 0) EndByForce();
      wait = static_cast<int>(left);
    }
    pollfd descriptor{signals, POLLIN, 0};
    poll(&descriptor, 1, wait);
    const int count = ReadSignals(signals);
    if (asked < 2 && asked + count >= 2)
      end = SteadyClock::now() + std::chrono::seconds(SignalWaiter::kPatienceSeconds);
    asked = std::min(2, asked + count);
    if (count > 0) eventfd_write(stops, static_cast<eventfd_t>(count));
  }
}

}  // namespace

LastAct::LastAct(std::function<void()> act) {
  const std::lock_guard lock(TheLastAct().mutex);
  TheLastAct().act = std::move(act);
}

LastAct::~LastAct() {
  const std::lock_guard lock(TheLastAct().mutex);
  TheLastAct().act = nullptr;
}

absl::StatusOr<SignalWaiter> SignalWaiter::Create() {
  sigset_t stops;
  sigemptyset(&stops);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    if (!IsIgnored(signal)) sigaddset(&stops, signal);
  }
  sigset_t children;
  sigemptyset(&children);
  sigaddset(&children, SIGCHLD);
  for (const sigset_t* signals : {&stops, &children}) {
    const int error = pthread_sigmask(SIG_BLOCK, signals, nullptr);
    if (error != 0) return SystemError(error, "signals", "cannot be blocked");
  }
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  signal(SIGCHLD, SIG_DFL);  // ignored, it would leave nothing of a child to wait for
  FileDescriptor stop_signals(signalfd(-1, &stops, SFD_CLOEXEC | SFD_NONBLOCK));
  FileDescriptor child_signals(signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK));
  FileDescriptor count(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  // The thread's own: it lives longer than the waiter.
  FileDescriptor written(fcntl(count.get(), F_DUPFD_CLOEXEC, 0));
  if (!stop_signals.valid() || !child_signals.valid() || !count.valid() || !written.valid()) {
    return SystemError(errno, "signals", "cannot be read");
  }
  absl::StatusOr<std::thread> watch =
      StartThread<std::thread>("the thread that waits for signals",
                               [signals = stop_signals.get(), stops = written.get()] { WatchSignals(signals, stops); });
  if (!watch.ok()) return watch.status();
  watch->detach();
  stop_signals.Release();
  written.Release();
  return SignalWaiter(std::move(count), std::move(child_signals));
}

int SignalWaiter::Wait(double seconds, int descriptor) {
  // poll skips descriptor -1.
  pollfd descriptors[] = {{stops_.get(), POLLIN, 0}, {children_.get(), POLLIN, 0}, {descriptor, POLLIN, 0}};
  poll(descriptors, 3, static_cast<int>(std::ceil(std::clamp(seconds, 0.0, 3600.0) * 1000)));
  ReadSignals(children_.get());
  eventfd_t stops = 0;
  return eventfd_read(stops_.get(), &stops) == 0 ? static_cast<int>(stops) : 0;
}

absl::StatusOr<std::unique_ptr<SignalStop>> SignalStop::Create() {
  absl::StatusOr<SignalWaiter> waiter = SignalWaiter::Create();
  if (!waiter.ok()) return waiter.status();
  FileDescriptor end(eventfd(0, EFD_CLOEXEC));
  if (!end.valid()) return SystemError(errno, "signals", "cannot be waited for");
  std::unique_ptr<SignalStop> stop(new SignalStop(*std::move(waiter), std::move(end)));
  absl::StatusOr<std::jthread> thread = StartThread<std::jthread>(
      "the thread that waits for the wish to stop", [self = stop.get()](const std::stop_token& ends) {
        while (!ends.stop_requested()) {
          if (self->waiter_.Wait(3600, self->end_.get()) > 0) self->stop_.request_stop();
        }
      });
  if (!thread.ok()) return thread.status();
  stop->thread_ = *std::move(thread);
  return stop;
}

SignalStop::~SignalStop() {
  thread_.request_stop();
  eventfd_write(end_.get(), 1);
}

}  // namespace downpour::cli
