#include "trainer/core/codec/one_bit.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "trainer/core/codec/units.h"
#include "trainer/core/codec/wide_vectors.h"

namespace downpour::core {
namespace {

using Means = std::array<float, 2>;  // of the negative values, of the others: as the bit says
constexpr std::size_t kBlockBytes = sizeof(Means) + kOneBitBlock / 8;

DOWNPOUR_WIDE_VECTORS
void Select(const std::uint8_t* bits, std::size_t count, std::uint32_t negative, std::uint32_t other, float* values) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t mask = 0u - ((std::uint32_t{bits[i / 8]} >> (i % 8)) & 1);
    values[i] = std::bit_cast<float>((other & mask) | (negative & ~mask));
  }
}

}  // namespace

void EncodeOneBit(absl::Span<const float> values, std::uint8_t* out) {
  for (std::size_t first = 0; first < values.size(); first += kOneBitBlock) {
    const auto block = values.subspan(first, kOneBitBlock);
    std::array<double, 2> sums{};
    std::array<std::size_t, 2> counts{};
    std::uint8_t* const bits = out + sizeof(Means);
    const std::size_t bytes = (block.size() + 7) / 8;
    std::fill_n(bits, bytes, std::uint8_t{0});
    for (std::size_t i = 0; i < block.size(); ++i) {
      const std::size_t bit = block[i] >= 0 ? 1 : 0;
      sums[bit] += block[i];
      ++counts[bit];
      bits[i / 8] = static_cast<std::uint8_t>(bits[i / 8] | (bit << (i % 8)));
    }
    Means means{};
    for (std::size_t bit = 0; bit < 2; ++bit) {
      const auto mean = static_cast<float>(sums[bit] / static_cast<double>(std::max<std::size_t>(1, counts[bit])));
      means[bit] = std::isfinite(mean) ? mean : 0;
    }
    std::memcpy(out, means.data(), sizeof(means));
    out = bits + bytes;
  }
}

bool IsSoundOneBit(const Payload& payload, std::size_t elements) {
  bool sound = true;
  ForEachBlock<Means, kBlockBytes>(payload,
                                   [&](std::size_t block, const Means& means, absl::Span<const std::uint8_t> bits) {
                                     const std::size_t count = std::min(kOneBitBlock, elements - block * kOneBitBlock);
                                     sound = sound && std::isfinite(means[0]) && std::isfinite(means[1]) &&
                                             (count % 8 == 0 || bits.back() >> (count % 8) == 0);
                                   });
  return sound;
}

void DecodeOneBit(const Payload& payload, absl::Span<float> values) {
  ForEachBlock<Means, kBlockBytes>(payload,
                                   [&](std::size_t block, const Means& means, absl::Span<const std::uint8_t> bits) {
                                     const absl::Span<float> out = values.subspan(block * kOneBitBlock, kOneBitBlock);
                                     Select(bits.data(), out.size(), std::bit_cast<std::uint32_t>(means[0]),
                                            std::bit_cast<std::uint32_t>(means[1]), out.data());
                                   });
}

}  // namespace downpour::core
