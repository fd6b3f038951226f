#ifndef DOWNPOUR_TRAINER_CORE_CODEC_BF16_H_
#define DOWNPOUR_TRAINER_CORE_CODEC_BF16_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "trainer/core/frame.h"

// The upper half of a float32, rounded to nearest, ties to even: 8 bits of precision and the whole range. Thread-safe.
namespace downpour::core {

constexpr std::size_t Bf16Bytes(std::size_t elements) { return 2 * elements; }

// Writes Bf16Bytes(values.size()) bytes. What is finite stays finite: beyond the largest bf16 it becomes that one.
// Infinities and NaN stay what they are.
void EncodeBf16(absl::Span<const float> values, std::uint8_t* out);
// The same, and each finite value becomes what of it is not in the bytes: itself less what it decodes to.
void EncodeBf16LeavingRest(absl::Span<float> values, std::uint8_t* out);
// Both have Bf16Bytes(values.size()) bytes.
void DecodeBf16(const Payload& payload, absl::Span<float> values);
void DecodeBf16(absl::Span<const std::uint8_t> bytes, absl::Span<float> values);

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_CODEC_BF16_H_
