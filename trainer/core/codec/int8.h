#ifndef DOWNPOUR_TRAINER_CORE_CODEC_INT8_H_
#define DOWNPOUR_TRAINER_CORE_CODEC_INT8_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "trainer/core/frame.h"

// Symmetric 8-bit integers: each block of 256 values is a float32 scale and then an int8 for each value, which stands
// for the integer times the scale. Thread-safe.
namespace downpour::core {

inline constexpr std::size_t kInt8Block = 256;

constexpr std::size_t Int8Bytes(std::size_t elements) {
  return elements + (elements + kInt8Block - 1) / kInt8Block * sizeof(float);
}

// Writes Int8Bytes(values.size()) bytes. The scale is the largest magnitude of the block over 127, integers are rounded
// to nearest, ties to even, so a value is off by half a scale at most. A block whose scale would be no normal float has
// scale 0. Values that are not finite become something finite.
void EncodeInt8(absl::Span<const float> values, std::uint8_t* out);
// The same, and each finite value becomes what of it is not in the bytes: itself less what it decodes to.
void EncodeInt8LeavingRest(absl::Span<float> values, std::uint8_t* out);
// The payload has Int8Bytes of some number of values. False: a scale is negative, not finite or so large that an
// integer times it might not be finite.
bool IsSoundInt8(const Payload& payload);
// The payload has Int8Bytes(values.size()) bytes.
void DecodeInt8(const Payload& payload, absl::Span<float> values);

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_CODEC_INT8_H_
