#include "tests/support/wall_clock.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <thread>

namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kLook = kSecond / 50;  // how soon a thread that waits sees that the clock was set

std::atomic<std::uint64_t> timed_waits = 0;

// Where it says how far the wall clock is ahead.
std::atomic<std::int64_t>* Open() {
  static std::atomic<std::int64_t> own = 0;
  const char* const path = std::getenv("DOWNPOUR_WALL_CLOCK");
  if (path == nullptr) return &own;
  const int file = open(path, O_RDWR | O_CLOEXEC);
  void* const memory = mmap(nullptr, sizeof own, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) {
    std::perror(path);
    std::abort();
  }
  close(file);
  return static_cast<std::atomic<std::int64_t>*>(memory);
}

std::atomic<std::int64_t>& Ahead() {
  static std::atomic<std::int64_t>* const ahead = Open();
  return *ahead;
}

template <typename Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

std::int64_t ToNanoseconds(const timespec& time) { return time.tv_sec * kSecond + time.tv_nsec; }

timespec ToTimespec(std::int64_t nanoseconds) { return {nanoseconds / kSecond, nanoseconds % kSecond}; }

std::int64_t Read(clockid_t clock) {
  timespec now = {};
  clock_gettime(clock, &now);
  return ToNanoseconds(now);
}

using Syscall = long(long, ...);

// As the kernel does it where the clock is set meanwhile.
long WaitUntil(Syscall* next, long word, long operation, long value, std::int64_t until, long bits) {
  for (;;) {
    const std::int64_t left = until - Read(CLOCK_REALTIME);
    const timespec look = ToTimespec(Read(CLOCK_MONOTONIC) + std::clamp<std::int64_t>(left, 0, kLook));
    const long result = next(SYS_futex, word, operation & ~FUTEX_CLOCK_REALTIME, value, &look, nullptr, bits);
    if (result == 0 || errno != ETIMEDOUT || left <= 0) return result;
  }
}

}  // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  static auto* const next = Next<int(clockid_t, timespec*)>("clock_gettime");
  const int result = next(clock, time);
  if (result == 0 && clock == CLOCK_REALTIME) *time = ToTimespec(ToNanoseconds(*time) + Ahead());
  return result;
}

extern "C" int gettimeofday(timeval* time, void*) noexcept {
  const std::int64_t now = Read(CLOCK_REALTIME);
  *time = {now / kSecond, now % kSecond / 1000};
  return 0;
}

extern "C" time_t time(time_t* time) noexcept {
  const time_t now = Read(CLOCK_REALTIME) / kSecond;
  if (time != nullptr) *time = now;
  return now;
}

extern "C" long syscall(long number, ...) noexcept {
  static auto* const next = Next<Syscall>("syscall");
  long a[6];
  va_list arguments;
  va_start(arguments, number);
  for (long& argument : a) argument = va_arg(arguments, long);
  va_end(arguments);
  const auto* const until = reinterpret_cast<const timespec*>(a[3]);
  const long command = a[1] & FUTEX_CMD_MASK;
  if (number == SYS_futex && (command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET) && until != nullptr) {
    ++timed_waits;
    if ((a[1] & FUTEX_CLOCK_REALTIME) != 0) return WaitUntil(next, a[0], a[1], a[2], ToNanoseconds(*until), a[5]);
  }
  return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

namespace downpour::testing {

void SetWallClock(std::chrono::nanoseconds ahead) { Ahead() = ahead.count(); }

std::uint64_t TimedWaits() { return timed_waits; }

void SetWallClockAfter(std::uint64_t count, std::chrono::nanoseconds ahead) {
  while (timed_waits <= count) std::this_thread::yield();
  SetWallClock(ahead);
}

}  // namespace downpour::testing
