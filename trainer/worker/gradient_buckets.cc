#include "trainer/worker/gradient_buckets.h"

#include <algorithm>

namespace downpour::worker {

GradientBuckets::GradientBuckets(absl::Span<const model::Tensor> tensors, std::size_t bytes) {
  places_.resize(tensors.size());
  for (std::size_t tensor = tensors.size(); tensor-- > 0;) {
    if (tensors[tensor].kind == model::TensorKind::kParameter) order_.push_back(tensor);
  }
  const std::size_t parameters = order_.size();
  for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor) {
    if (tensors[tensor].kind != model::TensorKind::kParameter) order_.push_back(tensor);
  }
  std::size_t at = 0, bucket = 0;
  for (std::size_t i = 0; i < order_.size(); ++i) {
    Place& place = places_[order_[i]];
    place.begin = at;
    place.size = static_cast<std::size_t>(tensors[order_[i]].elements());
    at += place.size;
    bucket += place.size * sizeof(float);
    if (i + 1 == parameters) parameters_ = at;
    if (bucket < bytes && i + 1 != order_.size()) continue;
    ends_.push_back(i + 1);
    bucket = 0;
  }
  values_.resize(at);
}

void GradientBuckets::Begin() {
  for (Place& place : places_) place.written = place.complete = false;
  taken_ = 0;
}

absl::Span<float> GradientBuckets::values(std::size_t tensor) {
  return absl::MakeSpan(values_).subspan(places_[tensor].begin, places_[tensor].size);
}

void GradientBuckets::Add(std::size_t tensor, absl::Span<const float> gradient, float weight) {
  float* const to = values_.data() + places_[tensor].begin;
  if (places_[tensor].written) {
    for (std::size_t i = 0; i < gradient.size(); ++i) to[i] += weight * gradient[i];
  } else {
    for (std::size_t i = 0; i < gradient.size(); ++i) to[i] = weight * gradient[i];
  }
  places_[tensor].written = true;
}

void GradientBuckets::Complete(std::size_t tensor) {
  Place& place = places_[tensor];
  if (!place.written) std::fill_n(values_.begin() + static_cast<std::ptrdiff_t>(place.begin), place.size, 0.0f);
  place.written = place.complete = true;
}

void GradientBuckets::CompleteAll() {
  for (std::size_t tensor = 0; tensor < places_.size(); ++tensor) {
    if (!places_[tensor].complete) Complete(tensor);
  }
}

std::optional<absl::Span<float>> GradientBuckets::TakeReady() {
  if (taken_ == ends_.size()) return std::nullopt;
  const std::size_t first = taken_ == 0 ? 0 : ends_[taken_ - 1];
  const std::size_t end = ends_[taken_];
  for (std::size_t i = first; i < end; ++i) {
    if (!places_[order_[i]].complete) return std::nullopt;
  }
  ++taken_;
  const std::size_t begin = places_[order_[first]].begin;
  const Place& last = places_[order_[end - 1]];
  return absl::MakeSpan(values_).subspan(begin, last.begin + last.size - begin);
}

}  // namespace downpour::worker
