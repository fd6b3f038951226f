#include "trainer/core/codec/codec.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "trainer/core/codec/bf16.h"
#include "trainer/core/codec/int8.h"
#include "trainer/core/codec/one_bit.h"
#include "trainer/core/codec/top_k.h"

namespace downpour::core {

static_assert(kCodecBlock % kInt8Block == 0 && kCodecBlock % kOneBitBlock == 0);

bool PayloadFits(FrameCodec codec, std::uint64_t bytes, std::uint64_t elements) {
  switch (codec) {
    case FrameCodec::kNone:
      return false;
    case FrameCodec::kFp32:
      return bytes == elements * sizeof(float);
    case FrameCodec::kBf16:
      return bytes == Bf16Bytes(elements);
    case FrameCodec::kInt8:
      return bytes == Int8Bytes(elements);
    case FrameCodec::kTopK:
      return bytes % kTopKPairBytes == 0 && (bytes != 0 || elements == 0) && bytes / kTopKPairBytes <= elements;
    case FrameCodec::kOneBit:
      return bytes == OneBitBytes(elements);
  }
  return false;
}

bool IsSound(FrameCodec codec, const Payload& payload, std::size_t elements) {
  if (!PayloadFits(codec, payload.size(), elements)) return false;
  switch (codec) {
    case FrameCodec::kInt8:
      return IsSoundInt8(payload);
    case FrameCodec::kTopK:
      return IsSoundTopK(payload, elements);
    case FrameCodec::kOneBit:
      return IsSoundOneBit(payload, elements);
    case FrameCodec::kNone:
    case FrameCodec::kFp32:
    case FrameCodec::kBf16:
      break;
  }
  return true;
}

bool Decode(FrameCodec codec, const Payload& payload, absl::Span<float> values) {
  if (!IsSound(codec, payload, values.size())) return false;
  switch (codec) {
    case FrameCodec::kNone:
      return false;
    case FrameCodec::kFp32:
      payload.ForEachFloats([&](std::size_t first, absl::Span<const float> run) {
        std::copy(run.begin(), run.end(), values.begin() + first);
      });
      break;
    case FrameCodec::kBf16:
      DecodeBf16(payload, values);
      break;
    case FrameCodec::kInt8:
      DecodeInt8(payload, values);
      break;
    case FrameCodec::kTopK:
      DecodeTopK(payload, values);
      break;
    case FrameCodec::kOneBit:
      DecodeOneBit(payload, values);
      break;
  }
  return true;
}

std::size_t EncodedBytes(FrameCodec codec, double top_k, std::size_t elements) {
  switch (codec) {
    case FrameCodec::kNone:
      break;
    case FrameCodec::kFp32:
      return elements * sizeof(float);
    case FrameCodec::kBf16:
      return Bf16Bytes(elements);
    case FrameCodec::kInt8:
      return Int8Bytes(elements);
    case FrameCodec::kTopK:
      return TopKCount(top_k, elements) * kTopKPairBytes;
    case FrameCodec::kOneBit:
      return OneBitBytes(elements);
  }
  return 0;
}

void Encode(FrameCodec codec, double top_k, absl::Span<const float> values, std::uint8_t* out) {
  switch (codec) {
    case FrameCodec::kNone:
      return;
    case FrameCodec::kFp32:
      if (!values.empty()) std::memcpy(out, values.data(), values.size() * sizeof(float));
      return;
    case FrameCodec::kBf16:
      return EncodeBf16(values, out);
    case FrameCodec::kInt8:
      return EncodeInt8(values, out);
    case FrameCodec::kTopK:
      return EncodeTopK(values, TopKCount(top_k, values.size()), out);
    case FrameCodec::kOneBit:
      return EncodeOneBit(values, out);
  }
}

Payload OwningPayload(std::vector<std::uint8_t> bytes) {
  auto owner = std::make_shared<const std::vector<std::uint8_t>>(std::move(bytes));
  return Payload({absl::MakeConstSpan(*owner)}, owner);
}

}  // namespace downpour::core
