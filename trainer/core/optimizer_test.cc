#include "trainer/core/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "trainer/core/name_pattern.h"
#include "trainer/core/testing/optimizers.h"

namespace downpour::core {
namespace {

using Random = std::independent_bits_engine<std::mt19937, 32, std::uint32_t>;

std::unique_ptr<Optimizer> MakeSgd(std::uint32_t elements) {
  v1::OptimizerConfig config;
  config.set_type(v1::SGD);
  config.set_learning_rate(1);
  return *CreateOptimizer(config, "weight", elements);
}

std::vector<float> RandomFloats(Random& random, std::size_t count) {
  std::vector<float> values(count);
  for (float& value : values) value = std::uniform_real_distribution<float>(-3, 3)(random);
  return values;
}

Payload WholePayload(const std::vector<float>& values) { return Payload::OfFloats(values, nullptr); }

// The same bytes in segments of random lengths that start at odd addresses.
Payload OddSegments(Random& random, const std::vector<float>& values) {
  std::vector<std::vector<std::uint8_t>> pieces;
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(values.data());
  const std::size_t size = values.size() * sizeof(float);
  for (std::size_t at = 0; at < size;) {
    const std::size_t length = std::min<std::size_t>(size - at, random() % 4 == 0 ? random() % 3000 : random() % 6);
    std::vector<std::uint8_t>& piece = pieces.emplace_back(1 + length);
    if (length != 0) std::memcpy(piece.data() + 1, bytes + at, length);
    at += length;
  }
  auto owner = std::make_shared<std::vector<std::vector<std::uint8_t>>>(std::move(pieces));
  std::vector<absl::Span<const std::uint8_t>> segments;
  for (const std::vector<std::uint8_t>& piece : *owner) segments.push_back(absl::MakeConstSpan(piece).subspan(1));
  return Payload(std::move(segments), owner);
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

TEST(Sgd, AgreesWithDoubleArithmeticInPlaceAndApartInAnySegments) {
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const std::size_t count = random() % 1500;
    const std::vector<float> value = RandomFloats(random, count);
    const std::vector<float> gradient = RandomFloats(random, count);
    const double rate = std::uniform_real_distribution<double>(0, 1)(random);
    const std::unique_ptr<Optimizer> optimizer = MakeSgd(static_cast<std::uint32_t>(count));

    std::vector<float> apart(count);
    optimizer->Step(value, WholePayload(gradient), {.learning_rate = rate}, absl::MakeSpan(apart));
    for (std::size_t i = 0; i < count; ++i) {
      const double exact = double{value[i]} - rate * double{gradient[i]};
      // The rate, the product and the difference are each rounded once.
      ASSERT_NEAR(apart[i], exact, 4 * 1.2e-7 * (std::abs(double{value[i]}) + std::abs(rate * double{gradient[i]})));
    }
    std::vector<float> in_place = value;
    optimizer->Step(in_place, WholePayload(gradient), {.learning_rate = rate}, absl::MakeSpan(in_place));
    EXPECT_TRUE(SameBits(in_place, apart));
    std::vector<float> segmented = value;
    const Payload odd = OddSegments(random, gradient);
    ASSERT_EQ(odd.size(), count * sizeof(float));
    optimizer->Step(segmented, odd, {.learning_rate = rate}, absl::MakeSpan(segmented));
    EXPECT_TRUE(SameBits(segmented, apart));
  }
}

TEST(Payload, IsVisitedInOrderOnce) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    const std::vector<float> values = RandomFloats(random, random() % 800);
    const Payload payload = OddSegments(random, values);
    std::vector<float> visited;
    payload.ForEachFloats([&](std::size_t first, absl::Span<const float> run) {
      ASSERT_EQ(first, visited.size());
      visited.insert(visited.end(), run.begin(), run.end());
    });
    EXPECT_TRUE(SameBits(visited, values));
  }
}

TEST(CreateOptimizer, RefusesALearningRateThatIsNoPositiveFloat) {
  v1::OptimizerConfig config;
  config.set_type(v1::SGD);
  const double infinite = std::numeric_limits<double>::infinity();
  for (const double rate : {0.0, -0.1, 1e-46, 1e39, infinite, std::numeric_limits<double>::quiet_NaN()}) {
    config.set_learning_rate(rate);
    EXPECT_EQ(CreateOptimizer(config, "weight", 1).status().code(), absl::StatusCode::kInvalidArgument) << rate;
  }
  for (const double rate : {1e-38, 0.1, 3.4e38}) {
    config.set_learning_rate(rate);
    EXPECT_TRUE(CreateOptimizer(config, "weight", 1).ok()) << rate;
  }
}

