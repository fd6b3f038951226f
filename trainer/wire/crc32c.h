#ifndef DOWNPOUR_TRAINER_WIRE_CRC32C_H_
#define DOWNPOUR_TRAINER_WIRE_CRC32C_H_

#include <cstdint>

#include "absl/types/span.h"

// CRC-32C (Castagnoli, reflected polynomial 0x82F63B78), as iSCSI (RFC 3720) defines it. Thread-safe.
namespace downpour::wire {

// The checksum of `bytes`, continued from that of the bytes before them: Crc32c(b, Crc32c(a)) is that of a and b
// together. Chooses the fastest implementation that the processor has, once.
std::uint32_t Crc32c(absl::Span<const std::uint8_t> bytes, std::uint32_t crc = 0);

// The implementations, for tests. Crc32cAccelerated needs HasAcceleratedCrc32c().
bool HasAcceleratedCrc32c();
std::uint32_t Crc32cAccelerated(absl::Span<const std::uint8_t> bytes, std::uint32_t crc = 0);
std::uint32_t Crc32cPortable(absl::Span<const std::uint8_t> bytes, std::uint32_t crc = 0);

}  // namespace downpour::wire

#endif  // DOWNPOUR_TRAINER_WIRE_CRC32C_H_
