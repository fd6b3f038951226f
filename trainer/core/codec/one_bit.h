#ifndef DOWNPOUR_TRAINER_CORE_CODEC_ONE_BIT_H_
#define DOWNPOUR_TRAINER_CORE_CODEC_ONE_BIT_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "trainer/core/frame.h"

// One bit a value (Seide, Fu, Droppo, Li and Yu 2014, "1-Bit Stochastic Gradient Descent and its Application to
// Data-Parallel Distributed Training of Speech DNNs", section 3): each block of 256 values is two float32, the mean of
// the values that are not negative and that of the negative ones, and then a bit for each value, which says whose mean
// it becomes. The paper takes a column of the weights in place of a block; a slice has no columns. Thread-safe.
namespace downpour::core {

inline constexpr std::size_t kOneBitBlock = 256;

constexpr std::size_t OneBitBytes(std::size_t elements) {
  return (elements + 7) / 8 + (elements + kOneBitBlock - 1) / kOneBitBlock * 2 * sizeof(float);
}

// Writes OneBitBytes(values.size()) bytes. A mean of no value, and one that is not finite, is 0.
void EncodeOneBit(absl::Span<const float> values, std::uint8_t* out);
// The payload has OneBitBytes(elements) bytes. False: a mean is not finite, or a bit behind the last value is set.
bool IsSoundOneBit(const Payload& payload, std::size_t elements);
// The payload has OneBitBytes(values.size()) bytes.
void DecodeOneBit(const Payload& payload, absl::Span<float> values);

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_CODEC_ONE_BIT_H_
