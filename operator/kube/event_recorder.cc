#include "operator/kube/event_recorder.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "operator/kube/event_correlator.h"
#include "operator/kube/wait.h"
#include "operator/kube/wall_clock.h"

namespace downpour::kube {
namespace {

constexpr std::size_t kQueueLength = 1000;

}  // namespace

class EventRecorder::Impl {
 public:
  Impl(Client* client, std::string component, std::string instance)
      : client_(client), component_(std::move(component)), instance_(std::move(instance)) {
    thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
  }

  void Record(EventToRecord event) {
    const std::lock_guard lock(mutex_);
    if (queue_.size() >= kQueueLength || !correlator_.Admit(event, clock_.Now())) {
      ++dropped_;
      return;
    }
    queue_.push_back(std::move(event));
    ++recorded_;
    changed_.notify_all();
  }

  std::uint64_t dropped() const { return dropped_; }

  bool Flush(absl::Duration limit) {
    std::unique_lock lock(mutex_);
    const std::uint64_t target = recorded_;
    return changed_.wait_until(lock, DeadlineAfter(limit), [&] { return done_ >= target; });
  }

 private:
  void Run(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (changed_.wait(lock, stop, [this] { return !queue_.empty(); }) && !stop.stop_requested()) {
      const EventToRecord event = std::move(queue_.front());
      queue_.pop_front();
      const double now = clock_.Now();
      const EventCorrelator::Written written = correlator_.Correlate(event, now);
      lock.unlock();
      const bool stored = Write(event, written, now);
      lock.lock();
      if (!stored) {
        correlator_.Forget(written);
        ++dropped_;
      }
      ++done_;
      changed_.notify_all();
    }
  }

  // Without the lock.
  bool Write(const EventToRecord& event, const EventCorrelator::Written& written, double now) {
    if (!written.is_new) {
      const absl::Status raised = Raise(event, written, written.count, now);
      // Events live for an hour and may be deleted before.
      if (!absl::IsNotFound(raised)) return raised.ok();
    }
    const absl::Status created =
        client_->Create(kEvents, EventNamespace(event), EventObject(event, written, now, component_, instance_))
            .status();
    if (!absl::IsAlreadyExists(created)) return created.ok();
    // Of this process before it started anew, or of a try whose answer got lost.
    const absl::StatusOr<Json> there = client_->Get(kEvents, EventNamespace(event), written.name);
    if (!there.ok()) return false;
    const std::int64_t count = FindInteger(*there, {"count"}).value_or(0) + 1;
    if (!Raise(event, written, count, now).ok()) return false;
    const std::lock_guard lock(mutex_);
    correlator_.SetCount(written, count);
    return true;
  }

  absl::Status Raise(const EventToRecord& event, const EventCorrelator::Written& written, std::int64_t count,
                     double now) {
    Json patch = {{"count", count}, {"lastTimestamp", FormatTime(now)}};
    if (written.combined) patch["message"] = EventMessage(event, written);
    return client_->MergePatch(kEvents, EventNamespace(event), written.name, patch).status();
  }

  Client* const client_;
  const std::string component_;
  const std::string instance_;
  WallClock clock_;
  std::atomic<std::uint64_t> dropped_{0};
  std::mutex mutex_;
  std::condition_variable_any changed_;
  EventCorrelator correlator_;
  std::deque<EventToRecord> queue_;
  std::uint64_t recorded_ = 0;
  std::uint64_t done_ = 0;
  std::jthread thread_;  // the last member: it ends before the others
};

EventRecorder::EventRecorder(Client* client, std::string component, std::string instance)
    : impl_(std::make_unique<Impl>(client, std::move(component), std::move(instance))) {}

EventRecorder::~EventRecorder() = default;

void EventRecorder::Record(EventToRecord event) { impl_->Record(std::move(event)); }

std::uint64_t EventRecorder::dropped() const { return impl_->dropped(); }

bool EventRecorder::Flush(absl::Duration limit) { return impl_->Flush(limit); }

}  // namespace downpour::kube
