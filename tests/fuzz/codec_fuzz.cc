// Payloads of every codec: no bytes crash a decoder or leave a value unwritten, and cuts in the payload change nothing.
#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "tests/fuzz/fuzz_target.h"
#include "trainer/core/codec/codec.h"

namespace {

using downpour::fuzz::Require;
namespace core = downpour::core;
using Span = absl::Span<const std::uint8_t>;

constexpr float kUnwritten = 12345.0f;

}  // namespace

// The codec, the number of elements in two bytes, the payload.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  const auto codec = static_cast<core::FrameCodec>(data[0] % 6);
  const std::size_t elements = data[1] | data[2] << 8;
  const Span bytes(data + 3, size - 3);

  std::vector<float> whole(elements, kUnwritten);
  const bool sound = core::Decode(codec, core::Payload({bytes}, nullptr), absl::MakeSpan(whole));
  if (sound) Require(core::PayloadFits(codec, bytes.size(), elements), "what is decoded fits");

  std::vector<Span> segments;
  std::uint32_t step = data[0];
  for (Span rest = bytes; !rest.empty();) {
    step = step * 1664525 + 1013904223;
    const auto run = rest.first(std::min<std::size_t>(rest.size(), (step >> 16) % 97));
    segments.push_back(run);
    rest.remove_prefix(run.size());
  }
  std::vector<float> cut(elements, kUnwritten);
  Require(core::Decode(codec, core::Payload(segments, nullptr), absl::MakeSpan(cut)) == sound, "cuts change no answer");
  if (!sound) return 0;
  for (std::size_t i = 0; i < elements; ++i) {
    Require(std::bit_cast<std::uint32_t>(whole[i]) == std::bit_cast<std::uint32_t>(cut[i]), "cuts change no value");
    if (codec == core::FrameCodec::kInt8 || codec == core::FrameCodec::kOneBit) {
      Require(std::isfinite(whole[i]), "these are finite");
    }
  }
  // Whatever the values are, what is made of them is sound.
  for (int again = 1; again < 6; ++again) {
    const auto other = static_cast<core::FrameCodec>(again);
    std::vector<std::uint8_t> encoded(core::EncodedBytes(other, 0.1, elements));
    core::Encode(other, 0.1, whole, encoded.data());
    Require(core::Decode(other, core::Payload({absl::MakeConstSpan(encoded)}, nullptr), absl::MakeSpan(cut)),
            "what is encoded is decoded");
  }
  return 0;
}
