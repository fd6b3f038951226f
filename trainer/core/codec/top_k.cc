#include "trainer/core/codec/top_k.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "trainer/core/codec/units.h"

namespace downpour::core {
namespace {

// Ordered as magnitudes are.
std::uint32_t MagnitudeBits(float value) { return std::bit_cast<std::uint32_t>(value) & 0x7fffffff; }

// Calls visit(index, bytes of the value) for each pair, in order.
template <typename Visit>
void ForEachPair(const Payload& payload, Visit&& visit) {
  ForEachBlock<std::uint32_t, kTopKPairBytes>(
      payload,
      [&](std::size_t, std::uint32_t index, absl::Span<const std::uint8_t> value) { visit(index, value.data()); });
}

}  // namespace

std::size_t TopKCount(double fraction, std::size_t elements) {
  const double wanted = std::ceil(fraction * static_cast<double>(elements));
  return std::min(elements, std::max<std::size_t>(1, static_cast<std::size_t>(wanted)));
}

void EncodeTopK(absl::Span<const float> values, std::size_t count, std::uint8_t* out) {
  if (count == 0) return;
  std::vector<std::uint32_t> magnitudes(values.size());
  std::transform(values.begin(), values.end(), magnitudes.begin(), MagnitudeBits);
  const auto least = magnitudes.begin() + static_cast<std::ptrdiff_t>(count - 1);
  std::nth_element(magnitudes.begin(), least, magnitudes.end(), std::greater<>());
  const std::uint32_t threshold = *least;
  const auto above = std::count_if(magnitudes.begin(), least, [&](std::uint32_t bits) { return bits > threshold; });
  std::size_t equal_left = count - static_cast<std::size_t>(above);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint32_t bits = MagnitudeBits(values[i]);
    if (bits < threshold || (bits == threshold && equal_left == 0)) continue;
    if (bits == threshold) --equal_left;
    const auto index = static_cast<std::uint32_t>(i);
    std::memcpy(out, &index, sizeof(index));
    std::memcpy(out + sizeof(index), &values[i], sizeof(float));
    out += kTopKPairBytes;
  }
}

bool IsSoundTopK(const Payload& payload, std::size_t elements) {
  bool sound = true;
  std::size_t next = 0;  // the least index that may come
  ForEachPair(payload, [&](std::uint32_t index, const std::uint8_t*) {
    sound = sound && index >= next && index < elements;
    next = std::size_t{index} + 1;
  });
  return sound;
}

void DecodeTopK(const Payload& payload, absl::Span<float> values) {
  std::fill(values.begin(), values.end(), 0.0f);
  ForEachPair(payload, [&](std::uint32_t index, const std::uint8_t* value) {
    std::memcpy(&values[index], value, sizeof(float));
  });
}

}  // namespace downpour::core
