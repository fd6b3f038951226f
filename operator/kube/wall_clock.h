#ifndef DOWNPOUR_OPERATOR_KUBE_WALL_CLOCK_H_
#define DOWNPOUR_OPERATOR_KUBE_WALL_CLOCK_H_

#include <algorithm>
#include <mutex>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "operator/kube/wait.h"

namespace downpour::kube {

// What the clock says that said `last` so long ago, when the machine's says `wall`: the same, but where the machine's
// was set back it is caught up with at half speed. Seconds since 1970.
inline double NextMoment(double last, absl::Duration passed, double wall) {
  return std::max(wall, last + absl::ToDoubleSeconds(passed) / 2);
}

// The time of day for what decides by it: times of statuses and events. It never goes back, and what was to last a
// second lasts two at most, however the machine's clock is set. Thread-safe.
class WallClock {
 public:
  // Seconds since 1970.
  double Now() {
    const std::lock_guard lock(mutex_);
    const absl::Duration read = MonotonicNow();
    last_ = NextMoment(last_, read - read_, absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()));
    read_ = read;
    return last_;
  }

 private:
  std::mutex mutex_;
  double last_ = 0;
  absl::Duration read_ = MonotonicNow();
};

}  // namespace downpour::kube

#endif  // DOWNPOUR_OPERATOR_KUBE_WALL_CLOCK_H_
