#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "trainer/data/transforms/numbers.h"
#include "trainer/data/transforms/transform.h"

namespace downpour::data {
namespace {

// Nothing: `To` does not hold it.
template <typename To, typename From>
std::optional<To> Converted(From value) {
  if constexpr (std::is_same_v<To, From> || std::is_floating_point_v<To>) {
    return static_cast<To>(value);
  } else if constexpr (std::is_floating_point_v<From>) {
    // Both ends are powers of two, so that they are exact; neither holds of a NaN.
    constexpr double kBeyond = 2 * static_cast<double>(std::uint64_t{1} << (std::numeric_limits<To>::digits - 1));
    const double least = std::numeric_limits<To>::is_signed ? -kBeyond : 0;
    const double number = value;
    if (!(number >= least && number < kBeyond) || std::trunc(number) != number) return std::nullopt;
    return static_cast<To>(number);
  } else {
    const auto number = static_cast<std::int64_t>(value);
    if (number < std::numeric_limits<To>::min() || number > std::numeric_limits<To>::max()) return std::nullopt;
    return static_cast<To>(number);
  }
}

template <typename To, typename From>
absl::StatusOr<Value> CastValue(const Value& value, ElementType type) {
  const std::size_t elements = value.bytes.size() / sizeof(From);
  const auto* const from = reinterpret_cast<const From*>(value.bytes.data());
  Value result{value.shape, std::vector<std::byte>(elements * sizeof(To))};
  auto* const to = reinterpret_cast<To*>(result.bytes.data());
  for (std::size_t i = 0; i < elements; ++i) {
    const std::optional<To> converted = Converted<To>(from[i]);
    if (!converted.has_value()) {
      return absl::DataLossError(absl::StrCat("found ", from[i], ", expected what ", Name(type), " holds"));
    }
    to[i] = *converted;
  }
  return result;
}

}  // namespace

absl::StatusOr<Transform> Cast(const Column& column, ElementType type) {
  if (column.text) return absl::InvalidArgumentError("Cast is for numbers, not for text");
  Column output = column;
  output.type = type;
  if (type == ElementType::kF32) {
    output.classes = 0;
    output.class_names.clear();
  }
  std::optional<BatchStep> batched;
  // One that may find values which the type does not hold names their sample.
  if (type == ElementType::kF32) batched = BatchStep{.type = BatchStep::Type::kCast, .element_type = type};
  return Transform{std::move(output),
                   [from = column.type, type](const Value& value, Random* /*random*/) {
                     return WithElementType(from, [&](auto source) {
                       return WithElementType(type, [&](auto target) {
                         return CastValue<decltype(target), decltype(source)>(value, type);
                       });
                     });
                   },
                   false, std::move(batched)};
}

}  // namespace downpour::data
