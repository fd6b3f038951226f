#include "trainer/worker/gradient_buckets.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace downpour::worker {

GradientBuckets::GradientBuckets(core::GradientLayout layout, cuda::DeviceKernels* kernels)
    : layout_(std::move(layout)), kernels_(kernels), states_(layout_.order().size()) {}

absl::StatusOr<GradientBuckets> GradientBuckets::Create(core::GradientLayout layout, cuda::DeviceKernels* kernels) {
  GradientBuckets buckets(std::move(layout), kernels);
  absl::StatusOr<cuda::DeviceMemory<float>> memory =
      cuda::DeviceMemory<float>::Allocate(kernels, buckets.layout_.size());
  if (!memory.ok()) {
    return absl::Status(memory.status().code(), absl::StrCat("gradients: ", memory.status().message()));
  }
  buckets.values_ = *std::move(memory);
  for (std::size_t i = 0; i <= buckets.layout_.buckets().size(); ++i) {
    absl::StatusOr<cuda::DeviceEvent> event = cuda::DeviceEvent::Create(kernels);
    if (!event.ok()) return event.status();
    buckets.there_.push_back(*std::move(event));
  }
  buckets.summed_ = std::move(buckets.there_.back());
  buckets.there_.pop_back();
  return buckets;
}

void GradientBuckets::Begin() {
  std::fill(states_.begin(), states_.end(), State());
  marked_ = taken_ = 0;
}

absl::Status GradientBuckets::Add(std::size_t tensor, const float* gradient, float weight) {
  const absl::Span<float> all = values(tensor);
  const bool first = !std::exchange(states_[tensor].written, true);
  return kernels_->Sum({all.data(), gradient, all.size(), weight, first ? 1 : 0});
}

absl::Status GradientBuckets::AddPart(std::size_t tensor, const core::Range& part, const float* gradient,
                                      float weight) {
  const absl::Span<float> all = values(tensor);
  if (!std::exchange(states_[tensor].written, true)) {
    absl::Status cleared = kernels_->Clear(all.data(), all.size() * sizeof(float));
    if (!cleared.ok()) return cleared;
  }
  return kernels_->Sum({all.data() + part.begin, gradient + part.begin, part.size(), weight, 0});
}

absl::Status GradientBuckets::Complete(std::size_t tensor) {
  const bool written = states_[tensor].written;
  states_[tensor] = {true, true};
  if (written) return absl::OkStatus();
  const absl::Span<float> zero = values(tensor);
  return kernels_->Clear(zero.data(), zero.size() * sizeof(float));
}

absl::Status GradientBuckets::CompleteAll() {
  absl::Status completed;
  for (std::size_t tensor = 0; completed.ok() && tensor < states_.size(); ++tensor) {
    if (!states_[tensor].complete) completed = Complete(tensor);
  }
  return completed;
}

bool GradientBuckets::IsComplete(std::size_t bucket) const {
  const core::Range& places = layout_.buckets()[bucket].places;
  for (std::size_t i = places.begin; i < places.end; ++i) {
    if (!states_[layout_.order()[i]].complete) return false;
  }
  return true;
}

absl::StatusOr<std::optional<std::size_t>> GradientBuckets::TakeReady(bool waits) {
  for (; marked_ < layout_.buckets().size() && IsComplete(marked_); ++marked_) {
    if (absl::Status recorded = there_[marked_].Record(); !recorded.ok()) return recorded;
  }
  if (taken_ == marked_) return std::nullopt;
  if (waits) {
    if (absl::Status there = there_[taken_].AwaitIt(); !there.ok()) return there;
  } else {
    const absl::StatusOr<bool> there = there_[taken_].IsOver();
    if (!there.ok()) return there.status();
    if (!*there) return std::nullopt;
  }
  return taken_++;
}

absl::StatusOr<std::vector<double>> GradientBuckets::SumSquares(absl::Span<const core::Range> ranges) {
  std::size_t partials = 0;
  for (const core::Range& range : ranges) partials += cuda::DeviceKernels::PartialsOf(range.size());
  // Of as many as before, but where another number of ranks divides them.
  const auto fit = [this](std::size_t count, cuda::DeviceMemory<double>* memory) {
    if (count <= memory->size()) return absl::OkStatus();
    absl::StatusOr<cuda::DeviceMemory<double>> larger = cuda::DeviceMemory<double>::Allocate(kernels_, count);
    if (!larger.ok()) return larger.status();
    *memory = *std::move(larger);
    return absl::OkStatus();
  };
  if (absl::Status fits = fit(partials, &partials_); !fits.ok()) return fits;
  if (absl::Status fits = fit(ranges.size(), &squares_); !fits.ok()) return fits;
  std::vector<cuda::SquaresRange> all;
  partials = 0;
  for (const core::Range& range : ranges) {
    all.push_back({values(range).data(), range.size(), partials_.data() + partials, squares_.data() + all.size()});
    partials += cuda::DeviceKernels::PartialsOf(range.size());
  }
  std::vector<double> sums(ranges.size());
  absl::Status summed = kernels_->SumSquares(all);
  if (summed.ok()) summed = kernels_->Copy(sums.data(), squares_.data(), sums.size() * sizeof(double));
  const absl::Status finished = summed_.AwaitAll();
  if (summed.ok()) summed = finished;
  if (!summed.ok()) return summed;
  return sums;
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
