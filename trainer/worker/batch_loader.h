#ifndef DOWNPOUR_TRAINER_WORKER_BATCH_LOADER_H_
#define DOWNPOUR_TRAINER_WORKER_BATCH_LOADER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/core/data_plan.h"
#include "trainer/data/dataset.h"
#include "trainer/data/prefetcher.h"

namespace downpour::worker {

// A part of an update, see DataPlan::SampleIndices.
struct Minibatch {
  core::UpdateId update;
  std::uint32_t number = 0;  // within the update
  friend bool operator==(const Minibatch& a, const Minibatch& b) = default;
};

// The minibatches of a data plan, read ahead. Prefetch, Take and Ahead are called from one thread, times
// from any.
class BatchLoader {
 public:
  // Minibatches have `size` samples, the last of an update what is left. `dataset` outlives the loader.
  BatchLoader(const data::Dataset* dataset, std::uint32_t size, const data::PrefetchOptions& options)
      : size_(size), most_(options.batches), prefetcher_(dataset, options) {}

  // How many are read ahead.
  std::size_t most() const { return most_; }
  // What will be taken next: `from` and the rest of its update, and then `updates`. What was read ahead of others, such
  // as those of a lease that is lost, is dropped.
  void Prefetch(const core::DataPlan& plan, const Minibatch& from, const std::vector<core::UpdateId>& updates);
  // Read ahead or now; with the data set's errors.
  absl::StatusOr<std::shared_ptr<const data::Batch>> Take(const core::DataPlan& plan, const Minibatch& minibatch) {
    return prefetcher_.Take(Plan(plan, minibatch).request);
  }
  // What will be taken next, if it is here already; else null.
  std::shared_ptr<const data::Batch> Ahead() const { return prefetcher_.Ahead(); }

  data::WaitTimes times() const { return prefetcher_.times(); }

 private:
  // Which samples these are is a function of the place and number of the update's samples: they change with the plan.
  struct Planned {
    Minibatch minibatch;
    std::uint64_t position = 0;
    std::uint32_t samples = 0;
    data::BatchRequest request;
  };
  // Out of planned_, where it is there: to draw the indices anew each time would cost more than to compare them.
  Planned Plan(const core::DataPlan& plan, const Minibatch& minibatch) const;

  const std::uint32_t size_;
  const std::size_t most_;
  std::vector<Planned> planned_;
  data::Prefetcher prefetcher_;
};

}  // namespace downpour::worker

#endif  // DOWNPOUR_TRAINER_WORKER_BATCH_LOADER_H_
