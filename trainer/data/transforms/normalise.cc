#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "trainer/data/transforms/transform.h"

namespace downpour::data {
namespace {

// `of(channel, element)` is what becomes of an element.
template <typename T, typename Of>
Value Normalised(const Value& value, std::size_t channels, const Of& of) {
  const std::size_t elements = value.bytes.size() / sizeof(T);
  const std::size_t run = elements / channels;
  const T* from = reinterpret_cast<const T*>(value.bytes.data());
  Value result{value.shape, std::vector<std::byte>(elements * sizeof(float))};
  auto* to = reinterpret_cast<float*>(result.bytes.data());
  for (std::size_t channel = 0; channel < channels; ++channel) {
    for (std::size_t i = 0; i < run; ++i) *to++ = of(channel, *from++);
  }
  return result;
}

// Of each channel what becomes of each pixel: two divisions cost more than to look it up.
std::vector<float> OfPixels(const std::vector<float>& mean, const std::vector<float>& deviation) {
  std::vector<float> table;
  table.reserve(256 * mean.size());
  for (std::size_t channel = 0; channel < mean.size(); ++channel) {
    for (int pixel = 0; pixel < 256; ++pixel) {
      table.push_back((static_cast<float>(pixel) / 255.0F - mean[channel]) / deviation[channel]);
    }
  }
  return table;
}

}  // namespace

absl::StatusOr<Transform> Normalise(const Column& column, std::vector<float> mean, std::vector<float> deviation) {
  const bool bytes = column.type == ElementType::kU8;
  if (column.text || (!bytes && column.type != ElementType::kF32)) {
    return absl::InvalidArgumentError(absl::StrCat("Normalize is for u8 and fp32, not for ", TypeText(column)));
  }
  if (mean.empty() || mean.size() != deviation.size()) {
    return absl::InvalidArgumentError(absl::StrCat("Normalize has ", mean.size(), " means and ", deviation.size(),
                                                   " deviations, expected as many of both, at least 1"));
  }
  if (mean.size() > 1 && (column.shape.empty() || column.shape[0] != static_cast<std::int64_t>(mean.size()))) {
    return absl::InvalidArgumentError(absl::StrCat("Normalize has ", mean.size(), " means for ", TypeText(column),
                                                   ", expected 1 or as many as the first extent"));
  }
  Column output = column;
  output.type = ElementType::kF32;
  output.classes = 0;
  output.class_names.clear();
  BatchStep batched{.type = BatchStep::Type::kNormalise, .mean = mean, .deviation = deviation};
  if (bytes) {
    return Transform{std::move(output),
                     [table = OfPixels(mean, deviation), channels = mean.size()](
                         const Value& value, Random* /*random*/) -> absl::StatusOr<Value> {
                       const auto of = [&table](std::size_t channel, std::uint8_t pixel) {
                         return table[channel * 256 + pixel];
                       };
                       return Normalised<std::uint8_t>(value, channels, of);
                     },
                     false, std::move(batched)};
  }
  return Transform{std::move(output),
                   [mean = std::move(mean), deviation = std::move(deviation)](
                       const Value& value, Random* /*random*/) -> absl::StatusOr<Value> {
                     const auto of = [&](std::size_t channel, float element) {
                       return (element - mean[channel]) / deviation[channel];
                     };
                     return Normalised<float>(value, mean.size(), of);
                   },
                   false, std::move(batched)};
}

}  // namespace downpour::data
