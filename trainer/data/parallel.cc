#include "trainer/data/parallel.h"

#include <algorithm>

namespace downpour::data {

Parallel::Parallel(int threads) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

Parallel::~Parallel() {
  {
    const absl::MutexLock lock(&mutex_);
    stopped_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

void Parallel::ForEach(std::size_t items, absl::FunctionRef<void(std::size_t)> work) {
  if (items == 0) return;
  Job job{work, 0, items, items};
  const absl::MutexLock lock(&mutex_);
  jobs_.push_back(&job);
  while (job.next < job.items) {
    const std::size_t item = job.next++;
    if (job.next == job.items) jobs_.erase(std::find(jobs_.begin(), jobs_.end(), &job));
    Do(&job, item);
  }
  mutex_.Await(absl::Condition(
      +[](std::size_t* left) { return *left == 0; }, &job.left));
}

bool Parallel::Take(Job** job, std::size_t* item) {
  if (jobs_.empty()) return false;
  // To the end of the line, so that the next thread helps the next one.
  *job = jobs_.front();
  jobs_.pop_front();
  *item = (*job)->next++;
  if ((*job)->next < (*job)->items) jobs_.push_back(*job);
  return true;
}

void Parallel::Do(Job* job, std::size_t item) {
  mutex_.Unlock();
  job->work(item);
  mutex_.Lock();
  --job->left;
}

void Parallel::Run() {
  const absl::MutexLock lock(&mutex_);
  const auto wanted = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopped_ || !jobs_.empty(); };
  for (;;) {
    mutex_.Await(absl::Condition(&wanted));
    Job* job = nullptr;
    std::size_t item = 0;
    if (Take(&job, &item)) {
      Do(job, item);
    } else {
      return;
    }
  }
}

}  // namespace downpour::data
