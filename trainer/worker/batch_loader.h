#ifndef DOWNPOUR_TRAINER_WORKER_BATCH_LOADER_H_
#define DOWNPOUR_TRAINER_WORKER_BATCH_LOADER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "trainer/core/data_plan.h"
#include "trainer/data/dataset.h"

namespace downpour::worker {

// Reads the minibatch of the next update on a thread of its own while the current one is computed. Prefetch and Take
// are called from one thread.
class BatchLoader {
 public:
  explicit BatchLoader(const data::Dataset* dataset);
  ~BatchLoader();
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  void Prefetch(const core::DataPlan& plan, const core::UpdateId& update);
  // From the prefetch if that was the update prefetched, read now otherwise.
  data::Batch Take(const core::DataPlan& plan, const core::UpdateId& update);

 private:
  struct Request {
    core::UpdateId update;
    std::vector<std::int64_t> indices;
  };
  void Run();

  const data::Dataset* dataset_;
  absl::Mutex mutex_;
  std::optional<Request> request_ ABSL_GUARDED_BY(mutex_);
  std::optional<core::UpdateId> loading_ ABSL_GUARDED_BY(mutex_);
  std::optional<core::UpdateId> loaded_ ABSL_GUARDED_BY(mutex_);
  data::Batch batch_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace downpour::worker

#endif  // DOWNPOUR_TRAINER_WORKER_BATCH_LOADER_H_
