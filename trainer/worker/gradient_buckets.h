#ifndef DOWNPOUR_TRAINER_WORKER_GRADIENT_BUCKETS_H_
#define DOWNPOUR_TRAINER_WORKER_GRADIENT_BUCKETS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "trainer/core/ring/gradient_layout.h"
#include "trainer/model/model.h"

namespace downpour::worker {

// The gradients of one step as a layout has them. They are summed over the ranks in buckets, each as soon as it and all
// before it are complete, so that the first are on their way while the last are computed, and all ranks send them in
// one order. Not thread-safe.
class GradientBuckets {
 public:
  explicit GradientBuckets(core::GradientLayout layout);

  const core::GradientLayout& layout() const { return layout_; }

  // Of a step: nothing is complete, and everything is zero unless `written` with the first Add.
  void Begin();
  // `weight` times the gradient comes to what is there.
  void Add(std::size_t tensor, absl::Span<const float> gradient, float weight);
  // Nothing more comes for this tensor.
  void Complete(std::size_t tensor);
  void CompleteAll();
  // The next bucket that is complete, each once and in order; nullopt: it is not, or there is none.
  std::optional<std::size_t> TakeReady();

  absl::Span<float> values(const core::Range& range) {
    return absl::MakeSpan(values_).subspan(range.begin, range.size());
  }
  absl::Span<float> values(std::size_t tensor) { return values(layout_.tensor(tensor)); }
  absl::Span<float> bucket(std::size_t bucket) { return values(layout_.buckets()[bucket].values); }
  std::uint64_t bytes() const { return values_.size() * sizeof(float); }

 private:
  struct State {
    bool written = false, complete = false;
  };
  const core::GradientLayout layout_;
  std::vector<float> values_;
  std::vector<State> states_;  // by tensor
  std::size_t taken_ = 0;      // buckets
};

core::GradientLayout LayoutOf(absl::Span<const model::Tensor> tensors,
                              std::size_t bytes = core::GradientLayout::kBucketBytes);

}  // namespace downpour::worker

#endif  // DOWNPOUR_TRAINER_WORKER_GRADIENT_BUCKETS_H_
