#ifndef DOWNPOUR_OPERATOR_CONTROLLER_WORK_QUEUE_H_
#define DOWNPOUR_OPERATOR_CONTROLLER_WORK_QUEUE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "operator/kube/wait.h"

namespace downpour::controller {

struct WorkQueueOptions {
  absl::Duration first_backoff = absl::Milliseconds(5);
  absl::Duration most_backoff = absl::Seconds(60);
  // So many keys are processed at a time; 0: no limit. One that takes longer than `patience` is held up, by an
  // admission webhook that does not answer, say, and no longer counts, unless too many are.
  int at_once = 0;
  absl::Duration patience = absl::Seconds(2);
  int most_held_up = 16;
};

// What workqueue_* metrics are made of.
struct WorkQueueCounters {
  std::size_t depth = 0;
  std::size_t low_depth = 0;  // of those, with low priority
  std::size_t processing = 0;
  std::uint64_t adds = 0;
  std::uint64_t retries = 0;
  absl::Duration unfinished;       // that the keys being processed have taken until now, together
  absl::Duration longest_running;  // the longest of them
};

// Keys to be reconciled, each once at a time and never lost: a key that is added while it is processed is handed out
// again after. Times are of a monotonic clock. Thread-safe.
class WorkQueue {
 public:
  explicit WorkQueue(
      WorkQueueOptions options = {},
      std::function<absl::Time()> clock = [] { return absl::UnixEpoch() + kube::MonotonicNow(); });

  // At once; `low_priority`: after all others (keys of a start that found ten thousand jobs).
  void Add(const std::string& key, bool low_priority = false);
  // At `delay` from now, unless it is due earlier.
  void AddAfter(const std::string& key, absl::Duration delay);
  // After a back-off that doubles with each retry until Forget.
  void Retry(const std::string& key);
  void Forget(const std::string& key);

  // The next key, and how long it has waited; nothing once Shutdown was called. Call Done with it after.
  struct Item {
    std::string key;
    absl::Duration waited;
  };
  std::optional<Item> Get();
  void Done(const std::string& key);

  void Shutdown();
  // Until nothing is processed; false: not within `limit`.
  bool AwaitIdle(absl::Duration limit);
  WorkQueueCounters counters() const;

 private:
  void Enqueue(const std::string& key, bool low_priority) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Delay(const std::string& key, absl::Duration delay) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Moves what is due into the queue; the time of the next one.
  absl::Time Promote(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // When the next key that is in the queue may be processed, should none of those that are end before.
  absl::Time NextFrom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const WorkQueueOptions options_;
  const std::function<absl::Time()> clock_;
  mutable absl::Mutex mutex_;
  absl::CondVar changed_;
  bool shutdown_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<std::string> ready_ ABSL_GUARDED_BY(mutex_), low_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<std::string, absl::Time> queued_ ABSL_GUARDED_BY(mutex_);      // in ready_ or low_, since when
  std::unordered_map<std::string, absl::Time> processing_ ABSL_GUARDED_BY(mutex_);  // since when
  std::unordered_set<std::string> again_ ABSL_GUARDED_BY(mutex_);                   // added while they are processed
  std::set<std::pair<absl::Time, std::string>> delayed_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<std::string, absl::Time> due_ ABSL_GUARDED_BY(mutex_);  // of the keys in delayed_
  std::unordered_map<std::string, int> failures_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t adds_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t retries_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace downpour::controller

#endif  // DOWNPOUR_OPERATOR_CONTROLLER_WORK_QUEUE_H_
