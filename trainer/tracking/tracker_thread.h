#ifndef DOWNPOUR_TRAINER_TRACKING_TRACKER_THREAD_H_
#define DOWNPOUR_TRAINER_TRACKING_TRACKER_THREAD_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "trainer/tracking/tracker.h"

namespace downpour::tracking {

// What the time is, and how to wait: a test does neither. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  // Since an arbitrary origin; does not go back.
  virtual absl::Duration Now() = 0;
  // Until `condition` is true, or `limit` has passed.
  virtual void Await(absl::Mutex& mutex, const absl::Condition& condition, absl::Duration limit)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) = 0;
};
// That of this machine.
Clock& SystemClock();

struct TrackerThreadOptions {
  std::size_t capacity = 1000;               // points that wait; the oldest go where there are more
  std::size_t batch = 100;                   // points in one call
  absl::Duration limit = absl::Seconds(10);  // of one call
  // After a failure; doubled with each.
  absl::Duration backoff_initial = absl::Seconds(1);
  absl::Duration backoff_max = absl::Seconds(60);
  // For what is left at the end of the process, of which a quarter is kept for the outcome of the run; and where the
  // last call has failed.
  absl::Duration farewell = absl::Seconds(4);
  absl::Duration farewell_after_failure = absl::Seconds(2);
  Clock* clock = nullptr;  // must outlive the thread; null: SystemClock()
  // Called from the thread with what people should read, seldom; empty: nobody is told.
  std::function<void(const std::string& message)> say;
};

// Feeds one tracker from a bounded queue on a thread of its own. A tracker that is down, slow or full holds up nobody:
// what fails for the moment is tried again, with a back-off, for as long as the points fit into the queue; what does
// not fit, and what the tracker refuses, is dropped and counted. A second tracker has a second thread, so neither
// suffers from the other. Thread-safe.
class TrackerThread {
 public:
  TrackerThread(std::unique_ptr<Tracker> tracker, Run run, TrackerThreadOptions options = {});
  ~TrackerThread() { Stop(); }
  TrackerThread(const TrackerThread&) = delete;
  TrackerThread& operator=(const TrackerThread&) = delete;

  // Does not wait.
  void Add(Point point);
  // Nothing is added any more: what waits is handed over within `farewell`, and then the outcome, also if not all
  // points went before it. Without one the run is left open, for another coordinator to go on with. Does not wait; the
  // first call counts.
  void End(std::optional<Outcome> outcome, double time);
  // Ends it with no outcome, if need be, and waits until all is done: for `farewell`, or a call that Hurry does not
  // end.
  void Stop();

  const std::string& name() const { return name_; }
  std::uint64_t dropped() const;  // points
  // Since points were dropped for the first time: that they are, and why. It stays the same.
  std::optional<std::string> complaint() const;

 private:
  struct Ending {
    Outcome outcome;
    double time;
  };

  void Feed();
  // It is over, and there is so much time from now on.
  void GiveUpIn(absl::Duration left) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // After a failure. False: there is no time for another attempt.
  bool AwaitRetry() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Puts them back in front of those that came meanwhile.
  void PutBack(std::vector<Point> points) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Drops the oldest of those that are too many.
  void MakeRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountDropped(std::size_t points) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeIn(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SayNews();

  const std::unique_ptr<Tracker> tracker_;
  const std::string name_;
  const Run run_;
  const TrackerThreadOptions options_;
  Clock& clock_;

  mutable absl::Mutex mutex_;
  std::deque<Point> points_ ABSL_GUARDED_BY(mutex_);
  std::optional<Ending> ending_ ABSL_GUARDED_BY(mutex_);  // still to be told
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Duration give_up_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteDuration();  // by the clock, once it is over
  absl::Duration kept_ ABSL_GUARDED_BY(mutex_) = absl::ZeroDuration();         // of this, for the outcome
  absl::Duration backoff_ ABSL_GUARDED_BY(mutex_) = absl::ZeroDuration();      // zero: the last call went well
  std::string failure_ ABSL_GUARDED_BY(mutex_);                                // the newest
  std::uint64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<std::string> complaint_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> news_ ABSL_GUARDED_BY(mutex_);  // to be said
  std::thread thread_;
};

}  // namespace downpour::tracking

#endif  // DOWNPOUR_TRAINER_TRACKING_TRACKER_THREAD_H_
