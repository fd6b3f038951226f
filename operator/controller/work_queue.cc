#include "operator/controller/work_queue.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

namespace downpour::controller {

WorkQueue::WorkQueue(WorkQueueOptions options, std::function<absl::Time()> clock)
    : options_(options), clock_(std::move(clock)) {}

void WorkQueue::Enqueue(const std::string& key, bool low_priority) {
  ++adds_;
  if (processing_.count(key) != 0) {
    again_.insert(key);
    return;
  }
  if (!queued_.emplace(key, clock_()).second) return;
  (low_priority ? low_ : ready_).push_back(key);
  changed_.Signal();
}

void WorkQueue::Add(const std::string& key, bool low_priority) {
  absl::MutexLock lock(&mutex_);
  Enqueue(key, low_priority);
}

void WorkQueue::Delay(const std::string& key, absl::Duration delay) {
  const absl::Time at = clock_() + delay;
  const auto [due, fresh] = due_.emplace(key, at);
  if (!fresh) {
    if (due->second <= at) return;
    delayed_.erase({due->second, key});
    due->second = at;
  }
  delayed_.insert({at, key});
  changed_.Signal();
}

void WorkQueue::AddAfter(const std::string& key, absl::Duration delay) {
  absl::MutexLock lock(&mutex_);
  if (delay <= absl::ZeroDuration()) {
    Enqueue(key, false);
  } else {
    Delay(key, delay);
  }
}

void WorkQueue::Retry(const std::string& key) {
  absl::MutexLock lock(&mutex_);
  ++retries_;
  int& failures = failures_[key];
  absl::Duration backoff = options_.first_backoff;
  for (int i = 0; i < failures && backoff < options_.most_backoff; ++i) backoff *= 2;
  ++failures;
  Delay(key, std::min(backoff, options_.most_backoff));
}

void WorkQueue::Forget(const std::string& key) {
  absl::MutexLock lock(&mutex_);
  failures_.erase(key);
}

absl::Time WorkQueue::Promote(absl::Time now) {
  while (!delayed_.empty()) {
    const auto [at, key] = *delayed_.begin();
    if (at > now) return at;
    delayed_.erase(delayed_.begin());
    due_.erase(key);
    Enqueue(key, false);
  }
  return absl::InfiniteFuture();
}

absl::Time WorkQueue::NextFrom() const {
  if (queued_.empty()) return absl::InfiniteFuture();
  if (options_.at_once == 0 || std::ssize(processing_) < options_.at_once) return absl::InfinitePast();
  if (std::ssize(processing_) >= options_.at_once + options_.most_held_up) return absl::InfiniteFuture();
  std::vector<absl::Time> begun;
  for (const auto& [key, since] : processing_) begun.push_back(since);
  const auto last = begun.end() - options_.at_once;
  std::nth_element(begun.begin(), last, begun.end());
  return *last + options_.patience;
}

std::optional<WorkQueue::Item> WorkQueue::Get() {
  absl::MutexLock lock(&mutex_);
  for (;;) {
    if (shutdown_) return std::nullopt;
    const absl::Time now = clock_();
    const absl::Time due = Promote(now);
    const absl::Time next = NextFrom();
    if (next <= now) {
      std::deque<std::string>& source = ready_.empty() ? low_ : ready_;
      Item item;
      item.key = std::move(source.front());
      source.pop_front();
      const auto queued = queued_.find(item.key);
      item.waited = now - queued->second;
      queued_.erase(queued);
      processing_.emplace(item.key, now);
      if (NextFrom() <= now) changed_.Signal();  // nobody else may be told of it
      return item;
    }
    changed_.WaitWithTimeout(&mutex_, std::min(due - now, next - now));
  }
}

void WorkQueue::Done(const std::string& key) {
  absl::MutexLock lock(&mutex_);
  processing_.erase(key);
  if (!queued_.empty()) changed_.Signal();  // there may be room now
  if (again_.erase(key) == 0) return;
  --adds_;  // it was counted when it was added
  Enqueue(key, false);
}

void WorkQueue::Shutdown() {
  absl::MutexLock lock(&mutex_);
  shutdown_ = true;
  changed_.SignalAll();
}

bool WorkQueue::AwaitIdle(absl::Duration limit) {
  absl::MutexLock lock(&mutex_);
  const auto idle = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return processing_.empty(); };
  return mutex_.AwaitWithTimeout(absl::Condition(&idle), limit);
}

WorkQueueCounters WorkQueue::counters() const {
  absl::MutexLock lock(&mutex_);
  WorkQueueCounters counters{ready_.size() + low_.size(), low_.size(), processing_.size(), adds_, retries_, {}, {}};
  const absl::Time now = clock_();
  for (const auto& [key, since] : processing_) {
    counters.unfinished += now - since;
    counters.longest_running = std::max(counters.longest_running, now - since);
  }
  return counters;
}

}  // namespace downpour::controller
