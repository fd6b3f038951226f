#include "trainer/cuda/device_kernels.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/core/codec/codec.h"
#include "trainer/core/codec/error_feedback.h"
#include "trainer/core/codec/testing/codec_inputs.h"
#include "trainer/core/codec/top_k.h"
#include "trainer/core/testing/optimizers.h"
#include "trainer/cuda/optimizer_step.h"
#include "trainer/cuda/plugin.h"

namespace downpour::cuda {
namespace {

using core::FrameCodec;
using core::testing::Bytes;

constexpr FrameCodec kCodecs[] = {FrameCodec::kFp32, FrameCodec::kBf16, FrameCodec::kInt8, FrameCodec::kTopK,
                                  FrameCodec::kOneBit};
// Around a block of a codec, a warp's blocks, and 32 of them.
constexpr std::size_t kSizes[] = {0, 1, 7, 255, 256, 257, 2048, 5001, 8191, 8193};

enum class Where { kHost, kEmulated, kDevice };

absl::StatusOr<std::unique_ptr<DeviceKernels>> Make(Where where) {
  if (where == Where::kHost) return MakeHostKernels();
  const absl::StatusOr<const PluginTable*> table =
      LoadPlugin(where == Where::kDevice ? PluginPath() : absl::StrCat(DOWNPOUR_TEST_CUDA_PLUGINS, "/emulated.so"));
  if (!table.ok()) return table.status();
  return MakePluginKernels(**table, 0, nullptr);
}

// Memory of the device, with a margin behind it that nobody may write.
class Memory {
 public:
  static constexpr std::size_t kMargin = 512;

  Memory(DeviceKernels& kernels, std::size_t bytes) : kernels_(kernels), bytes_(bytes) {
    const absl::StatusOr<void*> memory = kernels.Allocate(bytes + kMargin);
    EXPECT_TRUE(memory.ok()) << memory.status();
    memory_ = memory.value_or(nullptr);
    const Bytes pattern(bytes + kMargin, 0xa5);
    EXPECT_TRUE(kernels_.Copy(memory_, pattern.data(), pattern.size()).ok());
    EXPECT_TRUE(kernels_.Finish().ok());
  }
  Memory(DeviceKernels& kernels, const std::vector<float>& values) : Memory(kernels, values.size() * sizeof(float)) {
    EXPECT_TRUE(kernels_.Copy(memory_, values.data(), bytes_).ok());
    EXPECT_TRUE(kernels_.Finish().ok());
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { kernels_.Free(memory_); }

  template <typename T>
  T* as() const {
    return static_cast<T*>(memory_);
  }
  Bytes Read() const {
    Bytes all(bytes_ + kMargin);
    EXPECT_TRUE(kernels_.Copy(all.data(), memory_, all.size()).ok());
    const absl::Status finished = kernels_.Finish();
    EXPECT_TRUE(finished.ok()) << finished;
    EXPECT_EQ(Bytes(all.begin() + static_cast<std::ptrdiff_t>(bytes_), all.end()), Bytes(kMargin, 0xa5));
    all.resize(bytes_);
    return all;
  }
  std::vector<float> ReadFloats() const {
    const Bytes bytes = Read();
    std::vector<float> values(bytes.size() / sizeof(float));
    if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

 private:
  DeviceKernels& kernels_;
  std::size_t bytes_;
  void* memory_ = nullptr;
};

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// Many are equal, which top-k is to tell apart by their place.
std::vector<float> FewValues(std::mt19937_64& random, std::size_t count) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(static_cast<int>(random() % 5) - 2) * 0.25f;
  return values;
}

// Of all exponents, so that most are far too small for a block's largest, and many are denormal.
std::vector<float> AllBits(std::mt19937_64& random, std::size_t count) {
  std::vector<float> values(count);
  for (float& value : values) {
    auto bits = static_cast<std::uint32_t>(random());
    if ((bits & 0x7f800000) == 0x7f800000) bits &= 0x807fffff;
    std::memcpy(&value, &bits, sizeof(value));
  }
  return values;
}

std::vector<float> Gradient(std::mt19937_64& random, std::size_t count) {
  switch (random() % 4) {
    case 0:
      return FewValues(random, count);
    case 1:
      return AllBits(random, count);
    default:
      return core::testing::RandomValues(random, count);
  }
}

void MakeSomeNotFinite(std::mt19937_64& random, std::vector<float>& values) {
  const float low_payload = std::bit_cast<float>(0x7f800001);  // whose upper half alone is an infinity
  for (std::size_t i = 0; i < 1 + values.size() / 100; ++i) {
    const std::size_t kind = random() % 4;
    const float not_finite = kind == 3 ? low_payload : core::testing::kNotFinite[kind];
    values[random() % values.size()] = std::copysign(not_finite, random() % 2 == 0 ? 1.0f : -1.0f);
  }
}

struct Encoded {
  Bytes bytes;
  std::vector<float> next;
  GradientChecks checks{};
};

class DeviceKernelsTest : public ::testing::TestWithParam<Where> {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<DeviceKernels>> kernels = Make(GetParam());
    if (!kernels.ok()) GTEST_SKIP() << kernels.status().message();
    kernels_ = *std::move(kernels);
  }

