#include "trainer/core/codec/bf16.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "trainer/core/codec/units.h"
#include "trainer/core/codec/wide_vectors.h"

namespace downpour::core {
namespace {

constexpr std::int32_t kInfinity = 0x7f800000;
constexpr std::int32_t kLargest = 0x7f7f;  // of the finite bf16
constexpr std::int32_t kQuiet = 0x0040;

// In integers, which go into vectors as they are; compared as signed ones, as vectors are.
inline std::uint32_t HalfOf(std::uint32_t bits) {
  const std::uint32_t magnitude = bits & 0x7fffffff;
  const bool finite = static_cast<std::int32_t>(magnitude) < kInfinity;
  const auto rounded = static_cast<std::int32_t>((magnitude + 0x7fff + ((magnitude >> 16) & 1)) >> 16);
  // A NaN whose payload is in the lower half would become an infinity.
  const bool nan = static_cast<std::int32_t>(magnitude) > kInfinity;
  const std::int32_t special = static_cast<std::int32_t>(magnitude >> 16) | (nan ? kQuiet : 0);
  return static_cast<std::uint32_t>(finite ? std::min(rounded, kLargest) : special) | ((bits >> 16) & 0x8000);
}

DOWNPOUR_WIDE_VECTORS
void Narrow(const float* values, std::size_t count, std::uint8_t* out) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto half = static_cast<std::uint16_t>(HalfOf(std::bit_cast<std::uint32_t>(values[i])));
    std::memcpy(out + 2 * i, &half, sizeof(half));
  }
}

DOWNPOUR_WIDE_VECTORS
void NarrowLeavingRest(float* __restrict values, std::size_t count, std::uint8_t* __restrict out) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t wide = HalfOf(std::bit_cast<std::uint32_t>(values[i]));
    const auto half = static_cast<std::uint16_t>(wide);
    std::memcpy(out + 2 * i, &half, sizeof(half));
    values[i] -= std::bit_cast<float>(wide << 16);
  }
}

DOWNPOUR_WIDE_VECTORS
void Widen(const std::uint8_t* bytes, std::size_t count, float* values) {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t half;
    std::memcpy(&half, bytes + 2 * i, sizeof(half));
    values[i] = std::bit_cast<float>(std::uint32_t{half} << 16);
  }
}

}  // namespace

void EncodeBf16(absl::Span<const float> values, std::uint8_t* out) { Narrow(values.data(), values.size(), out); }

void EncodeBf16LeavingRest(absl::Span<float> values, std::uint8_t* out) {
  NarrowLeavingRest(values.data(), values.size(), out);
}

void DecodeBf16(const Payload& payload, absl::Span<float> values) {
  ForEachUnits<2>(payload, [&](std::size_t first, absl::Span<const std::uint8_t> bytes) {
    Widen(bytes.data(), bytes.size() / 2, values.data() + first);
  });
}

void DecodeBf16(absl::Span<const std::uint8_t> bytes, absl::Span<float> values) {
  Widen(bytes.data(), values.size(), values.data());
}

}  // namespace downpour::core
