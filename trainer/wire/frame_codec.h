#ifndef DOWNPOUR_TRAINER_WIRE_FRAME_CODEC_H_
#define DOWNPOUR_TRAINER_WIRE_FRAME_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "trainer/core/frame.h"
#include "trainer/wire/transport.h"

// Frames to bytes and back; the layout is specified in docs/formats.md. Free of gRPC and of state: thread-safe.
namespace downpour::wire {

using core::kFrameHeaderBytes;
inline constexpr std::uint16_t kFrameVersion = 3;

// Payloads up to this size are copied beside their headers, larger ones travel by reference.
inline constexpr std::size_t kCopiedPayloadBytes = 8192;

// Part of an encoded message: bytes that live at least as long as `owner`.
struct MessagePart {
  absl::Span<const std::uint8_t> bytes;
  std::shared_ptr<const void> owner;
};

// Whether the payloads' checksums are computed, and verified. Those of the headers always are.
enum class PayloadChecksums : std::uint8_t { kUsed, kLeftOut };

// One message; the parts in order are its bytes. Payloads are referred to, not copied, except the small ones. Computes
// the checksums, so it reads every payload once; without those of payloads none. kInvalidArgument: a payload that is
// neither empty nor what the codec makes of `elements` values nor so many bytes, bytes where none may be, a factor
// outside 0 to 1, a learning rate that is not finite, a reply without a status or a status on what is no reply, a
// record without a kind or that of one on what is none, or more than kMaxMessageBytes.
absl::StatusOr<std::vector<MessagePart>> EncodeMessage(const Frames& frames,
                                                       PayloadChecksums checksums = PayloadChecksums::kUsed);

// A message read back. Payloads refer to the message's bytes and hold `owner`.
struct DecodedMessage {
  Frames frames;
  // How many payloads had the wrong checksum; their frames have status kCorrupt and no payload.
  std::size_t corrupt_payloads = 0;
};

// Reads a message that arrived as `segments`, cut anywhere, kept alive by `owner`. Trusts nothing, not even that the
// bytes stay as they are while it reads them: kDataLoss names the frame and the field, what was found and what was
// expected; kResourceExhausted for more than kMaxMessageBytes.
absl::StatusOr<DecodedMessage> DecodeMessage(absl::Span<const absl::Span<const std::uint8_t>> segments,
                                             const std::shared_ptr<const void>& owner,
                                             PayloadChecksums checksums = PayloadChecksums::kUsed);

}  // namespace downpour::wire

#endif  // DOWNPOUR_TRAINER_WIRE_FRAME_CODEC_H_