  Encoded Encode(FrameCodec codec, double top_k, const std::vector<float>& gradient, const std::vector<float>& residual,
                 bool in_place = false) {
    const std::size_t size = gradient.size();
    const Memory gradients(*kernels_, gradient);
    const Memory residuals(*kernels_, residual);
    const Memory next(*kernels_, size * sizeof(float));
    const Memory bytes(*kernels_, core::EncodedBytes(codec, top_k, size));
    const Memory scratch(*kernels_, kernels_->ScratchBytes(codec, size));
    const Memory checks(*kernels_, sizeof(GradientChecks));
    const EncodeArguments arguments = {.gradient = gradients.as<float>(),
                                       .residual = residual.empty() ? nullptr : residuals.as<float>(),
                                       .next = in_place ? residuals.as<float>() : next.as<float>(),
                                       .bytes = bytes.as<std::uint8_t>(),
                                       .elements = size,
                                       .kept = codec == FrameCodec::kTopK ? core::TopKCount(top_k, size) : 0,
                                       .scratch = scratch.as<void>(),
                                       .checks = checks.as<GradientChecks>()};
    const absl::Status status = kernels_->Encode(codec, arguments);
    EXPECT_TRUE(status.ok()) << status;
    Encoded encoded{bytes.Read(), (in_place ? residuals : next).ReadFloats(), {}};
    std::memcpy(&encoded.checks, checks.Read().data(), sizeof(GradientChecks));
    EXPECT_TRUE(SameBits(gradients.ReadFloats(), gradient));
    (void)scratch.Read();
    return encoded;
  }

  // Three updates, and what is left in the end, by these kernels and by core::ErrorFeedback.
  void ExpectErrorFeedback(FrameCodec codec, double top_k, std::size_t size, std::mt19937_64& random) {
    core::ErrorFeedback expected({codec, top_k});
    std::vector<float> residual;
    for (int update = 0; update < 4; ++update) {
      const bool flush = update == 3;
      const std::vector<float> gradient = Gradient(random, size);
      const core::EncodedGradient wanted =
          expected.Encode(0, static_cast<std::uint32_t>(size), core::testing::WholePayload(gradient), flush);
      const Encoded got =
          Encode(wanted.codec, top_k, gradient, residual, /*in_place=*/update == 2 && !residual.empty());
      ASSERT_EQ(got.bytes, BytesOf(wanted.payload)) << "update " << update;
      ASSERT_EQ(got.checks.not_finite, 0u);
      // What was sent as it is leaves nothing.
      if (wanted.codec == FrameCodec::kFp32) {
        ASSERT_TRUE(SameBits(got.next, std::vector<float>(size, 0.0f)));
      }
      residual = wanted.codec == FrameCodec::kFp32 ? std::vector<float>() : got.next;
      expected.Keep(0);
    }
  }

