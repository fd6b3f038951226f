#include "trainer/worker/gradient_buckets.h"

#include <algorithm>
#include <utility>

namespace downpour::worker {

GradientBuckets::GradientBuckets(core::GradientLayout layout)
    : layout_(std::move(layout)), values_(layout_.size()), states_(layout_.order().size()) {}

void GradientBuckets::Begin() {
  std::fill(states_.begin(), states_.end(), State());
  taken_ = 0;
}

void GradientBuckets::Add(std::size_t tensor, absl::Span<const float> gradient, float weight) {
  float* const to = values(tensor).data();
  if (states_[tensor].written) {
    for (std::size_t i = 0; i < gradient.size(); ++i) to[i] += weight * gradient[i];
  } else {
    for (std::size_t i = 0; i < gradient.size(); ++i) to[i] = weight * gradient[i];
  }
  states_[tensor].written = true;
}

void GradientBuckets::Complete(std::size_t tensor) {
  if (!states_[tensor].written) {
    const absl::Span<float> zero = values(tensor);
    std::fill(zero.begin(), zero.end(), 0.0f);
  }
  states_[tensor] = {true, true};
}

void GradientBuckets::CompleteAll() {
  for (std::size_t tensor = 0; tensor < states_.size(); ++tensor) {
    if (!states_[tensor].complete) Complete(tensor);
  }
}

std::optional<std::size_t> GradientBuckets::TakeReady() {
  if (taken_ == layout_.buckets().size()) return std::nullopt;
  const core::Range& places = layout_.buckets()[taken_].places;
  for (std::size_t i = places.begin; i < places.end; ++i) {
    if (!states_[layout_.order()[i]].complete) return std::nullopt;
  }
  return taken_++;
}

core::GradientLayout LayoutOf(absl::Span<const model::Tensor> tensors, std::size_t bytes) {
  std::vector<core::GradientLayout::Tensor> sizes;
  sizes.reserve(tensors.size());
  for (const model::Tensor& tensor : tensors) {
    sizes.push_back({static_cast<std::size_t>(tensor.elements()), tensor.kind != model::TensorKind::kParameter});
  }
  return core::GradientLayout(sizes, bytes);
}

}  // namespace downpour::worker
