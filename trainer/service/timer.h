#ifndef DOWNPOUR_TRAINER_SERVICE_TIMER_H_
#define DOWNPOUR_TRAINER_SERVICE_TIMER_H_

#include <algorithm>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "trainer/core/time.h"
#include "trainer/service/process.h"

namespace downpour::service {

// Calls `on_timer` from a thread of its own whenever the time that was set last has come. Thread-safe.
class Timer {
 public:
  explicit Timer(std::function<void()> on_timer) : on_timer_(std::move(on_timer)), thread_([this] { Run(); }) {}
  ~Timer() { Stop(); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  void Set(core::Time at) {
    absl::MutexLock lock(&mutex_);
    // A later time needs no wake-up: the thread looks again when the earlier one has come. One for each call would
    // cost more than most calls.
    if (at < at_) changed_ = true;
    at_ = at;
  }

  // No call of on_timer is under way or comes after it returned. Not from inside on_timer.
  void Stop() {
    {
      absl::MutexLock lock(&mutex_);
      stopped_ = changed_ = true;
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  void Run() {
    for (;;) {
      {
        absl::MutexLock lock(&mutex_);
        for (;;) {
          if (stopped_) return;
          const absl::Duration left = at_ - MonotonicNow();
          if (left <= absl::ZeroDuration()) break;
          changed_ = false;
          mutex_.AwaitWithTimeout(absl::Condition(&changed_), std::min(left, absl::Hours(1)));
        }
        at_ = absl::InfiniteDuration();
      }
      on_timer_();
    }
  }

  std::function<void()> on_timer_;
  absl::Mutex mutex_;
  core::Time at_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteDuration();
  bool changed_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace downpour::service

#endif  // DOWNPOUR_TRAINER_SERVICE_TIMER_H_
