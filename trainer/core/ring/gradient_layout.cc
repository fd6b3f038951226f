#include "trainer/core/ring/gradient_layout.h"

namespace downpour::core {

GradientLayout::GradientLayout(absl::Span<const Tensor> tensors, std::size_t bytes) {
  for (std::size_t tensor = tensors.size(); tensor-- > 0;) {
    if (!tensors[tensor].buffer) order_.push_back(tensor);
  }
  const std::size_t parameters = order_.size();
  for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor) {
    if (tensors[tensor].buffer) order_.push_back(tensor);
  }
  tensors_.resize(tensors.size());
  Bucket bucket;
  for (std::size_t i = 0; i < order_.size(); ++i) {
    tensors_[order_[i]] = {size_, size_ + tensors[order_[i]].elements};
    size_ += tensors[order_[i]].elements;
    bucket.values.end = size_;
    bucket.places.end = i + 1;
    const bool last = i + 1 == parameters || i + 1 == order_.size();
    if (!last && bucket.values.size() * sizeof(float) < bytes) continue;
    buckets_.push_back(bucket);
    bucket = {{size_, size_}, {i + 1, i + 1}};
    if (i < parameters) {
      parameters_ = size_;
      parameter_buckets_ = buckets_.size();
    }
  }
}

GradientLayout LayoutOf(const v1::View& view, absl::Span<const Slice> slices) {
  std::vector<GradientLayout::Tensor> tensors(static_cast<std::size_t>(view.tensors_size()));
  for (const Slice& slice : slices) tensors[slice.tensor].elements += slice.elements;
  for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor) {
    tensors[tensor].buffer = view.tensors(static_cast<int>(tensor)).kind() == v1::BUFFER;
  }
  return GradientLayout(tensors);
}

}  // namespace downpour::core
