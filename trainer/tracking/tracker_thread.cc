#include "trainer/tracking/tracker_thread.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace downpour::tracking {
namespace {

class Machine final : public Clock {
 public:
  absl::Duration Now() override { return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()); }
  void Await(absl::Mutex& mutex, const absl::Condition& condition, absl::Duration limit) override {
    mutex.AwaitWithTimeout(condition, limit);
  }
};

bool MayBeBetterSoon(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status);
}

}  // namespace

Clock& SystemClock() {
  static Machine clock;
  return clock;
}

TrackerThread::TrackerThread(std::unique_ptr<Tracker> tracker, Run run, TrackerThreadOptions options)
    : tracker_(std::move(tracker)),
      name_(tracker_->name()),
      run_(std::move(run)),
      options_(std::move(options)),
      clock_(options_.clock == nullptr ? SystemClock() : *options_.clock),
      thread_([this] { Feed(); }) {}

void TrackerThread::Add(Point point) {
  absl::MutexLock lock(&mutex_);
  if (over_) return;
  points_.push_back(std::move(point));
  MakeRoom();
}

void TrackerThread::End(std::optional<Outcome> outcome, double time) {
  absl::MutexLock lock(&mutex_);
  if (over_) return;
  over_ = true;
  if (outcome.has_value()) ending_ = Ending{*outcome, time};
  GiveUpIn(backoff_ == absl::ZeroDuration() ? options_.farewell : options_.farewell_after_failure);
}

void TrackerThread::GiveUpIn(absl::Duration left) {
  const absl::Duration give_up = clock_.Now() + left;
  if (give_up >= give_up_) return;
  give_up_ = give_up;
  kept_ = ending_.has_value() ? left / 4 : absl::ZeroDuration();
  tracker_->Hurry(left);
}

void TrackerThread::Stop() {
  End(std::nullopt, 0);
  if (thread_.joinable()) thread_.join();
}

std::uint64_t TrackerThread::dropped() const {
  absl::MutexLock lock(&mutex_);
  return dropped_;
}

std::optional<std::string> TrackerThread::complaint() const {
  absl::MutexLock lock(&mutex_);
  return complaint_;
}

void TrackerThread::Feed() {
  for (bool goes_on = true; goes_on;) {
    absl::Duration limit = options_.limit;
    std::vector<Point> points;
    std::optional<Ending> ending;
    bool begins = false;
    {
      absl::MutexLock lock(&mutex_);
      goes_on = AwaitRetry();
      const auto due = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return over_ || HasWork(); };
      clock_.Await(mutex_, absl::Condition(&due), absl::InfiniteDuration());
      if (over_) {
        const absl::Duration left = give_up_ - clock_.Now();
        if (begun_ && ending_.has_value() && !points_.empty() && (!goes_on || left <= kept_)) {
          CountDropped(points_.size());
          points_.clear();
          goes_on = true;
        }
        limit = std::min(limit, points_.empty() && begun_ ? left : left - kept_);
      }
      goes_on = goes_on && HasWork() && limit > absl::ZeroDuration();
      if (!goes_on) {
        CountDropped(points_.size());
      } else if (begins = !begun_; !begins) {
        const auto last = points_.begin() + static_cast<std::ptrdiff_t>(std::min(points_.size(), options_.batch));
        points.assign(std::move_iterator(points_.begin()), std::move_iterator(last));
        points_.erase(points_.begin(), last);
        if (points.empty()) ending = ending_;
      }
    }
    if (goes_on) {
      const absl::Status status = begins           ? tracker_->Begin(run_, limit)
                                  : points.empty() ? tracker_->End(ending->outcome, ending->time, limit)
                                                   : tracker_->Write(points, limit);
      absl::MutexLock lock(&mutex_);
      TakeIn(status);
      if (over_ && !status.ok()) GiveUpIn(options_.farewell_after_failure);
      if (begins) {
        begun_ = status.ok();
      } else if (points.empty()) {
        if (!MayBeBetterSoon(status)) ending_.reset();
      } else if (MayBeBetterSoon(status) || absl::IsNotFound(status)) {
        begun_ = !absl::IsNotFound(status);
        PutBack(std::move(points));
      } else if (!status.ok()) {
        CountDropped(points.size());
      }
    }
    SayNews();
  }
}

bool TrackerThread::HasWork() const { return !points_.empty() || ending_.has_value() || (!begun_ && !over_); }

bool TrackerThread::AwaitRetry() {
  if (backoff_ == absl::ZeroDuration()) return true;
  const bool was_over = over_;
  if (was_over && backoff_ >= give_up_ - clock_.Now()) return false;
  // The end of the process is worth an attempt at once.
  const auto changed = [this, was_over]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return over_ != was_over; };
  clock_.Await(mutex_, absl::Condition(&changed), backoff_);
  return true;
}

void TrackerThread::PutBack(std::vector<Point> points) {
  points_.insert(points_.begin(), std::move_iterator(points.begin()), std::move_iterator(points.end()));
  MakeRoom();
}

void TrackerThread::MakeRoom() {
  if (points_.size() <= options_.capacity) return;
  const std::size_t excess = points_.size() - options_.capacity;
  points_.erase(points_.begin(), points_.begin() + static_cast<std::ptrdiff_t>(excess));
  CountDropped(excess);
}

void TrackerThread::CountDropped(std::size_t points) {
  dropped_ += points;
  if (points == 0 || complaint_.has_value()) return;
  complaint_ = absl::StrCat(name_, " misses figures of this run: ",
                            failure_.empty() ? "it does not take them as fast as they come" : failure_);
  news_.push_back(*complaint_);
}

void TrackerThread::TakeIn(const absl::Status& status) {
  const bool failed_before = backoff_ > absl::ZeroDuration();
  if (status.ok()) {
    if (failed_before) news_.push_back(absl::StrCat(name_, ": works again; points dropped so far: ", dropped_));
    backoff_ = absl::ZeroDuration();
    failure_.clear();
    return;
  }
  failure_ = std::string(status.message());
  if (!failed_before) news_.push_back(absl::StrCat(name_, ": ", failure_));
  backoff_ = failed_before ? std::min(2 * backoff_, options_.backoff_max) : options_.backoff_initial;
}

void TrackerThread::SayNews() {
  std::vector<std::string> news;
  {
    absl::MutexLock lock(&mutex_);
    news.swap(news_);
  }
  if (!options_.say) return;
  for (const std::string& message : news) options_.say(message);
}

}  // namespace downpour::tracking
