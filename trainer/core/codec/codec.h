#ifndef DOWNPOUR_TRAINER_CORE_CODEC_CODEC_H_
#define DOWNPOUR_TRAINER_CORE_CODEC_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "trainer/core/frame.h"

// The codecs by their number in frames; each is in a file of its own, its bytes are specified in docs/formats.md.
// Thread-safe.
namespace downpour::core {

// Whether `bytes` bytes can be `elements` values in this codec, by their number alone.
bool PayloadFits(FrameCodec codec, std::uint64_t bytes, std::uint64_t elements);

// Whether they are: by their number, and by what they hold.
bool IsSound(FrameCodec codec, const Payload& payload, std::size_t elements);

// Into values.size() floats; every one is written. False: the payload is not sound, and nothing is written. Allocates
// nothing.
bool Decode(FrameCodec codec, const Payload& payload, absl::Span<float> values);

// How many bytes Encode makes of so many values; `top_k` is the fraction of them that kTopK keeps. Not of kNone.
std::size_t EncodedBytes(FrameCodec codec, double top_k, std::size_t elements);
// Writes EncodedBytes(codec, top_k, values.size()) bytes. Values may be encoded in parts of a multiple of kCodecBlock,
// one after another, but for kTopK.
inline constexpr std::size_t kCodecBlock = 256;
// Stays in the first cache from being encoded until it is decoded, and from being decoded until it is used.
inline constexpr std::size_t kCodecPart = 16 * kCodecBlock;
void Encode(FrameCodec codec, double top_k, absl::Span<const float> values, std::uint8_t* out);

// `bytes` as a payload that owns them.
Payload OwningPayload(std::vector<std::uint8_t> bytes);

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_CODEC_CODEC_H_
