#include "trainer/core/codec/codec.h"

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "trainer/core/codec/bf16.h"
#include "trainer/core/codec/int8.h"
#include "trainer/core/codec/testing/codec_inputs.h"

namespace downpour::core {
namespace {

using testing::Bytes;
using testing::DecodeAll;
using testing::EncodeAll;

constexpr FrameCodec kAll[] = {FrameCodec::kFp32, FrameCodec::kBf16, FrameCodec::kInt8, FrameCodec::kTopK,
                               FrameCodec::kOneBit};

TEST(CodecTest, OnlyTheRightNumberOfBytesIsDecoded) {
  std::mt19937_64 random(1);
  for (const FrameCodec codec : kAll) {
    for (const std::size_t size : testing::kSizes) {
      Bytes bytes = EncodeAll(codec, testing::RandomValues(random, size));
      EXPECT_TRUE(PayloadFits(codec, bytes.size(), size));
      EXPECT_TRUE(DecodeAll(codec, bytes, size).sound);
      if (!bytes.empty()) {
        Bytes shorter(bytes.begin(), bytes.end() - 1);
        EXPECT_FALSE(DecodeAll(codec, shorter, size).sound);
        EXPECT_FALSE(DecodeAll(codec, Bytes(), size).sound);
      }
      bytes.push_back(0);
      EXPECT_FALSE(DecodeAll(codec, bytes, size).sound);
    }
    EXPECT_FALSE(PayloadFits(codec, 4, std::uint64_t{1} << 30)) << "not modulo 2^32";
  }
  EXPECT_FALSE(PayloadFits(FrameCodec::kNone, 0, 0));
  EXPECT_FALSE(DecodeAll(FrameCodec::kNone, Bytes(4), 1).sound);
}

TEST(CodecTest, PartsOfWholeBlocksAreTheWhole) {
  std::mt19937_64 random(2);
  for (const FrameCodec codec : {FrameCodec::kFp32, FrameCodec::kBf16, FrameCodec::kInt8, FrameCodec::kOneBit}) {
    const std::vector<float> values = testing::RandomValues(random, 5001);
    Bytes bytes;
    for (std::size_t first = 0; first < values.size(); first += 2 * kCodecBlock) {
      const std::size_t end = std::min(values.size(), first + 2 * kCodecBlock);
      const Bytes part = EncodeAll(codec, {values.begin() + static_cast<std::ptrdiff_t>(first),
                                           values.begin() + static_cast<std::ptrdiff_t>(end)});
      bytes.insert(bytes.end(), part.begin(), part.end());
    }
    EXPECT_EQ(bytes, EncodeAll(codec, values));
  }
}

// Whatever the bytes are: no crash, and of what is sound every value was written.
TEST(CodecTest, AnyBytesCanBeDecoded) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    std::mt19937_64 random(seed);
    const FrameCodec codec = kAll[random() % 5];
    const std::size_t size = testing::kSizes[random() % std::size(testing::kSizes)];
    Bytes bytes(EncodedBytes(codec, 0.2, size));
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random() % 4 == 0 ? random() : 0);
    const auto decoded = DecodeAll(codec, testing::CutAnywhere(bytes, random), size);
    if (!decoded.sound) continue;
    for (const float value : decoded.values) ASSERT_NE(value, 12345.0f) << "seed " << seed;
  }
}

TEST(CodecTest, WhatIsLeftIsTheValueLessWhatItDecodesTo) {
  std::mt19937_64 random(1);
  for (const std::size_t size : testing::kSizes) {
    const std::vector<float> values = testing::RandomValues(random, size);
    for (const FrameCodec codec : {FrameCodec::kBf16, FrameCodec::kInt8}) {
      const testing::Bytes expected = testing::EncodeAll(codec, values);
      const auto decoded = testing::DecodeAll(codec, testing::CutAnywhere(expected, random), size);
      std::vector<float> rest = values;
      testing::Bytes bytes(expected.size());
      (codec == FrameCodec::kBf16 ? EncodeBf16LeavingRest : EncodeInt8LeavingRest)(absl::MakeSpan(rest), bytes.data());
      EXPECT_EQ(bytes, expected);
      for (std::size_t i = 0; i < size; ++i) {
        if (!std::isfinite(values[i])) continue;
        EXPECT_EQ(rest[i], values[i] - decoded.values[i]) << values[i];
      }
    }
  }
}

}  // namespace
}  // namespace downpour::core
