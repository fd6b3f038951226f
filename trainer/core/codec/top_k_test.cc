#include "trainer/core/codec/top_k.h"

#include <cmath>
#include <cstring>
#include <functional>

#include "gtest/gtest.h"
#include "trainer/core/codec/testing/codec_inputs.h"

namespace downpour::core {
namespace {

using testing::Bytes;
using testing::DecodeAll;
using testing::EncodeAll;

Bytes Pairs(const std::vector<std::pair<std::uint32_t, float>>& pairs) {
  Bytes bytes(8 * pairs.size());
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    std::memcpy(bytes.data() + 8 * i, &pairs[i].first, 4);
    std::memcpy(bytes.data() + 8 * i + 4, &pairs[i].second, 4);
  }
  return bytes;
}

TEST(TopKTest, CountsUpAndAtLeastOne) {
  EXPECT_EQ(TopKCount(0.01, 0), 0u);
  EXPECT_EQ(TopKCount(0.01, 1), 1u);
  EXPECT_EQ(TopKCount(1e-30, 1u << 20), 1u);
  EXPECT_EQ(TopKCount(0.01, 101), 2u);
  EXPECT_EQ(TopKCount(0.5, 9), 5u);
  EXPECT_EQ(TopKCount(1, 9), 9u);
}

TEST(TopKTest, PairsOfIndexAndValueByRisingIndexTheFirstOfEqualOnes) {
  const std::vector<float> values = {0, -3, 2, 1, -2, 2, 5, -0.0f};
  EXPECT_EQ(EncodeAll(FrameCodec::kTopK, values, 0.375), Pairs({{1, -3}, {2, 2}, {6, 5}}));
  EXPECT_EQ(EncodeAll(FrameCodec::kTopK, values, 0.5), Pairs({{1, -3}, {2, 2}, {4, -2}, {6, 5}}));
  EXPECT_EQ(EncodeAll(FrameCodec::kTopK, {0, 0, 0}, 0.5), Pairs({{0, 0}, {1, 0}}));
}

TEST(TopKTest, WhatIsKeptIsExactAndNoneOfTheOthersIsLarger) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    for (const std::size_t size : testing::kSizes) {
      std::vector<float> values = testing::RandomValues(random, size);
      if (seed % 3 == 0) {
        for (float& value : values) value = static_cast<float>(random() % 5);  // many are equal
      }
      const double fraction = seed % 2 == 0 ? 0.01 : 0.3;
      const Bytes bytes = EncodeAll(FrameCodec::kTopK, values, fraction);
      EXPECT_EQ(bytes.size(), 8 * TopKCount(fraction, size));
      const auto decoded = DecodeAll(FrameCodec::kTopK, testing::CutAnywhere(bytes, random), size);
      ASSERT_TRUE(decoded.sound);
      float least_kept = std::numeric_limits<float>::max();
      for (std::size_t at = 0; at < bytes.size(); at += 8) {
        std::uint32_t index;
        std::memcpy(&index, bytes.data() + at, sizeof(index));
        ASSERT_EQ(decoded.values[index], values[index]);
        least_kept = std::min(least_kept, std::abs(values[index]));
      }
      for (std::size_t i = 0; i < size; ++i) {
        if (decoded.values[i] != values[i]) {
          ASSERT_EQ(decoded.values[i], 0);
          ASSERT_LE(std::abs(values[i]), least_kept);
        }
      }
    }
  }
}

TEST(TopKTest, EdgesOfTheRange) {
  for (const float value : testing::kEdges) {
    const auto decoded = DecodeAll(FrameCodec::kTopK, EncodeAll(FrameCodec::kTopK, {0, value, 0}, 0.3), 3);
    ASSERT_TRUE(decoded.sound);
    EXPECT_EQ(decoded.values, (std::vector<float>{0, value, 0}));
  }
  for (const float value : testing::kNotFinite) {
    EXPECT_TRUE(DecodeAll(FrameCodec::kTopK, EncodeAll(FrameCodec::kTopK, {0, value, 1}, 0.3), 3).sound);
  }
}

TEST(TopKTest, IndicesMustRiseAndBeInRange) {
  const auto sound = [](const Bytes& bytes) { return DecodeAll(FrameCodec::kTopK, bytes, 4).sound; };
  EXPECT_TRUE(sound(Pairs({{0, 1}, {3, 1}})));
  EXPECT_FALSE(sound(Pairs({{0, 1}, {4, 1}})));
  EXPECT_FALSE(sound(Pairs({{0, 1}, {0xffffffff, 1}})));
  EXPECT_FALSE(sound(Pairs({{0, 1}, {0, 1}}))) << "twice";
  EXPECT_FALSE(sound(Pairs({{2, 1}, {1, 1}}))) << "falling";
  EXPECT_FALSE(sound(Pairs({{0, 1}, {1, 1}, {2, 1}, {3, 1}, {3, 1}}))) << "more than there are";
  EXPECT_FALSE(sound({})) << "none";
  EXPECT_FALSE(sound(Bytes(12))) << "half a pair";
}

}  // namespace
}  // namespace downpour::core
