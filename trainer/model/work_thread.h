#ifndef DOWNPOUR_TRAINER_MODEL_WORK_THREAD_H_
#define DOWNPOUR_TRAINER_MODEL_WORK_THREAD_H_

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace downpour::model {

// A thread that does one thing after another, for what belongs to a thread. One other uses it.
class WorkThread {
 public:
  WorkThread();
  // Waits for what is under way.
  ~WorkThread();
  WorkThread(const WorkThread&) = delete;
  WorkThread& operator=(const WorkThread&) = delete;

  // Returns at once. `work` throws nothing, and what was started before has been waited for.
  void Start(std::function<void()> work);
  // Until what was started is done.
  void Wait();

 private:
  void Run();

  absl::Mutex mutex_;
  std::function<void()> work_ ABSL_GUARDED_BY(mutex_);  // empty: there is none
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_WORK_THREAD_H_
