#include "trainer/core/codec/int8.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "trainer/core/codec/units.h"
#include "trainer/core/codec/wide_vectors.h"

namespace downpour::core {
namespace {

constexpr float kLargestScale = std::numeric_limits<float>::max() / 128;
constexpr std::size_t kBlockBytes = sizeof(float) + kInt8Block;

// 1.5 * 2^23: a float of this size has no fraction, so that adding it rounds to the nearest integer, which is then how
// far its bits are above those of kRound. Defined for NaN as well, unlike a conversion.
constexpr float kRound = 12582912.0f;
constexpr std::uint32_t kRoundBits = std::bit_cast<std::uint32_t>(kRound);

DOWNPOUR_WIDE_VECTORS
std::uint32_t LargestMagnitude(const float* values, std::size_t count) {
  // The bits of magnitudes are ordered as the numbers are, and integers reduce in vectors.
  std::uint32_t most = 0;
  for (std::size_t i = 0; i < count; ++i) most = std::max(most, std::bit_cast<std::uint32_t>(values[i]) & 0x7fffffff);
  return most;
}

inline std::int32_t Quantised(float value, float inverse) {
  const auto integer = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(value * inverse + kRound) - kRoundBits);
  return std::min(std::max(integer, -127), 127);
}

DOWNPOUR_WIDE_VECTORS
void Quantise(const float* values, std::size_t count, float inverse, std::uint8_t* out) {
  for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<std::uint8_t>(Quantised(values[i], inverse));
}

DOWNPOUR_WIDE_VECTORS
void QuantiseLeavingRest(float* __restrict values, std::size_t count, float inverse, float scale,
                         std::uint8_t* __restrict out) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t integer = Quantised(values[i], inverse);
    out[i] = static_cast<std::uint8_t>(integer);
    values[i] -= static_cast<float>(integer) * scale;
  }
}

DOWNPOUR_WIDE_VECTORS
void Multiply(const std::uint8_t* integers, std::size_t count, float scale, float* values) {
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(static_cast<std::int8_t>(integers[i])) * scale;
  }
}

// Written before the integers of its block.
float WriteScale(absl::Span<const float> values, std::uint8_t* out) {
  const std::uint32_t most = LargestMagnitude(values.data(), values.size());
  const float largest = most < 0x7f800000 ? std::bit_cast<float>(most) : std::numeric_limits<float>::max();
  float scale = std::min(largest / 127, kLargestScale);
  if (scale < std::numeric_limits<float>::min()) scale = 0;
  std::memcpy(out, &scale, sizeof(scale));
  return scale;
}

float Inverse(float scale) { return scale == 0 ? 0 : 1 / scale; }

}  // namespace

void EncodeInt8(absl::Span<const float> values, std::uint8_t* out) {
  for (std::size_t first = 0; first < values.size(); first += kInt8Block) {
    const absl::Span<const float> block = values.subspan(first, kInt8Block);
    const float scale = WriteScale(block, out);
    Quantise(block.data(), block.size(), Inverse(scale), out + sizeof(scale));
    out += sizeof(scale) + block.size();
  }
}

void EncodeInt8LeavingRest(absl::Span<float> values, std::uint8_t* out) {
  for (std::size_t first = 0; first < values.size(); first += kInt8Block) {
    const absl::Span<float> block = values.subspan(first, kInt8Block);
    const float scale = WriteScale(block, out);
    QuantiseLeavingRest(block.data(), block.size(), Inverse(scale), scale, out + sizeof(scale));
    out += sizeof(scale) + block.size();
  }
}

bool IsSoundInt8(const Payload& payload) {
  bool sound = true;
  ForEachBlock<float, kBlockBytes>(payload, [&](std::size_t, float scale, absl::Span<const std::uint8_t>) {
    sound = sound && scale >= 0 && scale <= kLargestScale;  // neither of a NaN
  });
  return sound;
}

void DecodeInt8(const Payload& payload, absl::Span<float> values) {
  ForEachBlock<float, kBlockBytes>(
      payload, [&](std::size_t block, float scale, absl::Span<const std::uint8_t> integers) {
        Multiply(integers.data(), integers.size(), scale, values.data() + block * kInt8Block);
      });
}

}  // namespace downpour::core
