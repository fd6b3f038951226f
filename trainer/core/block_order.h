#ifndef DOWNPOUR_TRAINER_CORE_BLOCK_ORDER_H_
#define DOWNPOUR_TRAINER_CORE_BLOCK_ORDER_H_

#include <cstdint>

namespace downpour::core {

// The orders of a data set that is dear to read at random: what follows each other lies in a few places.
//
//   blocks   `block` neighbouring samples each, in an order that is a function of the seed: the same in every epoch;
//   windows  `window` samples each, cut out of that order: so a window is the same samples in every epoch, of about
//            window / block places;
//   epoch    the windows in an order of (seed, epoch), the samples of each in an order of (seed, epoch, window).
//
// Blocks and windows are counted from the first sample; what is left at the end, less than a block or a window, stays
// at the end of the order that it is part of. Nothing is kept, and any position costs O(1).
class BlockOrder {
 public:
  // All at least 1.
  BlockOrder(std::uint64_t seed, std::uint64_t sample_count, std::uint64_t block, std::uint64_t window)
      : seed_(seed), count_(sample_count), block_(block), window_(window) {}

  // The sample at a position of the order of an epoch; each sample is at one position.
  std::uint64_t SampleAt(std::uint32_t dataset_epoch, std::uint64_t position) const;
  // The number of the window there.
  std::uint64_t WindowAt(std::uint32_t dataset_epoch, std::uint64_t position) const;

 private:
  std::uint64_t seed_;
  std::uint64_t count_;
  std::uint64_t block_;
  std::uint64_t window_;
};

// The window for data shards of `samples_of_shard` samples: whole data shards, of as few blocks as mix well enough.
std::uint64_t WindowFor(std::uint64_t block, std::uint64_t samples_of_shard);

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_BLOCK_ORDER_H_
