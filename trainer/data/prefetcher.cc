#include "trainer/data/prefetcher.h"

#include <algorithm>

#include "trainer/data/load_times.h"

namespace downpour::data {
namespace {

std::uint64_t BytesOfBatch(const absl::StatusOr<std::shared_ptr<const Batch>>& batch) {
  std::uint64_t bytes = 0;
  if (!batch.ok()) return bytes;
  for (const std::vector<Array>* arrays : {&(*batch)->inputs, &(*batch)->targets}) {
    for (const Array& array : *arrays) bytes += array.bytes.size();
  }
  return bytes;
}

}  // namespace

Prefetcher::Prefetcher(const Dataset* dataset, PrefetchOptions options) : dataset_(dataset), options_(options) {
  if (options_.batches > 0) thread_ = std::thread([this] { Run(); });
}

Prefetcher::~Prefetcher() {
  dataset_->Stop();
  {
    const absl::MutexLock lock(&mutex_);
    stopped_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

std::deque<Prefetcher::Entry>::iterator Prefetcher::Find(const BatchRequest& request) {
  return std::find_if(entries_.begin(), entries_.end(),
                      [&request](const Entry& entry) { return entry.request == request; });
}

Prefetcher::Entry* Prefetcher::Next() {
  Entry* next = nullptr;
  std::uint64_t bytes = 0;
  for (Entry& entry : entries_) {
    bytes += entry.bytes;
    if (next == nullptr && !entry.begun) next = &entry;
  }
  return bytes == 0 || bytes + largest_ <= options_.most_bytes ? next : nullptr;
}

void Prefetcher::Run() {
  const auto woken = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopped_ || Next() != nullptr; };
  for (;;) {
    BatchRequest request;
    {
      const absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&woken));
      if (stopped_) return;
      Entry* const next = Next();
      next->begun = true;
      request = next->request;
      reading_ = request;
    }
    absl::StatusOr<std::shared_ptr<const Batch>> batch = Read(request);
    const std::uint64_t bytes = BytesOfBatch(batch);
    const absl::MutexLock lock(&mutex_);
    reading_.reset();
    largest_ = std::max(largest_, bytes);
    const auto entry = std::find_if(entries_.begin(), entries_.end(), [&request](const Entry& one) {
      return one.begun && !one.batch.has_value() && one.request == request;
    });
    if (entry == entries_.end()) continue;  // nobody wants it any more
    entry->bytes = bytes;
    entry->batch = std::move(batch);
  }
}

void Prefetcher::Want(std::vector<BatchRequest> next) {
  if (next.size() > options_.batches) next.resize(options_.batches);
  std::deque<Entry> dropped;  // destroyed without the lock
  const absl::MutexLock lock(&mutex_);
  std::deque<Entry> entries;
  bool reading = reading_.has_value();  // what nobody among `entries` waits for
  for (BatchRequest& request : next) {
    const auto known = Find(request);
    const bool begun = reading && reading_ == request;  // perhaps it was not wanted for a while
    if (begun) reading = false;
    if (known != entries_.end()) {
      entries.push_back(std::move(*known));
      known->request = {};  // is found no more, should it be wanted twice
    } else {
      entries.push_back({std::move(request), begun, std::nullopt, 0});
    }
  }
  dropped = std::exchange(entries_, std::move(entries));
}

absl::StatusOr<std::shared_ptr<const Batch>> Prefetcher::Read(const BatchRequest& request) const {
  absl::StatusOr<Batch> batch = dataset_->ReadUncounted(request.indices, request.seed);
  if (!batch.ok()) return batch.status();
  return std::make_shared<const Batch>(*std::move(batch));
}

std::shared_ptr<const Batch> Prefetcher::Ahead() const {
  const absl::MutexLock lock(&mutex_);
  if (entries_.empty()) return nullptr;
  const auto& batch = entries_.front().batch;
  return batch.has_value() && batch->ok() ? **batch : nullptr;
}

absl::StatusOr<std::shared_ptr<const Batch>> Prefetcher::Take(const BatchRequest& request) {
  const Stopwatch stopwatch;
  const double busy = dataset_->times().sum();
  std::optional<absl::StatusOr<std::shared_ptr<const Batch>>> batch;
  {
    const absl::MutexLock lock(&mutex_);
    const auto entry = Find(request);
    // The thread never blocks on anything but the data set, so waiting for it is no longer than reading it here.
    if (entry != entries_.end()) {
      if (entry->begun) {
        mutex_.Await(absl::Condition(
            +[](Entry* waited) { return waited->batch.has_value(); }, &*entry));
        batch = std::move(entry->batch);
      }
      entries_.erase(entry);
    }
  }
  if (!batch.has_value()) batch = Read(request);
  const double waited = stopwatch.seconds();
  const double done = dataset_->times().sum() - busy;
  const absl::MutexLock lock(&mutex_);
  times_.waited += waited;
  times_.busy += std::min(done, waited * dataset_->threads());
  if (!batch->ok()) return *std::move(batch);
  if (absl::Status counted = dataset_->CountBroken(***batch); !counted.ok()) return counted;
  return *std::move(batch);
}

WaitTimes Prefetcher::times() const {
  const absl::MutexLock lock(&mutex_);
  return times_;
}

}  // namespace downpour::data
