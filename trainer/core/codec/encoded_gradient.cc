#include "trainer/core/codec/encoded_gradient.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "trainer/core/codec/bf16.h"
#include "trainer/core/codec/codec.h"
#include "trainer/core/codec/int8.h"
#include "trainer/core/codec/one_bit.h"
#include "trainer/core/codec/top_k.h"
#include "trainer/core/codec/units.h"

namespace downpour::core {
namespace {

using Visit = absl::FunctionRef<void(std::size_t first, absl::Span<const float> run)>;

// `kBytes`: of a part. `decode` takes what is sound.
template <std::size_t kBytes>
void DecodeInParts(const Payload& payload, std::size_t elements, void (*decode)(const Payload&, absl::Span<float>),
                   Visit visit) {
  std::array<float, kCodecPart> values;
  ForEachUnit<kBytes>(payload, [&](std::size_t part, absl::Span<const std::uint8_t> bytes) {
    const std::size_t first = part * kCodecPart;
    const absl::Span<float> run = absl::MakeSpan(values).first(std::min(kCodecPart, elements - first));
    decode(Payload({bytes}, nullptr), run);
    visit(first, run);
  });
}

}  // namespace

void EncodedGradient::ForEachDecoded(std::size_t elements, Visit visit) const {
  switch (codec) {
    case FrameCodec::kNone:
    case FrameCodec::kFp32:
      return;
    case FrameCodec::kBf16:
      return DecodeInParts<Bf16Bytes(kCodecPart)>(payload, elements, &DecodeBf16, visit);
    case FrameCodec::kInt8:
      return DecodeInParts<Int8Bytes(kCodecPart)>(payload, elements, &DecodeInt8, visit);
    case FrameCodec::kOneBit:
      return DecodeInParts<OneBitBytes(kCodecPart)>(payload, elements, &DecodeOneBit, visit);
    case FrameCodec::kTopK: {
      std::vector<float> values(elements);
      DecodeTopK(payload, absl::MakeSpan(values));
      return visit(0, values);
    }
  }
}

}  // namespace downpour::core
