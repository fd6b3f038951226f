#include <algorithm>
#include <utility>

#include "trainer/data/transforms/transform.h"

namespace downpour::data {
namespace {

// Weights are of so many parts.
constexpr int kBits = 11;
constexpr std::int64_t kOne = std::int64_t{1} << kBits;

// Between which two pixels, and how much of the second.
struct Place {
  std::int32_t first;
  std::int32_t second;
  std::int32_t weight;
};

std::vector<Place> Places(std::int64_t from, std::int64_t to) {
  std::vector<Place> places(static_cast<std::size_t>(to));
  for (std::int64_t i = 0; i < to; ++i) {
    // (i + 1/2) from / to - 1/2, in parts of 1 / kOne.
    const std::int64_t at = std::max<std::int64_t>(0, ((2 * i + 1) * from * kOne / to - kOne) / 2);
    const std::int64_t first = std::min(at >> kBits, from - 1);
    places[static_cast<std::size_t>(i)] = {static_cast<std::int32_t>(first),
                                           static_cast<std::int32_t>(std::min(first + 1, from - 1)),
                                           static_cast<std::int32_t>(at - (first << kBits))};
  }
  return places;
}

absl::StatusOr<Value> Resized(Value value, std::int64_t to_height, std::int64_t to_width) {
  const std::int64_t channels = value.shape[0];
  const std::int64_t height = value.shape[1];
  const std::int64_t width = value.shape[2];
  if (height == to_height && width == to_width) return value;
  Value result{{channels, to_height, to_width}, std::vector<std::byte>(channels * to_height * to_width)};
  const std::vector<Place> rows = Places(height, to_height);
  const std::vector<Place> columns = Places(width, to_width);
  const auto* from = reinterpret_cast<const std::uint8_t*>(value.bytes.data());
  auto* to = reinterpret_cast<std::uint8_t*>(result.bytes.data());
  for (std::int64_t channel = 0; channel < channels; ++channel, from += height * width) {
    for (const Place& row : rows) {
      const std::uint8_t* const above = from + row.first * width;
      const std::uint8_t* const below = from + row.second * width;
      const std::int32_t down = row.weight;
      const std::int32_t up = static_cast<std::int32_t>(kOne) - down;
      for (const Place& column : columns) {
        const std::int32_t left = above[column.first] * up + below[column.first] * down;
        const std::int32_t right = above[column.second] * up + below[column.second] * down;
        const std::int64_t sum = left * (kOne - column.weight) + std::int64_t{right} * column.weight;
        *to++ = static_cast<std::uint8_t>((sum + (std::int64_t{1} << (2 * kBits - 1))) >> (2 * kBits));
      }
    }
  }
  return result;
}

}  // namespace

absl::StatusOr<Transform> Resize(const Column& column, std::int64_t height, std::int64_t width) {
  if (absl::Status status = CheckImage(column, "Resize"); !status.ok()) return status;
  Column output = column;
  output.shape = {column.shape[0], height, width};
  return Transform{std::move(output), [height, width](Value value, Random* /*random*/) {
                     return Resized(std::move(value), height, width);
                   }};
}

}  // namespace downpour::data
