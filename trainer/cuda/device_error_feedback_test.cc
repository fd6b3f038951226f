#include "trainer/cuda/device_error_feedback.h"

#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/core/codec/error_feedback.h"
#include "trainer/cuda/plugin.h"
#include "trainer/cuda/testing/counting_kernels.h"

namespace downpour::cuda {
namespace {

using core::EncodedGradient;
using core::FrameCodec;
using core::Payload;
using testing::CountingKernels;
using ::testing::HasSubstr;
using Slice = DeviceErrorFeedback::Slice;

constexpr FrameCodec kCodecs[] = {FrameCodec::kFp32, FrameCodec::kBf16, FrameCodec::kInt8, FrameCodec::kTopK,
                                  FrameCodec::kOneBit};
constexpr absl::Duration kLimit = absl::Seconds(30);

std::vector<std::uint8_t> BytesOf(const Payload& payload) {
  std::vector<std::uint8_t> bytes;
  for (const auto& segment : payload.segments()) bytes.insert(bytes.end(), segment.begin(), segment.end());
  return bytes;
}

std::vector<float> Normal(std::mt19937_64& random, std::size_t count) {
  std::normal_distribution<float> normal(1e-4f, 1e-3f);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

Payload Floats(const std::vector<float>& values) {
  auto owner = std::make_shared<const std::vector<float>>(values);
  return Payload::OfFloats(*owner, owner);
}

std::vector<Slice> SomeSlices(std::mt19937_64& random) {
  std::vector<Slice> slices(1 + random() % 5);
  // Around what a codec makes smaller, a block, and several of them.
  for (Slice& slice : slices) slice.elements = static_cast<std::uint32_t>(1 + random() % (random() % 3 == 0 ? 3 : 900));
  return slices;
}

// The same updates through both.
class Both {
 public:
  Both(const core::CodecOptions& options, std::shared_ptr<DeviceKernels> kernels)
      : host_(options), device_(options, std::move(kernels), kLimit) {}

  void Begin(const std::vector<Slice>& slices) {
    const absl::Status begun = device_.Begin(slices);
    ASSERT_TRUE(begun.ok()) << begun;
  }

  // Other slices, without a word to the device: it forgets those that are others by itself.
  void Change(const std::vector<Slice>& from, const std::vector<Slice>& to) {
    for (std::uint32_t number = 0; number < from.size(); ++number) {
      if (number >= to.size() || !(from[number] == to[number])) host_.Forget(number);
    }
  }

  // `ask`: how often the bytes are asked for.
  void Compute(std::uint32_t number, const std::vector<float>& gradient, bool flush, std::uint64_t ask) {
    const absl::Status started = device_.Start(number, gradient.data(), flush);
    ASSERT_TRUE(started.ok()) << started;
    const auto arrived = device_.Await(number);
    ASSERT_TRUE(arrived.ok()) << arrived.status();
    EXPECT_EQ(arrived->checks.not_finite, 0U);
    const auto elements = static_cast<std::uint32_t>(gradient.size());
    for (; ask > 0; --ask) {
      const EncodedGradient expected = host_.Encode(number, elements, Floats(gradient), flush);
      const EncodedGradient found = device_.Encode(number, elements, Payload(), flush);
      ASSERT_EQ(found.codec, expected.codec);
      ASSERT_EQ(BytesOf(found.payload), BytesOf(expected.payload));
      if (ask % 2 == 0) sent_.push_back({found.payload, BytesOf(found.payload)});
    }
  }

  template <typename Act>
  void OnBoth(Act act) {
    act(static_cast<core::GradientEncoder&>(host_));
    act(static_cast<core::GradientEncoder&>(device_));
    EXPECT_EQ(device_.HasResidual(), host_.HasResidual());
  }

  // What somebody still has is as it was.
  void ExpectSentAsItWas() {
    for (const auto& [payload, bytes] : sent_) ASSERT_EQ(BytesOf(payload), bytes);
    sent_.clear();
  }

 private:
  core::ErrorFeedback host_;
  DeviceErrorFeedback device_;
  std::vector<std::pair<Payload, std::vector<std::uint8_t>>> sent_;
};

void ExpectSameAsOnTheHost(FrameCodec codec, std::uint64_t seed, const std::shared_ptr<DeviceKernels>& kernels) {
  SCOPED_TRACE(absl::StrCat("codec ", static_cast<int>(codec), ", seed ", seed));
  std::mt19937_64 random(seed);
  Both both({codec, random() % 2 == 0 ? 0.01 : 0.3}, kernels);
  std::vector<Slice> slices = SomeSlices(random);
  for (int update = 0; update < 12; ++update) {
    if (random() % 8 == 0) {
      std::vector<Slice> others = SomeSlices(random);
      if (random() % 2 == 0) {
        both.OnBoth([](core::GradientEncoder& encoder) { encoder.Clear(); });
      } else {
        if (others.size() > 1) others[0] = slices[0];
        both.Change(slices, others);
      }
      slices = std::move(others);
    }
    ASSERT_NO_FATAL_FAILURE(both.Begin(slices));
    const bool flush = random() % 6 == 0;
    for (std::uint32_t number = 0; number < slices.size(); ++number) {
      const std::vector<float> gradient = Normal(random, slices[number].elements);
      ASSERT_NO_FATAL_FAILURE(both.Compute(number, gradient, flush, random() % 3));
    }
    for (std::uint32_t number = 0; number < slices.size(); ++number) {
      const std::uint64_t end = random() % 6;
      both.OnBoth([&](core::GradientEncoder& encoder) {
        end == 0 ? encoder.Undo(number) : end == 1 ? encoder.Forget(number) : encoder.Keep(number);
      });
    }
    if (random() % 2 != 0) continue;
    ASSERT_NO_FATAL_FAILURE(both.ExpectSentAsItWas());
  }
}

TEST(DeviceErrorFeedbackTest, HasTheBytesOfTheHostWhateverBecomesOfUpdates) {
  const std::shared_ptr<DeviceKernels> kernels = MakeHostKernels();
  for (const FrameCodec codec : kCodecs) {
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
      ASSERT_NO_FATAL_FAILURE(ExpectSameAsOnTheHost(codec, seed, kernels));
    }
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(DeviceErrorFeedbackTest, HasThemWithTheKernelsOfAGpuToo) {
  const auto table = LoadPlugin(absl::StrCat(DOWNPOUR_TEST_CUDA_PLUGINS, "/emulated.so"));
  ASSERT_TRUE(table.ok()) << table.status();
  auto kernels = MakePluginKernels(**table, 0);
  ASSERT_TRUE(kernels.ok()) << kernels.status();
  const std::shared_ptr<DeviceKernels> shared = *std::move(kernels);
  for (const FrameCodec codec : kCodecs) {
    for (std::uint64_t seed = 0; seed < 3; ++seed) ASSERT_NO_FATAL_FAILURE(ExpectSameAsOnTheHost(codec, seed, shared));
  }
}
#endif

TEST(DeviceErrorFeedbackTest, SaysWhatTheKernelsFound) {
  DeviceErrorFeedback feedback({FrameCodec::kInt8, 0.01}, MakeHostKernels(), kLimit);
  ASSERT_TRUE(feedback.Begin({{600, false}, {2, true}}).ok());
  std::vector<float> gradient(600, 2.0f);
  ASSERT_TRUE(feedback.Start(0, gradient.data(), false).ok());
  EXPECT_EQ(feedback.Await(0)->checks.sum_of_squares, 2400);
  gradient[599] = std::numeric_limits<float>::infinity();
  gradient[3] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_TRUE(feedback.Start(0, gradient.data(), false).ok());
  EXPECT_EQ(feedback.Await(0)->checks.not_finite, 2U);
}

// A value of a buffer, which no codec may touch.
TEST(DeviceErrorFeedbackTest, APlainSliceTravelsAsItIs) {
  for (const FrameCodec codec : kCodecs) {
    std::mt19937_64 random(1);
    DeviceErrorFeedback feedback({codec, 0.01}, MakeHostKernels(), kLimit);
    for (int update = 0; update < 3; ++update) {
      ASSERT_TRUE(feedback.Begin({{5000, true}}).ok());
      std::vector<Payload> kept;
      for (int minibatch = 0; minibatch < 3; ++minibatch) {
        const std::vector<float> difference = Normal(random, 5000);
        ASSERT_TRUE(feedback.Start(0, difference.data(), false).ok());
        const auto arrived = feedback.Await(0);
        ASSERT_TRUE(arrived.ok());
        EXPECT_EQ(BytesOf(arrived->payload), BytesOf(Floats(difference)));
        kept.push_back(arrived->payload);
        if (minibatch == 1) {
          EXPECT_NE(BytesOf(kept[0]), BytesOf(kept[1]));
        }
      }
      feedback.Encode(0, 5000, Payload(), false);
      feedback.Keep(0);
      EXPECT_FALSE(feedback.HasResidual());
    }
  }
}

TEST(DeviceErrorFeedbackTest, WhatNobodyAskedForOrHasNotArrivedIsNothing) {
  std::mt19937_64 random(1);
  DeviceErrorFeedback feedback({FrameCodec::kOneBit, 0.01}, MakeHostKernels(), kLimit);
  const std::vector<Slice> slices = {{1000, false}};
  ASSERT_TRUE(feedback.Begin(slices).ok());
  EXPECT_FALSE(feedback.Await(0).ok());
  EXPECT_FALSE(feedback.Start(1, nullptr, false).ok());
  const std::vector<float> gradient = Normal(random, 1000);
  ASSERT_TRUE(feedback.Start(0, gradient.data(), false).ok());
  EXPECT_EQ(feedback.Encode(0, 1000, Payload(), false).payload.size(), 0U);
  ASSERT_TRUE(feedback.Await(0).ok());
  feedback.Keep(0);
  EXPECT_FALSE(feedback.HasResidual()) << "nobody has sent it";
  ASSERT_TRUE(feedback.Begin(slices).ok());
  EXPECT_EQ(feedback.Encode(0, 1000, Payload(), false).payload.size(), 0U);
  EXPECT_EQ(feedback.Encode(7, 1000, Payload(), false).payload.size(), 0U);
}

TEST(DeviceErrorFeedbackTest, ReusesMemoryThatNobodyReadsAndNoOther) {
  CountingKernels::Counts counts;
  const std::vector<float> gradient(3000, 1.0f);
  std::vector<Payload> kept;
  {
    DeviceErrorFeedback feedback({FrameCodec::kBf16, 0.01}, std::make_shared<CountingKernels>(&counts), kLimit);
    int held = 0;
    for (int update = 0; update < 10; ++update) {
      ASSERT_TRUE(feedback.Begin({{3000, false}}).ok());
      ASSERT_TRUE(feedback.Start(0, gradient.data(), false).ok());
      ASSERT_TRUE(feedback.Await(0).ok());
      const EncodedGradient sent = feedback.Encode(0, 3000, Payload(), false);
      if (update == 3) kept.push_back(sent.payload);
      feedback.Keep(0);
      if (update == 0) held = counts.held;
      EXPECT_EQ(counts.held, held + (update > 3 ? 1 : 0));
    }
  }
  EXPECT_EQ(counts.held, 1) << "the payload outlives the encoder";
  kept.clear();
  EXPECT_EQ(counts.held, 0);
}

// Each call of a life fails once; returns how many there are.
absl::Status Live(CountingKernels::Counts* counts) {
  DeviceErrorFeedback feedback({FrameCodec::kTopK, 0.01}, std::make_shared<CountingKernels>(counts), kLimit);
  const std::vector<float> gradient(3000, 1.0f);
  for (int update = 0; update < 3; ++update) {
    const std::vector<Slice> slices = {{3000, false}, {update == 2 ? 5u : 1000u, false}, {7, true}};
    if (absl::Status begun = feedback.Begin(slices); !begun.ok()) return begun;
    for (std::uint32_t number = 0; number < 3; ++number) {
      if (absl::Status started = feedback.Start(number, gradient.data(), update == 1); !started.ok()) return started;
    }
    for (std::uint32_t number = 0; number < 3; ++number) {
      if (const auto arrived = feedback.Await(number); !arrived.ok()) return arrived.status();
      feedback.Encode(number, slices[number].elements, Payload(), false);
      feedback.Keep(number);
    }
  }
  return feedback.Finish();
}

TEST(DeviceErrorFeedbackTest, AnyCallThatFailsIsToldAndLeavesNothingBehind) {
  CountingKernels::Counts good;
  ASSERT_TRUE(Live(&good).ok());
  EXPECT_EQ(good.held, 0);
  ASSERT_GT(good.calls, 40);
  for (int call = 0; call < good.calls; ++call) {
    SCOPED_TRACE(call);
    CountingKernels::Counts counts;
    counts.fails_at = call;
    const absl::Status status = Live(&counts);
    EXPECT_THAT(status.message(), HasSubstr("planted"));
    EXPECT_EQ(counts.calls, call + 1) << "nothing more is asked for";
    EXPECT_EQ(counts.held, 0);
  }
}

TEST(DeviceErrorFeedbackTest, SaysHowMuchMemoryThereWouldHaveToBe) {
  CountingKernels::Counts counts;
  counts.fails_at = 0;
  DeviceErrorFeedback feedback({FrameCodec::kBf16, 0.01}, std::make_shared<CountingKernels>(&counts), kLimit);
  const absl::Status status = feedback.Begin({{1000, false}, {10, true}});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  // Two vectors of 1000, the bytes and the scratch of one slice.
  EXPECT_EQ(status.message(),
            "there is no memory to encode gradients on the device, for which 12257 bytes are wanted: could not have "
            "planted: no memory");
}

TEST(DeviceErrorFeedbackTest, ADeviceThatHangsIsToldAndLeft) {
  CountingKernels::Counts counts;
  counts.hangs = true;
  const std::vector<float> gradient(1000);
  DeviceErrorFeedback feedback({FrameCodec::kBf16, 0.01}, std::make_shared<CountingKernels>(&counts),
                               absl::ZeroDuration());
  ASSERT_TRUE(feedback.Begin({{1000, false}}).ok());
  ASSERT_TRUE(feedback.Start(0, gradient.data(), false).ok());
  EXPECT_EQ(feedback.Await(0).status(), absl::DeadlineExceededError("the device has not done its work within 0"));
  EXPECT_TRUE(counts.abandoned);
  EXPECT_TRUE(absl::IsDeadlineExceeded(feedback.Begin({{1000, false}})));
}

}  // namespace
}  // namespace downpour::cuda
