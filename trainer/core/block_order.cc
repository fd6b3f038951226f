#include "trainer/core/block_order.h"

#include <algorithm>

#include "trainer/core/permutation.h"

namespace downpour::core {
namespace {

constexpr std::uint64_t kBlocksOfWindow = 4;

// Seeds of orders that have nothing to do with each other.
std::uint64_t SeedOfBlocks(std::uint64_t seed) { return MixBits(seed ^ 0x626c6f636b73u); }
std::uint64_t SeedOfWindows(std::uint64_t seed) { return MixBits(seed ^ 0x77696e646f7773u); }
std::uint64_t SeedWithin(std::uint64_t seed, std::uint64_t window) { return MixBits(MixBits(seed) ^ window); }

}  // namespace

std::uint64_t BlockOrder::WindowAt(std::uint32_t dataset_epoch, std::uint64_t position) const {
  const std::uint64_t whole = count_ / window_;
  const std::uint64_t slot = position / window_;
  return slot < whole ? PermutedIndex(SeedOfWindows(seed_), dataset_epoch, whole, slot) : whole;
}

std::uint64_t BlockOrder::SampleAt(std::uint32_t dataset_epoch, std::uint64_t position) const {
  const std::uint64_t window = WindowAt(dataset_epoch, position);
  const std::uint64_t begin = window * window_;
  const std::uint64_t length = std::min(window_, count_ - begin);
  // Its place in the order of blocks.
  const std::uint64_t place =
      begin + PermutedIndex(SeedWithin(seed_, window), dataset_epoch, length, position % window_);
  const std::uint64_t whole = count_ / block_;
  const std::uint64_t slot = place / block_;
  if (slot >= whole) return place;
  return PermutedIndex(SeedOfBlocks(seed_), 0, whole, slot) * block_ + place % block_;
}

std::uint64_t WindowFor(std::uint64_t block, std::uint64_t samples_of_shard) {
  const std::uint64_t samples = std::max<std::uint64_t>(1, samples_of_shard);  // 0: the plan is refused
  return std::max<std::uint64_t>(1, kBlocksOfWindow * block / samples) * samples;
}

}  // namespace downpour::core
