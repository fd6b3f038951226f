#ifndef DOWNPOUR_TRAINER_WORKER_GRADIENT_BUCKETS_H_
#define DOWNPOUR_TRAINER_WORKER_GRADIENT_BUCKETS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "trainer/model/model.h"

namespace downpour::worker {

// The gradients of one step, side by side in the order in which backward completes them: later layers first, buffers
// behind all parameters. They are summed over the ranks in buckets, each as soon as it and all before it are complete,
// so that the first are on their way while the last are computed, and all ranks send them in one order. Not
// thread-safe.
class GradientBuckets {
 public:
  // `bytes`: of a bucket, or more where a tensor has more.
  GradientBuckets(absl::Span<const model::Tensor> tensors, std::size_t bytes);

  // Of a step: nothing is complete, and everything is zero unless `written` with the first Add.
  void Begin();
  // `weight` times the gradient comes to what is there.
  void Add(std::size_t tensor, absl::Span<const float> gradient, float weight);
  // Nothing more comes for this tensor.
  void Complete(std::size_t tensor);
  void CompleteAll();
  // The next bucket that is complete, each once and in order; nullopt: it is not, or there is none.
  std::optional<absl::Span<float>> TakeReady();

  absl::Span<float> values(std::size_t tensor);
  std::uint64_t bytes() const { return values_.size() * sizeof(float); }
  // All parameters, without buffers.
  absl::Span<const float> parameters() const { return absl::MakeConstSpan(values_).subspan(0, parameters_); }

 private:
  struct Place {
    std::size_t begin = 0, size = 0;
    bool written = false, complete = false;
  };
  std::vector<float> values_;
  std::vector<Place> places_;       // by tensor
  std::vector<std::size_t> order_;  // tensors as they lie
  std::vector<std::size_t> ends_;   // of buckets: a number of tensors in that order
  std::size_t parameters_ = 0;      // values
  std::size_t taken_ = 0;           // buckets
};

}  // namespace downpour::worker

#endif  // DOWNPOUR_TRAINER_WORKER_GRADIENT_BUCKETS_H_
