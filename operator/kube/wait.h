#ifndef DOWNPOUR_OPERATOR_KUBE_WAIT_H_
#define DOWNPOUR_OPERATOR_KUBE_WAIT_H_

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>

#include "absl/time/time.h"

namespace downpour::kube {

// Since an arbitrary origin; does not go back.
inline absl::Duration MonotonicNow() { return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()); }

// The moment `wait` from now, for condition variables. A wait of centuries is cut to a year.
inline std::chrono::steady_clock::time_point DeadlineAfter(absl::Duration wait) {
  if (wait > absl::Hours(24 * 365)) wait = absl::Hours(24 * 365);
  return std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(wait);
}

// False: `stop` was requested before `wait` had passed.
inline bool SleepFor(const std::stop_token& stop, absl::Duration wait) {
  if (stop.stop_requested()) return false;
  if (wait <= absl::ZeroDuration()) return true;
  std::mutex mutex;
  std::condition_variable_any condition;
  std::unique_lock lock(mutex);
  condition.wait_until(lock, stop, DeadlineAfter(wait), [] { return false; });
  return !stop.stop_requested();
}

}  // namespace downpour::kube

#endif  // DOWNPOUR_OPERATOR_KUBE_WAIT_H_
