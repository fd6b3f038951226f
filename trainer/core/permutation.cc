#include "trainer/core/permutation.h"

#include <bit>

namespace downpour::core {
namespace {

constexpr int kFeistelRounds = 6;

}  // namespace

std::uint64_t MixBits(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

std::uint64_t PermutedIndex(std::uint64_t seed, std::uint32_t epoch, std::uint64_t count, std::uint64_t position) {
  if (count <= 1) return 0;
  const int half_bits = (static_cast<int>(std::bit_width(count - 1)) + 1) / 2;
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  const std::uint64_t key = MixBits(MixBits(seed) ^ epoch);
  std::uint64_t value = position;
  do {
    std::uint64_t left = value >> half_bits;
    std::uint64_t right = value & mask;
    for (int round = 0; round < kFeistelRounds; ++round) {
      const std::uint64_t next = left ^ (MixBits(right ^ (key + static_cast<std::uint64_t>(round))) & mask);
      left = right;
      right = next;
    }
    value = (left << half_bits) | right;
  } while (value >= count);
  return value;
}

}  // namespace downpour::core
