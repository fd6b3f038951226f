#include "trainer/core/codec/encoded_gradient.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "trainer/core/codec/bf16.h"
#include "trainer/core/codec/codec.h"
#include "trainer/core/codec/int8.h"
#include "trainer/core/codec/one_bit.h"
#include "trainer/core/codec/units.h"

namespace downpour::core {
namespace {

using Visit = absl::FunctionRef<void(std::size_t first, absl::Span<const float> run)>;

// Stays in the nearest cache.
constexpr std::size_t kPart = 16 * kCodecBlock;

// `kBytes`: of a part.
template <std::size_t kBytes>
void DecodeInParts(const EncodedGradient& gradient, std::size_t elements, Visit visit) {
  std::array<float, kPart> values;
  ForEachUnits<kBytes>(gradient.payload, [&](std::size_t part, absl::Span<const std::uint8_t> bytes) {
    for (std::size_t first = part * kPart; !bytes.empty(); first += kPart) {
      const absl::Span<float> run = absl::MakeSpan(values).first(std::min(kPart, elements - first));
      const absl::Span<const std::uint8_t> encoded = bytes.first(std::min(kBytes, bytes.size()));
      Decode(gradient.codec, Payload({encoded}, nullptr), run);
      visit(first, run);
      bytes.remove_prefix(encoded.size());
    }
  });
}

}  // namespace

void EncodedGradient::ForEachDecoded(std::size_t elements, Visit visit) const {
  switch (codec) {
    case FrameCodec::kNone:
    case FrameCodec::kFp32:
      return;
    case FrameCodec::kBf16:
      return DecodeInParts<Bf16Bytes(kPart)>(*this, elements, visit);
    case FrameCodec::kInt8:
      return DecodeInParts<Int8Bytes(kPart)>(*this, elements, visit);
    case FrameCodec::kOneBit:
      return DecodeInParts<OneBitBytes(kPart)>(*this, elements, visit);
    case FrameCodec::kTopK: {
      std::vector<float> values(elements);
      Decode(codec, payload, absl::MakeSpan(values));
      return visit(0, values);
    }
  }
}

}  // namespace downpour::core
