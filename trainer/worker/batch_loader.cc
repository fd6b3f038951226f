#include "trainer/worker/batch_loader.h"

#include <utility>

namespace downpour::worker {

BatchLoader::BatchLoader(const data::Dataset* dataset, std::uint32_t size)
    : dataset_(dataset), size_(size), thread_([this] { Run(); }) {}

BatchLoader::~BatchLoader() {
  {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
  }
  thread_.join();
}

void BatchLoader::Run() {
  for (;;) {
    Request request;
    {
      absl::MutexLock lock(&mutex_);
      const auto wanted = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopped_ || request_.has_value(); };
      mutex_.Await(absl::Condition(&wanted));
      if (stopped_) return;
      request = *std::exchange(request_, std::nullopt);
      loading_ = request.minibatch;
    }
    absl::StatusOr<data::Batch> batch = dataset_->Read(request.indices, request.seed);
    absl::MutexLock lock(&mutex_);
    batch_ = std::move(batch);
    loaded_ = request.minibatch;
    loading_.reset();
  }
}

void BatchLoader::Prefetch(const core::DataPlan& plan, const Minibatch& minibatch) {
  Request request = MakeRequest(plan, minibatch);
  absl::MutexLock lock(&mutex_);
  if (loaded_ != minibatch && loading_ != minibatch) request_ = std::move(request);
}

absl::StatusOr<data::Batch> BatchLoader::Take(const core::DataPlan& plan, const Minibatch& minibatch) {
  {
    absl::MutexLock lock(&mutex_);
    // The loader never blocks on anything but the data set, so waiting for it is no longer than reading it here.
    const auto not_under_way = [this, &minibatch]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return loading_ != minibatch && (!request_.has_value() || !(request_->minibatch == minibatch));
    };
    mutex_.Await(absl::Condition(&not_under_way));
    if (loaded_ == minibatch) {
      loaded_.reset();
      return std::move(batch_);
    }
  }
  const Request request = MakeRequest(plan, minibatch);
  return dataset_->Read(request.indices, request.seed);
}

}  // namespace downpour::worker
