#ifndef DOWNPOUR_TRAINER_WORKER_BATCH_LOADER_H_
#define DOWNPOUR_TRAINER_WORKER_BATCH_LOADER_H_

#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "trainer/core/data_plan.h"
#include "trainer/data/dataset.h"

namespace downpour::worker {

// A part of an update, see DataPlan::SampleIndices.
struct Minibatch {
  core::UpdateId update;
  std::uint32_t number = 0;  // within the update
  friend bool operator==(const Minibatch& a, const Minibatch& b) {
    return a.update == b.update && a.number == b.number;
  }
};

// Reads the next minibatch on a thread of its own while the current one is computed. Prefetch and Take are called from
// one thread.
class BatchLoader {
 public:
  // Minibatches have `size` samples, the last of an update what is left. `dataset` outlives the loader.
  BatchLoader(const data::Dataset* dataset, std::uint32_t size);
  ~BatchLoader();
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  void Prefetch(const core::DataPlan& plan, const Minibatch& minibatch);
  // From the prefetch if that was the minibatch prefetched, read now otherwise; with the data set's errors.
  absl::StatusOr<data::Batch> Take(const core::DataPlan& plan, const Minibatch& minibatch);

 private:
  struct Request {
    Minibatch minibatch;
    std::vector<std::int64_t> indices;
    std::uint64_t seed = 0;
  };
  void Run();
  Request MakeRequest(const core::DataPlan& plan, const Minibatch& minibatch) const {
    return {minibatch, plan.SampleIndices(minibatch.update, minibatch.number, size_),
            plan.UpdateSeed(minibatch.update, minibatch.number)};
  }

  const data::Dataset* dataset_;
  const std::uint32_t size_;
  absl::Mutex mutex_;
  std::optional<Request> request_ ABSL_GUARDED_BY(mutex_);
  std::optional<Minibatch> loading_ ABSL_GUARDED_BY(mutex_);
  std::optional<Minibatch> loaded_ ABSL_GUARDED_BY(mutex_);
  absl::StatusOr<data::Batch> batch_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace downpour::worker

#endif  // DOWNPOUR_TRAINER_WORKER_BATCH_LOADER_H_
