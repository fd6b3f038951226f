#ifndef DOWNPOUR_TRAINER_WORKER_GRADIENT_BUCKETS_H_
#define DOWNPOUR_TRAINER_WORKER_GRADIENT_BUCKETS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "trainer/core/ring/gradient_layout.h"
#include "trainer/cuda/device_event.h"
#include "trainer/cuda/device_kernels.h"
#include "trainer/cuda/device_memory.h"
#include "trainer/model/model.h"

namespace downpour::worker {

// The gradients of one step as a layout has them, in memory of DeviceKernels. They are summed over the ranks in
// buckets, each as soon as it and all before it are complete, so that the first are on their way while the last are
// computed, and all ranks send them in one order. Errors are those of the kernels. Not thread-safe.
class GradientBuckets {
 public:
  // `kernels` outlives it. kResourceExhausted: there is no memory for them.
  static absl::StatusOr<GradientBuckets> Create(core::GradientLayout layout, cuda::DeviceKernels* kernels);

  const core::GradientLayout& layout() const { return layout_; }

  // Of a step: nothing is complete, and everything is zero unless `written` with the first Add.
  void Begin();
  // `weight` times the gradient comes to what is there; of AddPart, these of its values. In memory of the kernels.
  absl::Status Add(std::size_t tensor, const float* gradient, float weight);
  absl::Status AddPart(std::size_t tensor, const core::Range& part, const float* gradient, float weight);
  // Nothing more comes for this tensor.
  absl::Status Complete(std::size_t tensor);
  absl::Status CompleteAll();
  // The next bucket that is complete, and whose values are there, each once and in order; nullopt: it is not, or there
  // is none. `waits`: for values that a device has yet to compute.
  absl::StatusOr<std::optional<std::size_t>> TakeReady(bool waits);

  // Addresses of the kernels' memory.
  absl::Span<float> values(const core::Range& range) { return {values_.data() + range.begin, range.size()}; }
  absl::Span<float> values(std::size_t tensor) { return values(layout_.tensor(tensor)); }
  absl::Span<float> bucket(std::size_t bucket) { return values(layout_.buckets()[bucket].values); }
  std::uint64_t bytes() const { return values_.size() * sizeof(float); }

  // The sums of the squares of so many ranges, each in the order of cuda::GradientChecks; waits for them.
  absl::StatusOr<std::vector<double>> SumSquares(absl::Span<const core::Range> ranges);

 private:
  struct State {
    bool written = false, complete = false;
  };
  GradientBuckets(core::GradientLayout layout, cuda::DeviceKernels* kernels);
  bool IsComplete(std::size_t bucket) const;

  core::GradientLayout layout_;
  cuda::DeviceKernels* kernels_;
  cuda::DeviceMemory<float> values_;
  std::vector<State> states_;             // by tensor
  std::size_t marked_ = 0;                // buckets that are complete, as far as they come in order
  std::size_t taken_ = 0;                 // of these
  std::vector<cuda::DeviceEvent> there_;  // by bucket
  cuda::DeviceEvent summed_;
  cuda::DeviceMemory<double> partials_, squares_;
};

core::GradientLayout LayoutOf(absl::Span<const model::Tensor> tensors,
                              std::size_t bytes = core::GradientLayout::kBucketBytes);

}  // namespace downpour::worker

#endif  // DOWNPOUR_TRAINER_WORKER_GRADIENT_BUCKETS_H_
