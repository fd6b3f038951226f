#include "trainer/core/codec/one_bit.h"

#include <cmath>
#include <cstring>

#include "gtest/gtest.h"
#include "trainer/core/codec/testing/codec_inputs.h"

namespace downpour::core {
namespace {

using testing::Bytes;
using testing::DecodeAll;
using testing::EncodeAll;

TEST(OneBitTest, ABlockIsTwoMeansAndABitForEachValue) {
  const std::vector<float> values = {1, -2, 3, -4, 0, -0.0f, -6, 4, 2};
  // -4 is the mean of the negative ones; 10 / 6 that of the others.
  const float mean = 10.0f / 6;
  Bytes expected = {0, 0, 0x80, 0xc0, 0, 0, 0, 0, 0b10110101, 0b1};
  std::memcpy(expected.data() + 4, &mean, sizeof(mean));
  const Bytes bytes = EncodeAll(FrameCodec::kOneBit, values);
  EXPECT_EQ(bytes, expected);
  const auto decoded = DecodeAll(FrameCodec::kOneBit, bytes, values.size());
  ASSERT_TRUE(decoded.sound);
  EXPECT_EQ(decoded.values, (std::vector<float>{mean, -4, mean, -4, mean, mean, -4, mean, mean}));
}

TEST(OneBitTest, KeepsTheSumOfEachBlock) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    for (const std::size_t size : testing::kSizes) {
      const std::vector<float> values = testing::RandomValues(random, size);
      const Bytes bytes = EncodeAll(FrameCodec::kOneBit, values);
      EXPECT_EQ(bytes.size(), (size + 7) / 8 + (size + 255) / 256 * 8);
      const auto decoded = DecodeAll(FrameCodec::kOneBit, testing::CutAnywhere(bytes, random), size);
      ASSERT_TRUE(decoded.sound);
      for (std::size_t first = 0; first < size; first += kOneBitBlock) {
        double sum = 0, magnitudes = 0, found = 0;
        for (std::size_t i = first; i < std::min(size, first + kOneBitBlock); ++i) {
          sum += values[i];
          magnitudes += std::abs(values[i]);
          found += decoded.values[i];
          const bool same_side = decoded.values[i] == 0 || (decoded.values[i] > 0) == (values[i] > 0);
          ASSERT_TRUE(values[i] == 0 || same_side) << values[i];
        }
        EXPECT_NEAR(found, sum, magnitudes * 1e-6 + 1e-42);
      }
    }
  }
}

TEST(OneBitTest, EdgesOfTheRange) {
  for (const std::size_t size : {1, 256, 300}) {
    for (const float value : testing::kEdges) {
      const auto decoded =
          DecodeAll(FrameCodec::kOneBit, EncodeAll(FrameCodec::kOneBit, std::vector<float>(size, value)), size);
      ASSERT_TRUE(decoded.sound) << value;
      for (const float found : decoded.values) EXPECT_EQ(found, value);
    }
    for (const float value : testing::kNotFinite) {
      std::vector<float> values(size, 1.0f);
      values.back() = value;
      const auto decoded = DecodeAll(FrameCodec::kOneBit, EncodeAll(FrameCodec::kOneBit, values), size);
      EXPECT_TRUE(decoded.sound);
      for (const float found : decoded.values) EXPECT_TRUE(std::isfinite(found));
    }
  }
}

TEST(OneBitTest, WhatNoEncoderMakesIsRefused) {
  std::mt19937_64 random(1);
  const std::size_t size = 256 + 13;
  const Bytes good = EncodeAll(FrameCodec::kOneBit, testing::RandomValues(random, size));
  ASSERT_TRUE(DecodeAll(FrameCodec::kOneBit, good, size).sound);
  for (const std::size_t mean_at : {0, 4, 40, 44}) {
    for (const float mean : testing::kNotFinite) {
      Bytes bytes = good;
      std::memcpy(bytes.data() + mean_at, &mean, sizeof(mean));
      EXPECT_FALSE(DecodeAll(FrameCodec::kOneBit, bytes, size).sound);
    }
  }
  Bytes bytes = good;
  bytes.back() |= 0x20;  // behind the 13th value of the block
  EXPECT_FALSE(DecodeAll(FrameCodec::kOneBit, bytes, size).sound);
}

}  // namespace
}  // namespace downpour::core
