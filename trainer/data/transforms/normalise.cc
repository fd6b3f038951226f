#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "trainer/data/transforms/transform.h"

namespace downpour::data {
namespace {

template <typename T>
Value Normalised(const Value& value, float most, const std::vector<float>& mean, const std::vector<float>& deviation) {
  const std::size_t elements = value.bytes.size() / sizeof(T);
  const std::size_t run = elements / mean.size();
  const T* from = reinterpret_cast<const T*>(value.bytes.data());
  Value result{value.shape, std::vector<std::byte>(elements * sizeof(float))};
  auto* to = reinterpret_cast<float*>(result.bytes.data());
  for (std::size_t channel = 0; channel < mean.size(); ++channel) {
    for (std::size_t i = 0; i < run; ++i) {
      *to++ = (static_cast<float>(*from++) / most - mean[channel]) / deviation[channel];
    }
  }
  return result;
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
  return Transform{std::move(output),
                   [bytes, mean = std::move(mean), deviation = std::move(deviation)](
                       const Value& value, Random* /*random*/) -> absl::StatusOr<Value> {
                     return bytes ? Normalised<std::uint8_t>(value, 255, mean, deviation)
                                  : Normalised<float>(value, 1, mean, deviation);
                   }};
}

}  // namespace downpour::data
