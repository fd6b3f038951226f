#include "cli/wake.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <utility>

namespace downpour::cli {

absl::StatusOr<SignalWaiter> SignalWaiter::Create() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&signals, signal);
  const int error = pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  if (error != 0) return SystemError(error, "signals", "cannot be blocked");
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  FileDescriptor descriptor(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!descriptor.valid()) return SystemError(errno, "signals", "cannot be read");
  return SignalWaiter(std::move(descriptor));
}

int SignalWaiter::Wait(double seconds, int descriptor) {
  pollfd descriptors[] = {{signals_.get(), POLLIN, 0}, {descriptor, POLLIN, 0}};  // poll skips descriptor -1
  poll(descriptors, 2, static_cast<int>(std::ceil(std::clamp(seconds, 0.0, 3600.0) * 1000)));
  int stops = 0;
  signalfd_siginfo information{};
  while (read(signals_.get(), &information, sizeof information) == sizeof information) {
    if (information.ssi_signo != SIGCHLD) ++stops;
  }
  return stops;
}

absl::StatusOr<std::unique_ptr<SignalStop>> SignalStop::Create() {
  absl::StatusOr<SignalWaiter> waiter = SignalWaiter::Create();
  if (!waiter.ok()) return waiter.status();
  FileDescriptor end(eventfd(0, EFD_CLOEXEC));
  if (!end.valid()) return SystemError(errno, "signals", "cannot be waited for");
  return std::unique_ptr<SignalStop>(new SignalStop(*std::move(waiter), std::move(end)));
}

SignalStop::SignalStop(SignalWaiter waiter, FileDescriptor end)
    : waiter_(std::move(waiter)), end_(std::move(end)), thread_([this](const std::stop_token& ends) {
        while (!ends.stop_requested()) {
          if (waiter_.Wait(3600, end_.get()) > 0) stop_.request_stop();
        }
      }) {}

SignalStop::~SignalStop() {
  thread_.request_stop();
  eventfd_write(end_.get(), 1);
}

}  // namespace downpour::cli
