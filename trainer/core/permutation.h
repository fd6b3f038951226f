#ifndef DOWNPOUR_TRAINER_CORE_PERMUTATION_H_
#define DOWNPOUR_TRAINER_CORE_PERMUTATION_H_

#include <cstdint>

namespace downpour::core {

// SplitMix64 (Steele, Lea and Flood 2014): a bijective mixer.
std::uint64_t MixBits(std::uint64_t value);

// The sample at `position` of a pseudo-random permutation of [0, count) that is a function of (seed, epoch) alone: a
// Feistel network over the next power of four with cycle walking, so no table is kept and any position costs O(1).
std::uint64_t PermutedIndex(std::uint64_t seed, std::uint32_t epoch, std::uint64_t count, std::uint64_t position);

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_PERMUTATION_H_
