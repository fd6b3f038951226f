#include "trainer/worker/parameter_store.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "trainer/core/sole_owner.h"
#include "trainer/service/process.h"

namespace downpour::worker {
namespace {

// A float is finite unless all bits of its exponent are set. A reduction over integers vectorises; std::isfinite with
// an early exit does not.
bool AllFinite(absl::Span<const float> values) {
  constexpr std::uint32_t kExponent = 0x7f800000;
  std::uint32_t bad = 0;
  for (const float value : values) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    bad |= static_cast<std::uint32_t>((bits & kExponent) == kExponent);
  }
  return bad == 0;
}

// Always in the same order, in which it vectorises.
double SquaresOf(absl::Span<const float> values) {
  constexpr std::size_t kLanes = 8;
  double lanes[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      lanes[lane] += value * value;
    }
  }
  double sum = 0;
  for (; i < values.size(); ++i) sum += double{values[i]} * double{values[i]};
  for (const double lane : lanes) sum += lane;
  return sum;
}

}  // namespace

ParameterStore::ParameterStore(model::Model* model) : model_(model) {
  const std::size_t count = model_->tensors().size();
  values_.resize(count);
  changed_.assign(count, false);
  gradients_.resize(count);
  for (std::size_t tensor = 0; tensor < count; ++tensor) {
    values_[tensor].resize(static_cast<std::size_t>(model_->tensors()[tensor].elements()));
    model_->GetParameter(tensor, absl::MakeSpan(values_[tensor]));
    initial_.push_back(std::make_shared<const std::vector<float>>(values_[tensor]));
  }
}

std::uint64_t ParameterStore::NewSession() { return service::RandomSession(); }

core::Payload ParameterStore::InitialValue(std::uint32_t, const core::Slice& slice) {
  const auto& values = initial_[slice.tensor];
  return core::Payload::OfFloats(absl::MakeConstSpan(*values).subspan(slice.offset, slice.elements), values);
}

core::Payload ParameterStore::Gradient(std::uint32_t, const core::Slice& slice) {
  absl::MutexLock lock(&mutex_);
  const auto& gradient = gradients_[slice.tensor];
  if (gradient == nullptr) return {};
  return core::Payload::OfFloats(absl::MakeConstSpan(*gradient).subspan(slice.offset, slice.elements), gradient);
}

void ParameterStore::StoreValue(std::uint32_t, const core::Slice& slice, const core::Payload& value) {
  absl::MutexLock lock(&mutex_);
  float* target = values_[slice.tensor].data() + slice.offset;
  value.ForEachFloats(
      [target](std::size_t first, absl::Span<const float> run) { std::copy(run.begin(), run.end(), target + first); });
  changed_[slice.tensor] = true;
}

void ParameterStore::Load() {
  absl::MutexLock lock(&mutex_);
  for (std::size_t tensor = 0; tensor < values_.size(); ++tensor) {
    if (!changed_[tensor]) continue;
    model_->SetParameter(tensor, values_[tensor]);
    changed_[tensor] = false;
  }
}

void ParameterStore::LoadAllNext() {
  absl::MutexLock lock(&mutex_);
  changed_.assign(changed_.size(), true);
}

bool ParameterStore::KeepGradient(std::size_t tensor, absl::Span<const float> gradient, float weight, bool first) {
  std::shared_ptr<std::vector<float>> buffer;
  {
    absl::MutexLock lock(&mutex_);
    buffer = std::move(gradients_[tensor]);
  }
  // Only this thread makes new references to it, through Gradient(): alone now, alone until it is put back.
  if (!core::SoleOwner(buffer)) buffer = std::make_shared<std::vector<float>>(gradient.size());
  float* const kept = buffer->data();
  if (!first) {
    for (std::size_t i = 0; i < gradient.size(); ++i) kept[i] += weight * gradient[i];
  } else if (weight != 1) {
    for (std::size_t i = 0; i < gradient.size(); ++i) kept[i] = weight * gradient[i];
  } else {
    std::copy(gradient.begin(), gradient.end(), kept);
  }
  const bool finite = AllFinite(*buffer);
  absl::MutexLock lock(&mutex_);
  gradients_[tensor] = std::move(buffer);
  return finite;
}

double ParameterStore::SumOfSquares(std::size_t tensor) const {
  std::shared_ptr<const std::vector<float>> gradient;
  {
    absl::MutexLock lock(&mutex_);
    gradient = gradients_[tensor];
  }
  return SquaresOf(*gradient);
}

}  // namespace downpour::worker
