#ifndef DOWNPOUR_TRAINER_WORKER_PARAMETER_STORE_H_
#define DOWNPOUR_TRAINER_WORKER_PARAMETER_STORE_H_

#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "trainer/core/worker.h"
#include "trainer/model/model.h"

namespace downpour::worker {

// The values that came from the ps and the gradients on their way there. The state machine writes values while the
// model may be computing with older ones; Load copies them into the model between two steps. Thread-safe.
class ParameterStore final : public core::WorkerHost {
 public:
  // `model` outlives the store. The initial values are taken from it now.
  explicit ParameterStore(model::Model* model);

  std::uint64_t NewSession() override;
  core::Payload InitialValue(std::uint32_t number, const core::Slice& slice) override;
  core::Payload Gradient(std::uint32_t number, const core::Slice& slice) override;
  void StoreValue(std::uint32_t number, const core::Slice& slice, const core::Payload& value) override;

  // Copies what changed since the last call into the model. On the thread that owns the model, like what follows.
  void Load();
  // The model has moved: all values are copied with the next Load.
  void LoadAllNext();
  // Keeps `weight` times a gradient for Gradient(), or adds it to what is kept if it is not the update's first; false
  // if a value is not finite (it is kept all the same).
  bool KeepGradient(std::size_t tensor, absl::Span<const float> gradient, float weight = 1, bool first = true);
  // Of the gradient that is kept, in double.
  double SumOfSquares(std::size_t tensor) const;

 private:
  model::Model* model_;
  mutable absl::Mutex mutex_;
  std::vector<std::shared_ptr<const std::vector<float>>> initial_;
  std::vector<std::vector<float>> values_ ABSL_GUARDED_BY(mutex_);
  std::vector<bool> changed_ ABSL_GUARDED_BY(mutex_);
  // One buffer a tensor; another one while pushes still refer to it.
  std::vector<std::shared_ptr<std::vector<float>>> gradients_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace downpour::worker

#endif  // DOWNPOUR_TRAINER_WORKER_PARAMETER_STORE_H_
