#include "trainer/core/step_sum.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "trainer/core/sole_owner.h"

namespace downpour::core {
namespace {

constexpr char kSum[] = "step_sum";
constexpr char kSamples[] = "step_samples";
constexpr char kWidth[] = "step_width";

}  // namespace

void StepSum::Add(std::uint32_t width, const EncodedGradient& gradient, std::size_t elements, double factor,
                  std::uint64_t samples) {
  const auto weight = static_cast<float>(factor * static_cast<double>(samples));
  if (sum_ == nullptr || !SoleOwner(sum_)) {
    sum_ = empty() ? std::make_shared<std::vector<float>>(elements) : std::make_shared<std::vector<float>>(*sum_);
  }
  std::vector<float>& sum = *sum_;
  const bool first = empty();
  gradient.ForEachFloats(elements, [&](std::size_t begin, absl::Span<const float> run) {
    float* const to = sum.data() + begin;
    if (first) {
      for (std::size_t i = 0; i < run.size(); ++i) to[i] = weight * run[i];
    } else {
      for (std::size_t i = 0; i < run.size(); ++i) to[i] += weight * run[i];
    }
  });
  samples_ += static_cast<double>(samples);
  width_ = width;
}

Payload StepSum::TakeMean() {
  if (!SoleOwner(sum_)) sum_ = std::make_shared<std::vector<float>>(*sum_);
  const auto samples = static_cast<float>(samples_);
  for (float& value : *sum_) value /= samples;
  samples_ = 0;
  width_ = 0;
  return Payload::OfFloats(*sum_, sum_);
}

void StepSum::Export(OptimizerState* state) const {
  if (empty()) return;
  state->vectors.push_back({kSum, sum_});
  state->scalars.push_back({kSamples, samples_});
  state->scalars.push_back({kWidth, static_cast<double>(width_)});
}

absl::Status StepSum::Import(OptimizerState* state, std::size_t elements) {
  const std::shared_ptr<const std::vector<float>> sum = TakeVector(*state, kSum);
  const std::optional<double> samples = TakeScalar(*state, kSamples);
  const std::optional<double> width = TakeScalar(*state, kWidth);
  *this = StepSum();
  if (sum == nullptr && !samples.has_value() && !width.has_value()) return absl::OkStatus();
  const auto sound = [](const std::optional<double>& value) { return value > 0 && value <= UINT32_MAX; };
  if (sum == nullptr || sum->size() != elements || !sound(samples) || !sound(width)) {
    return absl::InvalidArgumentError(absl::StrCat("the state of a step in the middle is not whole: expected ", kSum,
                                                   " of ", elements, " values, ", kSamples, " and ", kWidth));
  }
  // It may be shared: SoleOwner keeps it from being written.
  sum_ = std::const_pointer_cast<std::vector<float>>(sum);
  samples_ = *samples;
  width_ = static_cast<std::uint32_t>(*width);
  return absl::OkStatus();
}

}  // namespace downpour::core
