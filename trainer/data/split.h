#ifndef DOWNPOUR_TRAINER_DATA_SPLIT_H_
#define DOWNPOUR_TRAINER_DATA_SPLIT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/data/sample_source.h"

namespace downpour::data {

// Parts a source: whether a sample is held out for validation is a function of (seed, index) alone, true for `fraction`
// of all on average. So every process makes the same parts, and more samples at the end move none.
bool IsHeldOut(double fraction, std::uint64_t seed, std::int64_t index);

// The samples that are held out, or all others, in their order. Takes four bytes a sample (eight of more than 2^32).
std::unique_ptr<SampleSource> MakePart(std::shared_ptr<const SampleSource> source, double fraction, std::uint64_t seed,
                                       bool held_out);

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_SPLIT_H_