  // A CPU that plays a GPU is slow.
  std::size_t LargeSize() const { return GetParam() == Where::kEmulated ? 100'003 : 1'000'003; }

  static Bytes BytesOf(const core::Payload& payload) {
    Bytes bytes;
    for (const auto& segment : payload.segments()) bytes.insert(bytes.end(), segment.begin(), segment.end());
    return bytes;
  }

  std::unique_ptr<DeviceKernels> kernels_;
};

TEST_P(DeviceKernelsTest, EncodeAsErrorFeedbackDoes) {
  std::mt19937_64 random(1);
  for (const FrameCodec codec : kCodecs) {
    for (const std::size_t size : kSizes) {
      for (int round = 0; round < 4; ++round) {
        const double top_k = round % 2 == 0 ? 0.01 : 0.3;
        SCOPED_TRACE(absl::StrCat("codec ", static_cast<int>(codec), ", ", size, " values, round ", round));
        ASSERT_NO_FATAL_FAILURE(ExpectErrorFeedback(codec, top_k, size, random));
      }
    }
  }
}

TEST_P(DeviceKernelsTest, EncodeLargeGradients) {
  std::mt19937_64 random(2);
  for (const FrameCodec codec : kCodecs) {
    SCOPED_TRACE(absl::StrCat("codec ", static_cast<int>(codec)));
    ASSERT_NO_FATAL_FAILURE(ExpectErrorFeedback(codec, 0.01, LargeSize(), random));
  }
}

// Each value of a gradient is the same: denormals, the largest, zeros of both signs.
TEST_P(DeviceKernelsTest, EncodeEdges) {
  for (const FrameCodec codec : kCodecs) {
    for (const float edge : core::testing::kEdges) {
      const std::vector<float> gradient(300, edge);
      const Encoded got = Encode(codec, 0.1, gradient, {});
      EXPECT_EQ(got.bytes, core::testing::EncodeAll(codec, gradient, 0.1)) << static_cast<int>(codec) << ": " << edge;
    }
  }
}

// Without a residual the bytes are those of the CPU whatever the gradient holds; with one they can be decoded.
TEST_P(DeviceKernelsTest, EncodeAndCountWhatIsNotFinite) {
  std::mt19937_64 random(3);
  for (const FrameCodec codec : kCodecs) {
    for (const std::size_t size : kSizes) {
      if (size == 0) continue;
      SCOPED_TRACE(absl::StrCat("codec ", static_cast<int>(codec), ", ", size, " values"));
      std::vector<float> gradient = Gradient(random, size);
      MakeSomeNotFinite(random, gradient);
      std::uint64_t not_finite = 0;
      for (const float value : gradient) not_finite += std::isfinite(value) ? 0 : 1;

      const Encoded plain = Encode(codec, 0.1, gradient, {});
      EXPECT_EQ(plain.checks.not_finite, not_finite);
      EXPECT_EQ(plain.bytes, core::testing::EncodeAll(codec, gradient, 0.1));

      const Encoded with_residual = Encode(codec, 0.1, gradient, core::testing::RandomValues(random, size));
      EXPECT_EQ(with_residual.checks.not_finite, not_finite);
      EXPECT_TRUE(core::testing::DecodeAll(codec, with_residual.bytes, size).sound);
    }
  }
}

// The residual may be infinite by itself, which is no fault of the gradient.
TEST_P(DeviceKernelsTest, CheckTheGradientAlone) {
  std::vector<float> residual(300, 0.0f);
  residual[5] = std::numeric_limits<float>::infinity();
  for (const FrameCodec codec : kCodecs) {
    const Encoded got = Encode(codec, 0.1, std::vector<float>(300, 2.0f), residual);
    EXPECT_EQ(got.checks.not_finite, 0u);
    EXPECT_EQ(got.checks.sum_of_squares, 1200.0);
    EXPECT_TRUE(core::testing::DecodeAll(codec, got.bytes, 300).sound);
  }
}

TEST_P(DeviceKernelsTest, AddUpSquaresInOneOrder) {
  std::mt19937_64 random(4);
  const std::unique_ptr<DeviceKernels> host = MakeHostKernels();
  for (const std::size_t size : {kSizes[0], kSizes[1], kSizes[3], kSizes[5], kSizes[8], std::size_t{100'003}}) {
    const std::vector<float> gradient = core::testing::RandomValues(random, size);
    long double exact = 0;
    for (const float value : gradient) exact += static_cast<long double>(value) * static_cast<long double>(value);
    GradientChecks on_host;
    std::vector<std::uint8_t> bytes(size * sizeof(float) + 1);
    const absl::StatusOr<void*> scratch = host->Allocate(host->ScratchBytes(FrameCodec::kFp32, size));
    ASSERT_TRUE(scratch.ok());
    ASSERT_TRUE(host->Encode(FrameCodec::kFp32, {.gradient = gradient.data(),
                                                 .residual = nullptr,
                                                 .next = nullptr,
                                                 .bytes = bytes.data(),
                                                 .elements = size,
                                                 .kept = 0,
                                                 .scratch = *scratch,
                                                 .checks = &on_host})
                    .ok());
    host->Free(*scratch);
    for (const FrameCodec codec : kCodecs) {
      const double got = Encode(codec, 0.01, gradient, {}).checks.sum_of_squares;
      EXPECT_NEAR(got, static_cast<double>(exact), static_cast<double>(exact) * 1e-12);
      // Bit for bit, whatever the codec.
      EXPECT_EQ(got, on_host.sum_of_squares) << "codec " << static_cast<int>(codec) << ", " << size << " values";
    }
  }
}

// Order matters here: 2^60 swallows what is added to it one by one, and the host's kernels are held to it as well.
TEST_P(DeviceKernelsTest, AddUpSquaresAsTheHeaderSays) {
  std::vector<float> gradient(2 * 256, 0.0f);
  gradient[0] = 1073741824.0f;                          // squared, 2^60; lane 0
  gradient[16] = gradient[32] = 11.0f;                  // lane 16; lane 0 again
  gradient[256] = 8.0f;                                 // another block
  const double lane_0 = 1152921504606846976.0 + 121.0;  // rounded to 2^60
  const double expected = (lane_0 + 121.0) + 64.0;
  EXPECT_EQ(Encode(FrameCodec::kBf16, 0, gradient, {}).checks.sum_of_squares, expected);
  // 128 and 128: half of the distance between doubles there each, which count if they are added to each other first.
  gradient.assign(256, 0.0f);
  gradient[0] = 1073741824.0f;
  gradient[8] = gradient[24] = 11.3125f;  // 127.97 each; lanes 8 and 24 are added 16 apart, before lane 0 joins
  EXPECT_EQ(Encode(FrameCodec::kBf16, 0, gradient, {}).checks.sum_of_squares,
            1152921504606846976.0 + 2 * 11.3125 * 11.3125);
  EXPECT_NE(1152921504606846976.0 + 2 * 11.3125 * 11.3125, 1152921504606846976.0);
}

TEST_P(DeviceKernelsTest, RefuseWhatCannotBe) {
  const Memory memory(*kernels_, 4096);
  EncodeArguments good = {.gradient = memory.as<float>(),
                          .residual = nullptr,
                          .next = nullptr,
                          .bytes = memory.as<std::uint8_t>() + 1024,
                          .elements = 100,
                          .kept = 10,
                          .scratch = memory.as<std::uint8_t>() + 2048,
                          .checks = memory.as<GradientChecks>() + 64};
  const auto expect_refused = [&](FrameCodec codec, const EncodeArguments& arguments) {
    EXPECT_EQ(kernels_->Encode(codec, arguments).code(), absl::StatusCode::kInvalidArgument);
  };
  expect_refused(FrameCodec::kNone, good);
  expect_refused(static_cast<FrameCodec>(6), good);
  for (const std::uint64_t kept : {0, 101}) {
    EncodeArguments bad = good;
    bad.kept = kept;
    expect_refused(FrameCodec::kTopK, bad);
  }
  EncodeArguments bad = good;
  bad.elements = std::uint64_t{1} << 32;
  expect_refused(FrameCodec::kBf16, bad);
  bad = good;
  bad.gradient = nullptr;
  expect_refused(FrameCodec::kBf16, bad);
  bad = good;
  bad.checks = nullptr;
  expect_refused(FrameCodec::kBf16, bad);
  bad = good;
  bad.bytes += 1;
  expect_refused(FrameCodec::kInt8, bad);

  StepCoefficients step{};
  step.rule = 5;
  EXPECT_EQ(kernels_->Step(step, {}).code(), absl::StatusCode::kInvalidArgument);
  step.rule = kMomentumRule;
  const StepTensor tensor = {memory.as<float>(), memory.as<float>(), memory.as<float>(), nullptr, nullptr, 4, 0, 0};
  EXPECT_EQ(kernels_->Step(step, {tensor}).code(), absl::StatusCode::kInvalidArgument);
}

// A tensor of a step, on the device and as core::Optimizer has it.
struct Stepped {
  Stepped(DeviceKernels& kernels, const v1::OptimizerConfig& config, const std::vector<float>& start,
          const std::string& name)
      : expected(start),
        optimizer(*core::CreateOptimizer(config, name, static_cast<std::uint32_t>(start.size()))),
        decay(name == "bias" ? 0 : config.weight_decay()),
        value(kernels, start),
        first(kernels, std::vector<float>(start.size(), 0.0f)),
        second(kernels, std::vector<float>(start.size(), 0.0f)) {}

  std::vector<float> expected;
  std::unique_ptr<core::Optimizer> optimizer;
  double decay;
  Memory value, first, second;
  std::unique_ptr<Memory> gradient;
};

TEST_P(DeviceKernelsTest, StepAsTheOptimizersDo) {
  std::mt19937 random(5);
  for (const v1::OptimizerType type : {v1::SGD, v1::MOMENTUM, v1::NESTEROV, v1::ADAM, v1::ADAM_W}) {
    v1::OptimizerConfig config = core::testing::ConfigOf(type);
    config.add_no_decay("bias");
    absl::StatusOr<OptimizerStep> step = OptimizerStep::Create(config);
    ASSERT_TRUE(step.ok()) << step.status();
    // More than go into one launch.
    std::vector<std::unique_ptr<Stepped>> all;
    for (const std::size_t size : {5001, 0, 1, 255, 256, 257}) {
      all.push_back(std::make_unique<Stepped>(*kernels_, config, core::testing::RandomFloats(random, size), "weight"));
    }
    for (std::size_t i = 0; i < 70; ++i) {
      all.push_back(std::make_unique<Stepped>(*kernels_, config, core::testing::RandomFloats(random, i),
                                              i % 2 == 0 ? "bias" : "weight"));
    }
    for (int number = 0; number < 5; ++number) {
      const core::StepContext context = {.learning_rate = 0.01 / (1 + number), .factor = number % 2 == 0 ? 1 : 0.37};
      const StepCoefficients& coefficients = step->Next(context.learning_rate, context.factor);
      std::vector<StepTensor> tensors;
      for (const std::unique_ptr<Stepped>& one : all) {
        const std::vector<float> gradient = core::testing::RandomFloats(random, one->expected.size());
        one->gradient = std::make_unique<Memory>(*kernels_, gradient);
        one->optimizer->Step(one->expected, core::testing::WholePayload(gradient), context,
                             absl::MakeSpan(one->expected));
        StepTensor& tensor = tensors.emplace_back();
        tensor = {one->value.as<float>(),
                  one->gradient->as<float>(),
                  one->value.as<float>(),
                  one->first.as<float>(),
                  one->second.as<float>(),
                  one->expected.size(),
                  0,
                  0};
        step->SetDecay(one->decay, &tensor);
      }
      const absl::Status taken = kernels_->Step(coefficients, tensors);
      ASSERT_TRUE(taken.ok()) << taken;
      for (std::size_t i = 0; i < all.size(); ++i) {
        ASSERT_TRUE(SameBits(all[i]->value.ReadFloats(), all[i]->expected))
            << v1::OptimizerType_Name(type) << ", step " << number << ", tensor " << i;
        const core::OptimizerState state = all[i]->optimizer->Export();
        if (!state.vectors.empty()) {
          ASSERT_TRUE(SameBits(all[i]->first.ReadFloats(), *state.vectors[0].values)) << i;
        }
        if (state.vectors.size() > 1) {
          ASSERT_TRUE(SameBits(all[i]->second.ReadFloats(), *state.vectors[1].values)) << i;
        }
      }
    }
  }
}

TEST_P(DeviceKernelsTest, StepLargeTensors) {
  const std::size_t size = LargeSize();
  std::mt19937 random(6);
  const v1::OptimizerConfig config = core::testing::ConfigOf(v1::ADAM_W);
  absl::StatusOr<OptimizerStep> step = OptimizerStep::Create(config);
  ASSERT_TRUE(step.ok()) << step.status();
  Stepped one(*kernels_, config, core::testing::RandomFloats(random, size), "weight");
  const Memory updated(*kernels_, size * sizeof(float));
  const std::vector<float> gradient = core::testing::RandomFloats(random, size);
  const Memory gradients(*kernels_, gradient);
  const StepCoefficients& coefficients = step->Next(0.01, 1);
  const std::vector<float> before = one.expected;
  one.optimizer->Step(before, core::testing::WholePayload(gradient), {.learning_rate = 0.01},
                      absl::MakeSpan(one.expected));
  StepTensor tensor = {one.value.as<float>(),
                       gradients.as<float>(),
                       updated.as<float>(),
                       one.first.as<float>(),
                       one.second.as<float>(),
                       size,
                       0,
                       0};
  step->SetDecay(one.decay, &tensor);
  ASSERT_TRUE(kernels_->Step(coefficients, {tensor}).ok());
  EXPECT_TRUE(SameBits(updated.ReadFloats(), one.expected));
  EXPECT_TRUE(SameBits(one.value.ReadFloats(), before));
}

TEST_P(DeviceKernelsTest, StepBuffersByTheirMeanDifference) {
  std::mt19937 random(7);
  for (const std::size_t size : {1, 7, 5001}) {
    const std::vector<float> value = core::testing::RandomFloats(random, size);
    const std::vector<float> sum = core::testing::RandomFloats(random, size);
    const double samples = 1 + static_cast<double>(random() % 100'000);
    std::vector<float> expected = value;
    for (std::size_t i = 0; i < size; ++i) expected[i] -= static_cast<float>(sum[i] / samples);
    const Memory values(*kernels_, value), sums(*kernels_, sum);
    StepCoefficients coefficients{};
    coefficients.rule = kBufferRule;
    coefficients.samples = samples;
    StepTensor tensor{};
    tensor.value = tensor.updated = values.as<float>();
    tensor.gradient = sums.as<float>();
    tensor.elements = size;
    const absl::Status taken = kernels_->Step(coefficients, {tensor});
    ASSERT_TRUE(taken.ok()) << taken;
    EXPECT_TRUE(SameBits(values.ReadFloats(), expected)) << size;
  }
}

// As the checks of a gradient do.
TEST_P(DeviceKernelsTest, SumSquaresOfManyRanges) {
  std::mt19937_64 random(9);
  std::vector<std::size_t> sizes(std::begin(kSizes), std::end(kSizes));
  for (std::size_t i = 0; i < 70; ++i) sizes.push_back(i);  // more than go into one launch
  const Memory sums(*kernels_, sizes.size() * sizeof(double));
  std::vector<std::unique_ptr<Memory>> memory;
  std::vector<SquaresRange> ranges;
  std::vector<double> expected;
  for (const std::size_t size : sizes) {
    const std::vector<float> values = core::testing::RandomValues(random, size);
    expected.push_back(Encode(FrameCodec::kBf16, 0, values, {}).checks.sum_of_squares);
    memory.push_back(std::make_unique<Memory>(*kernels_, values));
    memory.push_back(std::make_unique<Memory>(*kernels_, DeviceKernels::PartialsOf(size) * sizeof(double)));
    ranges.push_back(
        {memory[memory.size() - 2]->as<float>(), size, memory.back()->as<double>(), sums.as<double>() + ranges.size()});
  }
  const absl::Status summed = kernels_->SumSquares(ranges);
  ASSERT_TRUE(summed.ok()) << summed;
  const Bytes bytes = sums.Read();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    double sum = 0;
    std::memcpy(&sum, bytes.data() + i * sizeof(double), sizeof(sum));
    EXPECT_EQ(sum, expected[i]) << sizes[i];
  }
  for (const std::unique_ptr<Memory>& one : memory) (void)one->Read();
  ranges[0].sum = nullptr;
  EXPECT_EQ(kernels_->SumSquares(ranges).code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(DeviceKernelsTest, Clear) {
  const Memory memory(*kernels_, std::vector<float>(1001, 3.0f));
  ASSERT_TRUE(kernels_->Clear(memory.as<void>(), 1001 * sizeof(float)).ok());
  EXPECT_EQ(memory.ReadFloats(), std::vector<float>(1001, 0.0f));
}

// What NCCL adds up as bfloat16: functions of the library alone.
TEST_P(DeviceKernelsTest, RoundAndWiden) {
  if (GetParam() == Where::kHost) GTEST_SKIP() << "not of the host";
  const PluginTable& table = **LoadPlugin(
      GetParam() == Where::kDevice ? PluginPath() : absl::StrCat(DOWNPOUR_TEST_CUDA_PLUGINS, "/emulated.so"));
  std::mt19937_64 random(10);
  for (const std::size_t size : kSizes) {
    std::vector<float> values = Gradient(random, size);
    if (size != 0) MakeSomeNotFinite(random, values);
    const Memory from(*kernels_, values), halves(*kernels_, 2 * size), to(*kernels_, size * sizeof(float));
    ASSERT_EQ(table.round_bf16(from.as<float>(), halves.as<void>(), size, nullptr), 0);
    ASSERT_EQ(table.widen_bf16(halves.as<void>(), to.as<float>(), size, nullptr), 0);
    const Bytes wanted = core::testing::EncodeAll(FrameCodec::kBf16, values, 0);
    EXPECT_EQ(halves.Read(), wanted) << size;
    EXPECT_TRUE(SameBits(to.ReadFloats(), core::testing::DecodeAll(FrameCodec::kBf16, wanted, size).values)) << size;
  }
}

TEST_P(DeviceKernelsTest, AddUpAsTheHostDoes) {
  std::mt19937_64 random(8);
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{257}, LargeSize()}) {
    const std::vector<float> first = Gradient(random, size), second = Gradient(random, size);
    const Memory sum(*kernels_, size * sizeof(float));
    const Memory firsts(*kernels_, first), seconds(*kernels_, second);
    ASSERT_TRUE(kernels_->Sum({sum.as<float>(), firsts.as<float>(), size, 0.3f, 1}).ok());
    ASSERT_TRUE(kernels_->Sum({sum.as<float>(), seconds.as<float>(), size, 0.7f, 0}).ok());
    std::vector<float> expected(size);
    for (std::size_t i = 0; i < size; ++i) {
      const float part = 0.3f * first[i], other = 0.7f * second[i];
      expected[i] = part + other;
    }
    EXPECT_TRUE(SameBits(sum.ReadFloats(), expected)) << size;
  }
  EXPECT_EQ(kernels_->Sum({nullptr, nullptr, 1, 1, 1}).code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(DeviceKernelsTest, CopyBehindAnEventToMemoryOfTheHost) {
  const std::vector<float> values(100000, 1.5f);
  const Memory memory(*kernels_, values);
  const absl::StatusOr<void*> host = kernels_->AllocateHost(values.size() * sizeof(float));
  ASSERT_TRUE(host.ok()) << host.status();
  const absl::StatusOr<void*> event = kernels_->CreateEvent();
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_TRUE(*kernels_->IsOver(*event)) << "it was not recorded";
  for (const float* const from : {values.data(), memory.as<const float>()}) {
    std::memset(*host, 0, values.size() * sizeof(float));
    ASSERT_TRUE(kernels_->WaitFor(nullptr).ok());
    ASSERT_TRUE(kernels_->Copy(*host, from, values.size() * sizeof(float)).ok());
    ASSERT_TRUE(kernels_->Record(*event).ok());
    const absl::Status over = Await(*kernels_, *event, absl::Seconds(30));
    EXPECT_TRUE(over.ok()) << over;
    EXPECT_EQ(std::memcmp(*host, values.data(), values.size() * sizeof(float)), 0);
  }
  kernels_->DestroyEvent(*event);
  kernels_->FreeHost(*host);
}

INSTANTIATE_TEST_SUITE_P(On, DeviceKernelsTest, ::testing::Values(Where::kHost, Where::kEmulated, Where::kDevice),
                         [](const ::testing::TestParamInfo<Where>& where) {
                           return where.param == Where::kHost       ? "Host"
                                  : where.param == Where::kEmulated ? "Emulated"
                                                                    : "Device";
                         });

}  // namespace
}  // namespace downpour::cuda
