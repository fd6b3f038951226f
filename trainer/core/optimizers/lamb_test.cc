#include <algorithm>
#include <cmath>

#include "gtest/gtest.h"
#include "trainer/core/testing/optimizers.h"

namespace downpour::core {
namespace {

// You et al. 2020, algorithm 2, of one layer.
TEST(LambTest, IsAlgorithm2WithASliceInThePlaceOfALayer) {
  const v1::OptimizerConfig config = testing::ConfigOf(v1::LAMB);
  for (const std::size_t elements : {1u, 15u, 16u, 17u, 1000u, 4099u}) {
    SCOPED_TRACE(elements);
    std::mt19937 random(static_cast<std::uint32_t>(elements));
    std::vector<std::vector<float>> history = {testing::RandomFloats(random, elements)};
    const std::vector<testing::GivenStep> steps = testing::RandomSteps(random, elements, 0.01, 100);
    std::vector<double> value(history.back().begin(), history.back().end());
    testing::Take(*testing::Make(config, elements), steps, 0, steps.size(), history);
    std::vector<double> first(elements), second(elements), direction(elements);
    for (std::size_t step = 0; step < steps.size(); ++step) {
      double length = 0;
      double moved = 0;
      for (std::size_t i = 0; i < elements; ++i) {
        const double g = steps[step].context.factor * steps[step].gradient[i];
        first[i] = 0.9 * first[i] + 0.1 * g;
        second[i] = 0.999 * second[i] + 0.001 * g * g;
        const double step_number = static_cast<double>(step) + 1;
        direction[i] = first[i] / (1 - std::pow(0.9, step_number)) /
                           (std::sqrt(second[i] / (1 - std::pow(0.999, step_number))) + 1e-8) +
                       0.02 * value[i];
        length += value[i] * value[i];
        moved += direction[i] * direction[i];
      }
      for (std::size_t i = 0; i < elements; ++i) {
        value[i] -= steps[step].context.learning_rate * std::sqrt(length) / std::sqrt(moved) * direction[i];
      }
    }
    EXPECT_LT(testing::Distance(history.back(), value), 1e-6);
  }
}

TEST(LambTest, TrustsAValueOf0AsTheGradientSays) {
  const std::unique_ptr<Optimizer> lamb = testing::Make(testing::ConfigOf(v1::LAMB), 3);
  const std::vector<float> gradient = {1, -1, 2};
  std::vector<float> value(3);
  lamb->Step(value, testing::WholePayload(gradient), {.learning_rate = 0.5}, absl::MakeSpan(value));
  EXPECT_NEAR(value[0], -0.5, 1e-6);
  EXPECT_NEAR(value[1], 0.5, 1e-6);
  std::vector<float> none(3, 1);
  const std::vector<float> zero(3);
  v1::OptimizerConfig config = testing::ConfigOf(v1::LAMB);
  config.set_weight_decay(0);
  testing::Make(config, 3)->Step(none, testing::WholePayload(zero), {.learning_rate = 0.5}, absl::MakeSpan(none));
  EXPECT_EQ(none, std::vector<float>(3, 1));
}

}  // namespace
}  // namespace downpour::core
