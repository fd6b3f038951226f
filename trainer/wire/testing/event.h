#ifndef DOWNPOUR_TRAINER_WIRE_TESTING_EVENT_H_
#define DOWNPOUR_TRAINER_WIRE_TESTING_EVENT_H_

#include <condition_variable>
#include <mutex>

#include "absl/time/time.h"

namespace downpour::wire {

// Once. ThreadSanitizer does not see that of Abseil.
class Event {
 public:
  void Notify() {
    const std::lock_guard lock(mutex_);
    notified_ = true;
    changed_.notify_all();
  }
  bool WaitFor(absl::Duration limit) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, absl::ToChronoNanoseconds(limit), [this] { return notified_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool notified_ = false;
};

}  // namespace downpour::wire

#endif  // DOWNPOUR_TRAINER_WIRE_TESTING_EVENT_H_
