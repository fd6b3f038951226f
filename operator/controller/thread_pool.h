#ifndef DOWNPOUR_OPERATOR_CONTROLLER_THREAD_POOL_H_
#define DOWNPOUR_OPERATOR_CONTROLLER_THREAD_POOL_H_

#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace downpour::controller {

// Threads for tasks that may wait for long, and must not wait for each other: each begins at once. The thread that
// became idle last goes first, so that there are no more than tasks ran at a time. Thread-safe.
class ThreadPool {
 public:
  ThreadPool() = default;
  // Waits for all tasks. By then nobody may call Run any more.
  ~ThreadPool();

  // Runs `task`, which throws nothing, on an idle thread or a new one; where the system has none left, on the caller's.
  void Run(std::function<void()> task);

 private:
  // An idle thread waits here for its next task.
  struct Seat {
    std::function<void()> task;
    absl::CondVar called;
  };
  void Serve(std::function<void()> task);

  absl::Mutex mutex_;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Seat*> idle_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace downpour::controller

#endif  // DOWNPOUR_OPERATOR_CONTROLLER_THREAD_POOL_H_