TEST(CreateOptimizer, RefusesAnUnknownType) {
  v1::OptimizerConfig config;
  config.set_learning_rate(1);
  EXPECT_EQ(CreateOptimizer(config, "weight", 1).status().code(), absl::StatusCode::kUnimplemented);
}

// A number that is in a configuration by mistake must not become a value that is no number.
TEST(CreateOptimizer, RefusesWhatTheTypeUsesOutsideItsRange) {
  using Config = v1::OptimizerConfig;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto refused = [](v1::OptimizerType type, void (Config::*set)(double), double value) {
    Config config = testing::ConfigOf(type);
    config.set_compensation(v1::COMPENSATION_ADAPTIVE);
    EXPECT_TRUE(CreateOptimizer(config, "weight", 1).ok());
    (config.*set)(value);
    return CreateOptimizer(config, "weight", 1).status().code() == absl::StatusCode::kInvalidArgument;
  };
  for (const double value : {-0.5, nan}) {
    EXPECT_TRUE(refused(v1::SGD, &Config::set_weight_decay, value));
    EXPECT_TRUE(refused(v1::ADAGRAD, &Config::set_initial_accumulator, value));
    EXPECT_TRUE(refused(v1::DELAY_COMPENSATED_SGD, &Config::set_lambda, value));
  }
  for (const double value : {-0.5, 1.0, nan}) {
    EXPECT_TRUE(refused(v1::MOMENTUM, &Config::set_momentum, value));
    EXPECT_TRUE(refused(v1::RMS_PROP, &Config::set_decay, value));
    EXPECT_TRUE(refused(v1::DELAY_COMPENSATED_SGD, &Config::set_decay, value));
    EXPECT_TRUE(refused(v1::ADAM, &Config::set_beta1, value));
    EXPECT_TRUE(refused(v1::LAMB, &Config::set_beta2, value));
  }
  for (const double value : {-1e-8, 0.0, 1e-60, nan}) {
    for (const v1::OptimizerType type :
         {v1::ADAGRAD, v1::RMS_PROP, v1::ADAM, v1::ADAM_W, v1::LAMB, v1::DELAY_COMPENSATED_SGD}) {
      EXPECT_TRUE(refused(type, &Config::set_epsilon, value)) << type;
    }
  }
}

TEST(CheckNoDecay, NamesWhatIsTheNameOfNothing) {
  std::vector<v1::TensorSpec> tensors(3);
  tensors[0].set_name("fc.weight");
  tensors[1].set_name("fc.bias");
  tensors[2].set_name("norm.mean");
  tensors[2].set_kind(v1::BUFFER);
  v1::OptimizerConfig config;
  EXPECT_TRUE(CheckNoDecay(config, tensors).ok());
  config.add_no_decay("*.bias");
  EXPECT_TRUE(CheckNoDecay(config, tensors).ok());
  config.add_no_decay("norm.*");
  EXPECT_EQ(CheckNoDecay(config, tensors).message(),
            "spec.update.optimizer.noDecay[1]: no trained parameter is called \"norm.*\"; there are fc.weight, "
            "fc.bias");
}

TEST(MatchesName, TakesAStarForAnyText) {
  for (const char* pattern : {"conv1.bias", "*", "*.bias", "conv*", "c*1*s", "**bias", "conv1.bias*"}) {
    EXPECT_TRUE(MatchesName(pattern, "conv1.bias")) << pattern;
  }
  for (const char* pattern : {"", "conv1", "bias", "*.weight", "conv2*", "conv1.bias.*", "c*2*s"}) {
    EXPECT_FALSE(MatchesName(pattern, "conv1.bias")) << pattern;
  }
}

TEST(StalenessScale, IsOneOverTheStalenessWithinTheClamp) {
  EXPECT_EQ(StalenessScale(0, 0), 1);
  for (const std::uint32_t clamp : {0u, 1u, 5u, 32u, 100u}) {
    const std::uint64_t most = clamp == 0 ? 32 : clamp;
    double previous = 1;
    for (std::uint64_t staleness = 1; staleness < 300; ++staleness) {
      const double scale = StalenessScale(staleness, clamp);
      EXPECT_DOUBLE_EQ(scale, 1.0 / static_cast<double>(std::min(staleness, most)));
      EXPECT_LE(scale, previous);
      previous = scale;
    }
    EXPECT_DOUBLE_EQ(StalenessScale(UINT64_MAX, clamp), 1.0 / static_cast<double>(most));
  }
}

}  // namespace
}  // namespace downpour::core
