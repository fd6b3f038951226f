#include "proto/deadline.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <ctime>

#include "absl/base/config.h"
#include "absl/base/internal/thread_identity.h"
#include "absl/synchronization/internal/create_thread_identity.h"
#include "absl/synchronization/internal/per_thread_sem.h"
#include "absl/synchronization/internal/waiter.h"
#include "absl/time/clock.h"

namespace downpour {

gpr_timespec DeadlineIn(absl::Duration wait) {
  const std::int64_t nanoseconds = absl::ToInt64Nanoseconds(std::clamp(wait, absl::ZeroDuration(), absl::Hours(24)));
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(nanoseconds, GPR_TIMESPAN));
}

}  // namespace downpour

// Abseil of Debian 12 turns every time-out into a moment on the wall clock and lets the kernel wait for that, and
// gRPC's own threads (timers, so deadlines, pings and reconnects) wait through Abseil too. Set the clock back by ten
// minutes, and what was to last a second lasts ten minutes. This is the one place where a thread of Abseil sleeps;
// Abseil declares it weak, for others to put their own in its place. Later releases wait by the monotonic clock
// themselves.
#if ABSL_LTS_RELEASE_VERSION < 20230802

using absl::synchronization_internal::KernelTimeout;
using absl::synchronization_internal::Waiter;

static_assert(ABSL_WAITER_MODE == ABSL_WAITER_MODE_FUTEX && sizeof(Waiter) == sizeof(std::atomic<std::int32_t>),
              "below, a Waiter is taken for what Waiter::Post counts up and wakes: one futex");

extern "C" bool ABSL_INTERNAL_C_SYMBOL(AbslInternalPerThreadSemWait)(KernelTimeout timeout) {
  auto* const identity = absl::synchronization_internal::GetOrCreateCurrentThreadIdentity();
  auto* const posts = reinterpret_cast<std::atomic<std::int32_t>*>(Waiter::GetWaiter(identity));
  timespec until = {};
  if (timeout.has_timeout()) {
    const absl::Duration left = absl::TimeFromTimespec(timeout.MakeAbsTimespec()) - absl::Now();
    const auto now = absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
    until = absl::ToTimespec(now + std::max(left, absl::ZeroDuration()));
  }
  for (;;) {
    std::int32_t count = posts->load(std::memory_order_relaxed);
    while (count != 0) {
      if (posts->compare_exchange_weak(count, count - 1, std::memory_order_acquire, std::memory_order_relaxed)) {
        return true;
      }
    }
    // An absolute time, and no FUTEX_CLOCK_REALTIME: on the monotonic clock.
    const long woken = syscall(SYS_futex, posts, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, 0,
                               timeout.has_timeout() ? &until : nullptr, nullptr, FUTEX_BITSET_MATCH_ANY);
    if (woken != 0 && errno == ETIMEDOUT) return false;
  }
}

#endif
