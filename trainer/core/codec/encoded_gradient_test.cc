#include "trainer/core/codec/encoded_gradient.h"

#include <bit>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "trainer/core/codec/codec.h"
#include "trainer/core/codec/testing/codec_inputs.h"

namespace downpour::core {
namespace {

std::vector<std::uint32_t> Bits(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

// Sizes of several parts, of a part and of less, cut anywhere.
TEST(EncodedGradientTest, ItsFloatsAreWhatTheWholeDecodesTo) {
  std::vector<std::size_t> sizes(std::begin(testing::kSizes), std::end(testing::kSizes));
  for (const std::size_t size : {4097, 8192, 30001}) sizes.push_back(size);
  std::mt19937_64 random(1);
  for (const std::size_t size : sizes) {
    SCOPED_TRACE(size);
    for (const FrameCodec codec :
         {FrameCodec::kFp32, FrameCodec::kBf16, FrameCodec::kInt8, FrameCodec::kTopK, FrameCodec::kOneBit}) {
      SCOPED_TRACE(static_cast<int>(codec));
      const testing::Bytes bytes = testing::EncodeAll(codec, testing::RandomValues(random, size));
      const Payload payload = testing::CutAnywhere(bytes, random);
      ASSERT_TRUE(IsSound(codec, payload, size));
      std::vector<float> values;
      EncodedGradient(codec, payload).ForEachFloats(size, [&](std::size_t first, absl::Span<const float> run) {
        ASSERT_EQ(first, values.size());
        values.insert(values.end(), run.begin(), run.end());
      });
      EXPECT_EQ(Bits(values), Bits(testing::DecodeAll(codec, bytes, size).values));
    }
  }
}

}  // namespace
}  // namespace downpour::core
