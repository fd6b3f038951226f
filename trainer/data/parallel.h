#ifndef DOWNPOUR_TRAINER_DATA_PARALLEL_H_
#define DOWNPOUR_TRAINER_DATA_PARALLEL_H_

#include <cstddef>
#include <deque>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"

namespace downpour::data {

// Threads that share work that is cut into items. Thread-safe.
class Parallel {
 public:
  // `threads` beside those that call; 0: none, everything is done by the caller.
  explicit Parallel(int threads);
  ~Parallel();
  Parallel(const Parallel&) = delete;
  Parallel& operator=(const Parallel&) = delete;

  // Calls work(i) once for each i below `items`, from several threads at a time, the caller's among them, and returns
  // when all have returned. Several may be under way; each gets threads in turn. Must not be called from within `work`.
  void ForEach(std::size_t items, absl::FunctionRef<void(std::size_t)> work);

 private:
  struct Job {
    absl::FunctionRef<void(std::size_t)> work;
    std::size_t next = 0;
    std::size_t items = 0;
    std::size_t left = 0;  // that have not returned
  };
  void Run();
  // Of the first job that has an item left; false: there is none.
  bool Take(Job** job, std::size_t* item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Do(Job* job, std::size_t item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  std::deque<Job*> jobs_ ABSL_GUARDED_BY(mutex_);  // with items that nobody took
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_PARALLEL_H_
