#include "trainer/collective/wire_values.h"

#include <algorithm>

#include "trainer/core/codec/bf16.h"

namespace downpour::collective {
namespace {

absl::Span<const std::uint8_t> Halves(const char* bytes, std::size_t first, std::size_t count) {
  return {reinterpret_cast<const std::uint8_t*>(bytes) + core::Bf16Bytes(first), core::Bf16Bytes(count)};
}

}  // namespace

WireValues::WireValues(const Operation& operation, WireMemory* memory)
    : travels_(operation.travels), values_(operation.values), memory_(memory) {
  if (travels_ == Precision::kFloat32) {
    bytes_ = reinterpret_cast<char*>(values_.data());
    return;
  }
  memory->values.resize(std::max(memory->values.size(), core::Bf16Bytes(values_.size())));
  bytes_ = reinterpret_cast<char*>(memory->values.data());
}

void WireValues::Encode(std::size_t begin, std::size_t end) {
  if (travels_ == Precision::kFloat32) return;
  core::EncodeBf16(values_.subspan(begin, end - begin),
                   reinterpret_cast<std::uint8_t*>(bytes_) + core::Bf16Bytes(begin));
  Received(begin, end);
}

void WireValues::Received(std::size_t begin, std::size_t end) {
  if (travels_ == Precision::kFloat32) return;
  core::DecodeBf16(Halves(bytes_, begin, end - begin), values_.subspan(begin, end - begin));
}

void WireValues::Add(std::size_t begin, std::size_t count, const char* bytes) {
  float* const sum = values_.data() + begin;
  if (travels_ == Precision::kFloat32) {
    const auto* const there = reinterpret_cast<const float*>(bytes);
    for (std::size_t i = 0; i < count; ++i) sum[i] += there[i];
    return;
  }
  std::vector<float>& decoded = memory_->decoded;
  decoded.resize(std::max(decoded.size(), count));
  core::DecodeBf16(Halves(bytes, 0, count), absl::MakeSpan(decoded).subspan(0, count));
  for (std::size_t i = 0; i < count; ++i) sum[i] += decoded[i];
  Encode(begin, begin + count);
}

}  // namespace downpour::collective
