#include "trainer/core/codec/int8.h"

#include <cmath>
#include <cstring>

#include "gtest/gtest.h"
#include "trainer/core/codec/testing/codec_inputs.h"

namespace downpour::core {
namespace {

using testing::Bytes;
using testing::DecodeAll;
using testing::EncodeAll;

TEST(Int8Test, ABlockIsAScaleAndIntegersRoundedToEven) {
  // The largest magnitude is 127, so the scale is 1.
  const std::vector<float> values = {0.5f, 1.5f, -2.5f, 127.0f, -126.6f, -0.0f};
  EXPECT_EQ(EncodeAll(FrameCodec::kInt8, values), (Bytes{0, 0, 0x80, 0x3f, 0, 2, 0xfe, 127, 0x81, 0}));
}

TEST(Int8Test, EveryValueIsOffByHalfAScaleAtMost) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    for (const std::size_t size : testing::kSizes) {
      const std::vector<float> values = testing::RandomValues(random, size);
      const Bytes bytes = EncodeAll(FrameCodec::kInt8, values);
      EXPECT_EQ(bytes.size(), size + (size + 255) / 256 * 4);
      const auto decoded = DecodeAll(FrameCodec::kInt8, testing::CutAnywhere(bytes, random), size);
      ASSERT_TRUE(decoded.sound);
      for (std::size_t first = 0; first < size; first += kInt8Block) {
        const std::size_t end = std::min(size, first + kInt8Block);
        double largest = 0;
        for (std::size_t i = first; i < end; ++i) largest = std::max(largest, std::abs(double{values[i]}));
        const double most = std::max(largest / 127 / 2 * 1.0001, double{std::numeric_limits<float>::min()} * 127);
        for (std::size_t i = first; i < end; ++i) ASSERT_LE(std::abs(double{values[i]} - decoded.values[i]), most);
      }
    }
  }
}

TEST(Int8Test, EdgesOfTheRange) {
  for (const std::size_t size : {1, 256, 300}) {
    for (const float value : testing::kEdges) {
      const auto decoded =
          DecodeAll(FrameCodec::kInt8, EncodeAll(FrameCodec::kInt8, std::vector<float>(size, value)), size);
      ASSERT_TRUE(decoded.sound) << value;
      const bool tiny = std::abs(value) / 127 < std::numeric_limits<float>::min();
      for (const float found : decoded.values) {
        ASSERT_TRUE(std::isfinite(found)) << value;
        EXPECT_NEAR(double{found}, tiny ? 0 : value, std::abs(double{value}) / 100);
      }
    }
    // Skipped by the worker in any case; here they must do no harm.
    for (const float value : testing::kNotFinite) {
      std::vector<float> values(size, 1.0f);
      values.back() = value;
      const auto decoded = DecodeAll(FrameCodec::kInt8, EncodeAll(FrameCodec::kInt8, values), size);
      EXPECT_TRUE(decoded.sound);
      for (const float found : decoded.values) EXPECT_TRUE(std::isfinite(found));
    }
  }
}

TEST(Int8Test, ScalesThatNoEncoderMakesAreRefused) {
  std::mt19937_64 random(1);
  const Bytes good = EncodeAll(FrameCodec::kInt8, testing::RandomValues(random, 600));
  for (const std::size_t block : {0, 1, 2}) {
    for (const float scale : {-1.0f, std::numeric_limits<float>::max() / 127, testing::kNotFinite[0],
                              testing::kNotFinite[1], testing::kNotFinite[2]}) {
      Bytes bytes = good;
      std::memcpy(bytes.data() + block * 260, &scale, sizeof(scale));
      EXPECT_FALSE(DecodeAll(FrameCodec::kInt8, bytes, 600).sound) << scale;
    }
  }
  // Whatever the integers are, the values are finite.
  Bytes largest(260, 0x80);
  const float scale = std::numeric_limits<float>::max() / 128;
  std::memcpy(largest.data(), &scale, sizeof(scale));
  const auto decoded = DecodeAll(FrameCodec::kInt8, largest, 256);
  ASSERT_TRUE(decoded.sound);
  EXPECT_EQ(decoded.values[255], std::numeric_limits<float>::lowest());
}

}  // namespace
}  // namespace downpour::core
