#ifndef DOWNPOUR_TRAINER_CORE_CODEC_TESTING_CODEC_INPUTS_H_
#define DOWNPOUR_TRAINER_CORE_CODEC_TESTING_CODEC_INPUTS_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "trainer/core/codec/codec.h"
#include "trainer/core/frame.h"

// What tests of the codecs encode, and how they take it apart.
namespace downpour::core::testing {

using Bytes = std::vector<std::uint8_t>;

// Around a block and a vector, and none.
inline const std::size_t kSizes[] = {0, 1, 2, 7, 8, 9, 255, 256, 257, 511, 512, 1000, 4096, 5001};

// Of all magnitudes, with zeros of both signs; or of a narrow range, as most gradients are.
inline std::vector<float> RandomValues(std::mt19937_64& random, std::size_t count) {
  std::normal_distribution<float> normal(0, 1e-3f);
  const bool narrow = random() % 2 == 0;
  std::vector<float> values(count);
  for (float& value : values) {
    value = narrow ? normal(random) : std::ldexp(normal(random), static_cast<int>(random() % 240) - 120);
    if (random() % 20 == 0) value = random() % 2 == 0 ? 0.0f : -0.0f;
  }
  return values;
}

// Each of these is the value of a whole input, in turn.
inline const float kEdges[] = {0.0f,
                               -0.0f,
                               std::numeric_limits<float>::denorm_min(),
                               -std::numeric_limits<float>::min(),
                               std::numeric_limits<float>::min() * 200,
                               1.0f,
                               std::numeric_limits<float>::max(),
                               std::numeric_limits<float>::lowest()};
inline const float kNotFinite[] = {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                                   std::numeric_limits<float>::quiet_NaN()};

inline Bytes EncodeAll(FrameCodec codec, const std::vector<float>& values, double top_k = 0.01) {
  Bytes bytes(EncodedBytes(codec, top_k, values.size()));
  Encode(codec, top_k, values, bytes.data());
  return bytes;
}

// As it may come from the network: cut anywhere, each piece at an odd address.
inline Payload CutAnywhere(const Bytes& bytes, std::mt19937_64& random) {
  std::vector<absl::Span<const std::uint8_t>> segments;
  auto pieces = std::make_shared<std::vector<Bytes>>();
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t size = std::min<std::size_t>(bytes.size() - at, random() % 600);
    Bytes& piece = pieces->emplace_back(1, 0);
    piece.insert(piece.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at),
                 bytes.begin() + static_cast<std::ptrdiff_t>(at + size));
    at += size;
  }
  for (const Bytes& piece : *pieces) segments.push_back(absl::MakeConstSpan(piece).subspan(1));
  return Payload(std::move(segments), pieces);
}

struct Decoded {
  bool sound = false;
  std::vector<float> values;
};
inline Decoded DecodeAll(FrameCodec codec, const Payload& payload, std::size_t count) {
  Decoded decoded{false, std::vector<float>(count, 12345.0f)};
  decoded.sound = Decode(codec, payload, absl::MakeSpan(decoded.values));
  return decoded;
}
inline Decoded DecodeAll(FrameCodec codec, const Bytes& bytes, std::size_t count) {
  return DecodeAll(codec, Payload({absl::MakeConstSpan(bytes)}, nullptr), count);
}

}  // namespace downpour::core::testing

#endif  // DOWNPOUR_TRAINER_CORE_CODEC_TESTING_CODEC_INPUTS_H_
