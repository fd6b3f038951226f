#include <cmath>

#include "gtest/gtest.h"
#include "trainer/core/testing/optimizers.h"

namespace downpour::core {
namespace {

v1::OptimizerConfig GapAware(v1::OptimizerType type) {
  v1::OptimizerConfig config = testing::ConfigOf(type);
  config.set_staleness_aware(true);
  config.set_staleness_rule(v1::STALENESS_GAP);
  return config;
}

// What is left of the gradient; the moving average is the third of the element.
double Penalised(testing::Element& x, double g, int step, double pulled) {
  x.third = 0.999 * x.third + 0.001 * g * g;
  const double c = 0.01 * (std::sqrt(x.third / (1 - std::pow(0.999, step))) + 1e-8);
  return g / (1 + std::abs(x.value - pulled) / c);
}

TEST(GapAwareTest, DividesTheGradientOfEachElementByItsGap) {
  testing::ExpectFollows(GapAware(v1::SGD), [](testing::Element& x, double g, double rate, int step, double pulled) {
    x.value -= rate * (Penalised(x, g, step, pulled) + 0.02 * x.value);
  });
}

TEST(GapAwareTest, GoesBeforeTheRuleWhateverThatIs) {
  // The gap is the difference of two values that are rounded to float32, and momentum remembers ten of its errors.
  testing::ExpectFollows(
      GapAware(v1::MOMENTUM),
      [](testing::Element& x, double g, double rate, int step, double pulled) {
        x.first = 0.9 * x.first + Penalised(x, g, step, pulled) + 0.02 * x.value;
        x.value -= rate * x.first;
      },
      3e-6);
}

TEST(GapAwareTest, WithoutAGapIsTheRuleItself) {
  std::mt19937 random(1);
  for (const v1::OptimizerType type : testing::kAllTypes) {
    const std::unique_ptr<Optimizer> aware = testing::Make(GapAware(type), 3000);
    const std::unique_ptr<Optimizer> plain = testing::Make(testing::ConfigOf(type), 3000);
    std::vector<testing::GivenStep> steps = testing::RandomSteps(random, 3000, 0.01, 5);
    for (testing::GivenStep& step : steps) step.staleness = 0;
    std::vector<std::vector<float>> a = {testing::RandomFloats(random, 3000)};
    std::vector<std::vector<float>> b = a;
    testing::Take(*aware, steps, 0, steps.size(), a);
    testing::Take(*plain, steps, 0, steps.size(), b);
    EXPECT_TRUE(testing::SameBits(a.back(), b.back())) << plain->type();
    EXPECT_EQ(aware->vectors(), plain->vectors() + 1);
  }
}

TEST(GapAwareTest, IsOfStalenessAwareOnly) {
  v1::OptimizerConfig config = GapAware(v1::SGD);
  EXPECT_EQ(testing::Make(config, 1)->type(), "GapAwareSGD");
  EXPECT_TRUE(NeedsPulledValues(config));
  config.set_staleness_aware(false);
  EXPECT_EQ(testing::Make(config, 1)->type(), "SGD");
  EXPECT_FALSE(NeedsPulledValues(config));
}

}  // namespace
}  // namespace downpour::core
