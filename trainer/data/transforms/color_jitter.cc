#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "trainer/data/transforms/transform.h"

namespace downpour::data {
namespace {

// ITU-R BT.601.
constexpr float kRed = 0.299F;
constexpr float kGreen = 0.587F;
constexpr float kBlue = 0.114F;

void Jitter(float brightness, float contrast, float saturation, Value* value) {
  const std::size_t pixels = value->bytes.size() / static_cast<std::size_t>(value->shape[0]);
  auto* const bytes = reinterpret_cast<std::uint8_t*>(value->bytes.data());
  const bool grey = value->shape[0] == 1;
  const auto luma = [&](std::size_t i) {
    return grey ? static_cast<float>(bytes[i])
                : kRed * bytes[i] + kGreen * bytes[pixels + i] + kBlue * bytes[2 * pixels + i];
  };
  double sum = 0;
  for (std::size_t i = 0; i < pixels; ++i) sum += luma(i);
  const float mean = pixels == 0 ? 0 : static_cast<float>(sum / static_cast<double>(pixels)) * brightness;
  for (std::size_t i = 0; i < pixels; ++i) {
    const float grey_level = mean + (luma(i) * brightness - mean) * contrast;
    for (std::size_t at = i; at < value->bytes.size(); at += pixels) {
      const float level = mean + (bytes[at] * brightness - mean) * contrast;
      const float saturated = grey_level + (level - grey_level) * saturation;
      bytes[at] = static_cast<std::uint8_t>(std::lround(std::clamp(saturated, 0.0F, 255.0F)));
    }
  }
}

}  // namespace

absl::StatusOr<Transform> ColorJitter(const Column& column, double brightness, double contrast, double saturation) {
  if (absl::Status status = CheckImage(column, "ColorJitter"); !status.ok()) return status;
  if (column.shape[0] != 3 && (column.shape[0] != 1 || saturation > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("ColorJitter is for images of 3 channels, or of 1 without saturation, not of ", column.shape[0]));
  }
  return Transform{column,
                   [=](Value value, Random* random) -> absl::StatusOr<Value> {
                     if (random == nullptr) return value;
                     const auto factor = [random](double amount) {
                       return static_cast<float>(1 + amount * (2 * random->Fraction() - 1));
                     };
                     const float first = factor(brightness);
                     const float second = factor(contrast);
                     Jitter(first, second, factor(saturation), &value);
                     return value;
                   },
                   true};
}

}  // namespace downpour::data
