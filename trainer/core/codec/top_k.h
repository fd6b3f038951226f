#ifndef DOWNPOUR_TRAINER_CORE_CODEC_TOP_K_H_
#define DOWNPOUR_TRAINER_CORE_CODEC_TOP_K_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "trainer/core/frame.h"

// The values with the largest magnitudes; all others become 0 (Aji and Heafield 2017, "Sparse Communication for
// Distributed Gradient Descent"): for each one its index and the value itself, by rising index. Thread-safe.
namespace downpour::core {

inline constexpr std::size_t kTopKPairBytes = sizeof(std::uint32_t) + sizeof(float);

// How many of `elements` values are kept: `fraction` of them, rounded up; at least one, if there is one. The fraction
// is in (0, 1].
std::size_t TopKCount(double fraction, std::size_t elements);
// Writes kTopKPairBytes for each of `count` values; of equal magnitudes the first are kept. count <= values.size().
void EncodeTopK(absl::Span<const float> values, std::size_t count, std::uint8_t* out);
// The payload has whole pairs. False: an index beyond the elements, or not above the one before.
bool IsSoundTopK(const Payload& payload, std::size_t elements);
// The payload is sound.
void DecodeTopK(const Payload& payload, absl::Span<float> values);

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_CODEC_TOP_K_H_
