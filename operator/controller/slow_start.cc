#include "operator/controller/slow_start.h"

#include <algorithm>
#include <exception>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace downpour::controller {
namespace {

class Starter {
 public:
  Starter(ThreadPool& pool, std::size_t count, int most, const std::function<absl::Status(std::size_t)>& task)
      : pool_(pool), count_(count), most_helpers_(std::max(0, most - 1)), task_(task) {}

  absl::Status Run() {
    Work();
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(
        +[](int* working) { return *working == 0; }, &working_));
    if (defect_ != nullptr) std::rethrow_exception(defect_);
    return error_;
  }

 private:
  // One task after the other, until there is none left to begin.
  void Work() {
    while (const std::optional<std::size_t> index = Next()) {
      try {
        End(task_(*index));
      } catch (...) {
        absl::MutexLock lock(&mutex_);
        defect_ = std::current_exception();
      }
    }
  }

  std::optional<std::size_t> Next() {
    absl::MutexLock lock(&mutex_);
    if (!error_.ok() || defect_ != nullptr || next_ == count_) return std::nullopt;
    return next_++;
  }

  void End(const absl::Status& status) {
    {
      absl::MutexLock lock(&mutex_);
      error_.Update(status);
      // The thread that calls this goes on with one of those that are left.
      if (!error_.ok() || next_ + 1 >= count_ || helpers_ == most_helpers_) return;
      ++helpers_;
      ++working_;
    }
    pool_.Run([this] {
      Work();
      absl::MutexLock lock(&mutex_);
      --working_;
    });
  }

  ThreadPool& pool_;
  const std::size_t count_;
  const int most_helpers_;
  const std::function<absl::Status(std::size_t)>& task_;
  absl::Mutex mutex_;
  std::size_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  int helpers_ ABSL_GUARDED_BY(mutex_) = 0;  // that were asked for help
  int working_ ABSL_GUARDED_BY(mutex_) = 0;  // those of them that have not ended
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  std::exception_ptr defect_ ABSL_GUARDED_BY(mutex_);  // what a task threw
};

}  // namespace

absl::Status SlowStart(ThreadPool& pool, std::size_t count, int most,
                       const std::function<absl::Status(std::size_t)>& task) {
  return Starter(pool, count, most, task).Run();
}

}  // namespace downpour::controller
