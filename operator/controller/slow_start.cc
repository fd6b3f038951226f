#include "operator/controller/slow_start.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <optional>
#include <system_error>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace downpour::controller {
namespace {

class Starter {
 public:
  Starter(std::size_t count, int most, const std::function<absl::Status(std::size_t)>& task)
      : count_(count), most_helpers_(static_cast<std::size_t>(std::max(0, most - 1))), task_(task) {}

  absl::Status Run() {
    Work();
    // While one is waited for it may bring others.
    for (std::size_t i = 0; std::thread* const helper = Helper(i); ++i) helper->join();
    absl::MutexLock lock(&mutex_);
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
    absl::MutexLock lock(&mutex_);
    error_.Update(status);
    // The thread that calls this goes on with one of those that are left.
    if (!error_.ok() || next_ + 1 >= count_ || helpers_.size() == most_helpers_) return;
    try {
      helpers_.emplace_back([this] { Work(); });
    } catch (const std::system_error&) {  // the system has no thread left; those that there are do the work
    }
  }

  // nullptr: there are no more so far.
  std::thread* Helper(std::size_t i) {
    absl::MutexLock lock(&mutex_);
    return i < helpers_.size() ? &helpers_[i] : nullptr;
  }

  const std::size_t count_;
  const std::size_t most_helpers_;
  const std::function<absl::Status(std::size_t)>& task_;
  absl::Mutex mutex_;
  std::size_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  std::exception_ptr defect_ ABSL_GUARDED_BY(mutex_);        // what a task threw
  std::deque<std::thread> helpers_ ABSL_GUARDED_BY(mutex_);  // which stay where they are as others come
};

}  // namespace

absl::Status SlowStart(std::size_t count, int most, const std::function<absl::Status(std::size_t)>& task) {
  return Starter(count, most, task).Run();
}

}  // namespace downpour::controller
