#include "trainer/data/files/retrying_files.h"

#include <chrono>
#include <mutex>
#include <optional>
#include <random>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "trainer/data/files/shown_path.h"

namespace downpour::data {
namespace {

class MachineClock final : public RetryClock {
 public:
  absl::Duration Now() override { return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()); }
  void Sleep(absl::Duration duration) override { absl::SleepFor(duration); }
  double Random() override {
    thread_local std::mt19937_64 generator(std::random_device{}());
    return std::uniform_real_distribution<double>(0.0, 1.0)(generator);
  }
};

constexpr absl::Duration kUntilTold = absl::Seconds(5);

std::string Text(absl::Duration duration) { return absl::FormatDuration(absl::Trunc(duration, absl::Milliseconds(1))); }

}  // namespace

RetryClock& RealRetryClock() {
  static auto* const clock = new MachineClock;
  return *clock;
}

class RetryingFiles::Retrier {
 public:
  Retrier(std::string shown, Tell tell, const RetryOptions& options, RetryClock& clock)
      : shown_(std::move(shown)), tell_(std::move(tell)), clock_(clock), policy_(options) {}

  // What `call` returns, a Status or StatusOr<T>, once the store answers.
  template <typename Call>
  auto Try(const std::string& about, const Call& call) -> decltype(call()) {
    RetryPolicy::Call tried;
    tried.begin = clock_.Now();
    for (;; ++tried.attempts) {
      tried.attempt_begin = clock_.Now();
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (policy_.GivenUp(tried.attempt_begin)) {
          return absl::UnavailableError(absl::StrCat(ShownPath(about), ": the store was given up after ",
                                                     Text(policy_.Outage(tried.attempt_begin)),
                                                     " of nothing but failures, the last of them ", last_failure_));
        }
      }
      auto result = call();
      const absl::Status status = StatusOf(result);
      if (!absl::IsUnavailable(status)) {
        Answered();
        return result;
      }
      const absl::StatusOr<absl::Duration> wait = Failed(tried, status);
      if (!wait.ok()) return wait.status();
      clock_.Sleep(*wait);
    }
  }

  std::uint64_t retries() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return retries_;
  }

 private:
  void Answered() {
    const absl::Duration now = clock_.Now();
    std::string news;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (std::exchange(told_, false)) {
        news = absl::StrCat(shown_, ": the store answers again, after ", Text(policy_.Outage(now)));
      }
      policy_.Answered(now);
    }
    TellNews(news);
  }

  // How long to wait before the next attempt; the error of the call, if there is to be none.
  absl::StatusOr<absl::Duration> Failed(const RetryPolicy::Call& tried, const absl::Status& failure) {
    const absl::Duration now = clock_.Now();
    std::optional<absl::Duration> again;
    std::string news;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      last_failure_ = std::string(failure.message());
      again = policy_.Failed(tried, now, clock_.Random());
      if (again.has_value()) ++retries_;
      const absl::Duration outage = policy_.Outage(now);
      if (again.has_value() && outage >= kUntilTold && !std::exchange(told_, true)) {
        news = absl::StrCat(shown_, ": the store has not answered for ", Text(outage),
                            ", it is asked again and again: ", last_failure_);
      }
    }
    TellNews(news);
    if (again.has_value()) return *again;
    return absl::UnavailableError(absl::StrFormat("%s (attempt %d, the last one after %s)", failure.message(),
                                                  tried.attempts, Text(now - tried.begin)));
  }

  // Without the lock: whoever hears it may take its time.
  void TellNews(const std::string& news) const {
    if (!news.empty() && tell_ != nullptr) tell_(news);
  }

  static absl::Status StatusOf(const absl::Status& status) { return status; }
  template <typename T>
  static absl::Status StatusOf(const absl::StatusOr<T>& result) {
    return result.status();
  }

  const std::string shown_;
  const Tell tell_;
  RetryClock& clock_;
  mutable std::mutex mutex_;
  // All of the below is guarded by mutex_.
  RetryPolicy policy_;
  std::string last_failure_;
  std::uint64_t retries_ = 0;
  bool told_ = false;  // that it is away
};

class RetryingFiles::File final : public RandomAccessFile {
 public:
  File(Retrier& retrier, std::unique_ptr<RandomAccessFile> file) : retrier_(retrier), file_(std::move(file)) {}

  const FileInfo& info() const override { return file_->info(); }
  absl::Status ReadAt(std::uint64_t offset, absl::Span<std::uint8_t> bytes) const override {
    return retrier_.Try(info().path, [&] { return file_->ReadAt(offset, bytes); });
  }

 private:
  Retrier& retrier_;
  const std::unique_ptr<RandomAccessFile> file_;
};

absl::StatusOr<std::unique_ptr<RetryingFiles>> RetryingFiles::Open(const std::string& shown, const OpenStore& open,
                                                                   Tell tell, const RetryOptions& options,
                                                                   RetryClock& clock) {
  auto retrier = std::make_unique<Retrier>(ShownPath(shown), std::move(tell), options, clock);
  absl::StatusOr<std::unique_ptr<Files>> store = retrier->Try(shown, open);
  if (!store.ok()) return store.status();
  return std::unique_ptr<RetryingFiles>(new RetryingFiles(std::move(retrier), *std::move(store)));
}

RetryingFiles::RetryingFiles(std::unique_ptr<Retrier> retrier, std::unique_ptr<Files> store)
    : retrier_(std::move(retrier)), store_(std::move(store)) {}
RetryingFiles::~RetryingFiles() = default;

absl::StatusOr<std::vector<FileInfo>> RetryingFiles::List(const std::string& path) const {
  return retrier_->Try(path, [&] { return store_->List(path); });
}

absl::StatusOr<std::unique_ptr<RandomAccessFile>> RetryingFiles::Open(const std::string& path) const {
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> file = retrier_->Try(path, [&] { return store_->Open(path); });
  if (!file.ok()) return file;
  return std::make_unique<File>(*retrier_, *std::move(file));
}

std::uint64_t RetryingFiles::retries() const { return retrier_->retries(); }

}  // namespace downpour::data
