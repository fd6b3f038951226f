#include "trainer/core/codec/error_feedback.h"

#include <cmath>
#include <random>

#include "gtest/gtest.h"
#include "trainer/core/codec/codec.h"
#include "trainer/core/codec/testing/codec_inputs.h"

namespace downpour::core {
namespace {

constexpr std::uint32_t kElements = 5001;
constexpr FrameCodec kLossy[] = {FrameCodec::kBf16, FrameCodec::kInt8, FrameCodec::kTopK, FrameCodec::kOneBit};

Payload Floats(std::vector<float> values) {
  auto owner = std::make_shared<const std::vector<float>>(std::move(values));
  return Payload::OfFloats(*owner, owner);
}

std::vector<float> DecodedOf(const EncodedGradient& gradient, std::size_t elements = kElements) {
  const auto decoded = testing::DecodeAll(gradient.codec, gradient.payload, elements);
  EXPECT_TRUE(decoded.sound);
  return decoded.values;
}

std::vector<std::uint8_t> BytesOf(const EncodedGradient& gradient) {
  std::vector<std::uint8_t> bytes;
  for (const auto& segment : gradient.payload.segments()) bytes.insert(bytes.end(), segment.begin(), segment.end());
  return bytes;
}

std::vector<float> Normal(std::mt19937_64& random, std::size_t count = kElements) {
  std::normal_distribution<float> normal(1e-4f, 1e-3f);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

void AddTo(std::vector<double>& sum, const std::vector<float>& values) {
  for (std::size_t i = 0; i < values.size(); ++i) sum[i] += values[i];
}

// What was decoded and what is flushed at the end are all that the gradients were.
TEST(ErrorFeedbackTest, LosesNothingOverAThousandSteps) {
  for (const FrameCodec codec : kLossy) {
    SCOPED_TRACE(static_cast<int>(codec));
    std::mt19937_64 random(7);
    ErrorFeedback feedback({codec, 0.01});
    std::vector<double> gradients(kElements), applied(kElements);
    double magnitude = 0;
    for (int step = 0; step < 1000; ++step) {
      const std::vector<float> gradient = Normal(random);
      AddTo(gradients, gradient);
      for (const float value : gradient) magnitude += std::abs(value);
      const bool flush = step == 999;
      const EncodedGradient encoded = feedback.Encode(3, kElements, Floats(gradient), flush);
      EXPECT_EQ(encoded.codec, flush ? FrameCodec::kFp32 : codec);
      AddTo(applied, DecodedOf(encoded));
      feedback.Keep(3);
      EXPECT_EQ(feedback.HasResidual(), !flush);
    }
    // Relative to what one element took in altogether.
    for (std::size_t i = 0; i < kElements; ++i) {
      ASSERT_NEAR(applied[i], gradients[i], 1e-5 * magnitude / kElements) << "element " << i;
    }
  }
}

TEST(ErrorFeedbackTest, TheSameBytesUntilTheUpdateHasEnded) {
  for (const FrameCodec codec : kLossy) {
    std::mt19937_64 random(1);
    ErrorFeedback feedback({codec, 0.01});
    const Payload gradient = Floats(Normal(random));
    const std::vector<std::uint8_t> first = BytesOf(feedback.Encode(0, kElements, gradient, false));
    EXPECT_EQ(BytesOf(feedback.Encode(0, kElements, gradient, false)), first);
    EXPECT_EQ(BytesOf(feedback.Encode(0, kElements, gradient, /*flush=*/true)), first) << "it may be applied already";
    feedback.Keep(0);
    feedback.Keep(0);
    EXPECT_NE(BytesOf(feedback.Encode(0, kElements, gradient, false)), first) << "the residual is in it";
  }
}

TEST(ErrorFeedbackTest, AStepThatWasNotTakenLeavesTheResidualAsItWas) {
  for (const FrameCodec codec : kLossy) {
    std::mt19937_64 random(2);
    ErrorFeedback feedback({codec, 0.01});
    ErrorFeedback undisturbed({codec, 0.01});
    for (int step = 0; step < 20; ++step) {
      if (step % 3 == 1) {
        feedback.Encode(0, kElements, Floats(Normal(random)), step % 2 == 0);
        feedback.Undo(0);
      }
      const std::vector<float> gradient = Normal(random);
      const auto encoded = feedback.Encode(0, kElements, Floats(gradient), false);
      ASSERT_EQ(BytesOf(encoded), BytesOf(undisturbed.Encode(0, kElements, Floats(gradient), false)));
      feedback.Keep(0);
      undisturbed.Keep(0);
    }
  }
}

TEST(ErrorFeedbackTest, WhatNobodyKnowsIsGone) {
  std::mt19937_64 random(3);
  ErrorFeedback feedback({FrameCodec::kTopK, 0.01});
  feedback.Encode(0, kElements, Floats(Normal(random)), false);
  feedback.Keep(0);
  EXPECT_TRUE(feedback.HasResidual());
  feedback.Encode(0, kElements, Floats(Normal(random)), false);
  feedback.Forget(0);
  EXPECT_FALSE(feedback.HasResidual());
  const std::vector<float> gradient = Normal(random);
  EXPECT_EQ(DecodedOf(feedback.Encode(0, kElements, Floats(gradient), true)), gradient);
}

// No codec makes them smaller.
TEST(ErrorFeedbackTest, FewValuesAndMostOfThemGoAsTheyAre) {
  std::mt19937_64 random(4);
  ErrorFeedback small({FrameCodec::kInt8, 0.01});
  const std::vector<float> one = {0.3f};
  const EncodedGradient encoded = small.Encode(0, 1, Floats(one), false);
  EXPECT_EQ(encoded.codec, FrameCodec::kFp32);
  EXPECT_EQ(DecodedOf(encoded, 1), one);
  small.Keep(0);
  EXPECT_FALSE(small.HasResidual());
  ErrorFeedback most({FrameCodec::kTopK, 0.5});
  EXPECT_EQ(most.Encode(0, kElements, Floats(Normal(random)), false).codec, FrameCodec::kFp32);
  ErrorFeedback none({FrameCodec::kFp32, 0.01});
  const Payload gradient = Floats(one);
  EXPECT_EQ(none.Encode(0, 1, gradient, false).payload.segments()[0].data(), gradient.segments()[0].data());
  none.Keep(0);
  EXPECT_FALSE(none.HasResidual());
}

}  // namespace
}  // namespace downpour::core
