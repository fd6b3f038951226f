#include "trainer/model/work_thread.h"

#include <utility>

namespace downpour::model {

WorkThread::WorkThread() : thread_([this] { Run(); }) {}

WorkThread::~WorkThread() {
  Wait();
  {
    const absl::MutexLock lock(&mutex_);
    stopped_ = true;
  }
  thread_.join();
}

void WorkThread::Start(std::function<void()> work) {
  const absl::MutexLock lock(&mutex_);
  work_ = std::move(work);
}

void WorkThread::Wait() {
  const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return work_ == nullptr; };
  const absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&idle));
}

void WorkThread::Run() {
  const auto woken = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopped_ || work_ != nullptr; };
  for (;;) {
    std::function<void()> work;
    {
      const absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&woken));
      if (stopped_) return;
      work = work_;
    }
    work();
    work = nullptr;
    const absl::MutexLock lock(&mutex_);
    work_ = nullptr;
  }
}

}  // namespace downpour::model
