#include "trainer/core/codec/bf16.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "gtest/gtest.h"
#include "trainer/core/codec/testing/codec_inputs.h"

namespace downpour::core {
namespace {

using testing::Bytes;
using testing::DecodeAll;
using testing::EncodeAll;

std::uint16_t Half(float value) {
  std::uint8_t bytes[2];
  EncodeBf16({&value, 1}, bytes);
  return static_cast<std::uint16_t>(bytes[0] | bytes[1] << 8);
}

TEST(Bf16Test, RoundsToNearestAndTiesToEven) {
  EXPECT_EQ(Half(1.0f), 0x3f80);
  EXPECT_EQ(Half(-2.0f), 0xc000);
  EXPECT_EQ(Half(std::bit_cast<float>(0x3f808000u)), 0x3f80) << "half way, the lower one is even";
  EXPECT_EQ(Half(std::bit_cast<float>(0x3f818000u)), 0x3f82) << "half way, the upper one is even";
  EXPECT_EQ(Half(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(Half(std::bit_cast<float>(0x3f817fffu)), 0x3f81);
  EXPECT_EQ(Half(std::bit_cast<float>(0x3fffffffu)), 0x4000) << "into the next exponent";
  EXPECT_EQ(Half(0.0f), 0x0000);
  EXPECT_EQ(Half(-0.0f), 0x8000);
  EXPECT_EQ(Half(std::numeric_limits<float>::denorm_min()), 0x0000);
  EXPECT_EQ(Half(std::bit_cast<float>(0x007fffffu)), 0x0080) << "the largest denormal becomes normal";
}

TEST(Bf16Test, FiniteStaysFiniteAndTheOthersStayWhatTheyAre) {
  EXPECT_EQ(Half(std::numeric_limits<float>::max()), 0x7f7f);
  EXPECT_EQ(Half(std::numeric_limits<float>::lowest()), 0xff7f);
  EXPECT_EQ(Half(std::numeric_limits<float>::infinity()), 0x7f80);
  EXPECT_EQ(Half(-std::numeric_limits<float>::infinity()), 0xff80);
  for (const std::uint32_t nan : {0x7f800001u, 0x7fc00000u, 0xffffffffu}) {
    const std::uint16_t half = Half(std::bit_cast<float>(nan));
    EXPECT_TRUE(std::isnan(std::bit_cast<float>(std::uint32_t{half} << 16))) << nan;
  }
}

TEST(Bf16Test, EveryValueIsTheNearestOfItsKind) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    for (const std::size_t size : testing::kSizes) {
      const std::vector<float> values = testing::RandomValues(random, size);
      const Bytes bytes = EncodeAll(FrameCodec::kBf16, values);
      EXPECT_EQ(bytes.size(), 2 * size);
      const auto decoded = DecodeAll(FrameCodec::kBf16, testing::CutAnywhere(bytes, random), size);
      ASSERT_TRUE(decoded.sound);
      EXPECT_EQ(EncodeAll(FrameCodec::kBf16, decoded.values), bytes) << "what is a bf16 stays it";
      for (std::size_t i = 0; i < size; ++i) {
        // Its neighbours are no nearer.
        const double error = std::abs(double{values[i]} - decoded.values[i]);
        for (const std::uint32_t step : {0x00010000u, 0xffff0000u}) {
          const auto other = std::bit_cast<float>(std::bit_cast<std::uint32_t>(decoded.values[i]) + step);
          if (!std::isfinite(other)) continue;
          ASSERT_LE(error, std::abs(double{values[i]} - other)) << values[i];
        }
      }
    }
  }
}

}  // namespace
}  // namespace downpour::core
