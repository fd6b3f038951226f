#include "trainer/core/step_sum.h"

#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "trainer/core/sole_owner.h"

namespace downpour::core {
namespace {

constexpr char kSum[] = "step_sum";
constexpr char kSamples[] = "step_samples";
constexpr char kWidth[] = "step_width";
constexpr char kRate[] = "step_learning_rate";

}  // namespace

void StepSum::Add(std::uint32_t width, const EncodedGradient& gradient, std::size_t elements, double factor,
                  std::uint64_t samples, double learning_rate) {
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
  learning_rate_ = learning_rate;
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
  state->scalars.push_back({kRate, learning_rate_});
}

absl::Status StepSum::Import(OptimizerState* state, std::size_t elements, double learning_rate) {
  const std::shared_ptr<const std::vector<float>> sum = TakeVector(*state, kSum);
  const std::optional<double> samples = TakeScalar(*state, kSamples);
  const std::optional<double> width = TakeScalar(*state, kWidth);
  const std::optional<double> stated_rate = TakeScalar(*state, kRate);
  *this = StepSum();
  if (sum == nullptr && !samples.has_value() && !width.has_value() && !stated_rate.has_value()) {
    return absl::OkStatus();
  }
  const auto sound = [](const std::optional<double>& value) { return value > 0 && value <= UINT32_MAX; };
  const double rate = stated_rate.value_or(learning_rate);
  const bool rate_sound = rate >= 0 && rate <= std::numeric_limits<float>::max();
  if (sum == nullptr || sum->size() != elements || !sound(samples) || !sound(width) || !rate_sound) {
    return absl::InvalidArgumentError(absl::StrCat("the state of a step in the middle is not whole: expected ", kSum,
                                                   " of ", elements, " values, ", kSamples, ", ", kWidth, " and ",
                                                   kRate));
  }
  // It may be shared: SoleOwner keeps it from being written.
  sum_ = std::const_pointer_cast<std::vector<float>>(sum);
  samples_ = *samples;
  width_ = static_cast<std::uint32_t>(*width);
  learning_rate_ = rate;
  return absl::OkStatus();
}

}  // namespace downpour::core
