#include <cmath>

#include "gtest/gtest.h"
#include "trainer/core/testing/optimizers.h"

namespace downpour::core {
namespace {

// Zheng et al. 2017, equation 10.
TEST(DelayCompensatedSgdTest, CorrectsTheGradientByWhatThePapersFormulaSays) {
  testing::ExpectFollows(testing::ConfigOf(v1::DELAY_COMPENSATED_SGD),
                         [](testing::Element& x, double g, double rate, int, double pulled) {
                           const double decay = 0.02 * x.value;
                           x.value -= rate * (g + 0.5 * g * g * (x.value - pulled) + decay);
                         });
}

// Equation 14: lambda over the root of the moving average.
TEST(DelayCompensatedSgdTest, AdaptsLambdaToTheGradients) {
  v1::OptimizerConfig config = testing::ConfigOf(v1::DELAY_COMPENSATED_SGD);
  config.set_compensation(v1::COMPENSATION_ADAPTIVE);
  config.set_epsilon(1e-7);
  testing::ExpectFollows(config, [](testing::Element& x, double g, double rate, int, double pulled) {
    x.first = 0.95 * x.first + 0.05 * g * g;
    const double lambda = 0.5 / std::sqrt(x.first + 1e-7);
    const double decay = 0.02 * x.value;
    x.value -= rate * (g + lambda * g * g * (x.value - pulled) + decay);
  });
}

TEST(DelayCompensatedSgdTest, WithoutWhatWasPulledIsSgd) {
  std::mt19937 random(1);
  const std::vector<float> value = testing::RandomFloats(random, 100);
  const std::vector<float> gradient = testing::RandomFloats(random, 100);
  std::vector<float> compensated(100);
  std::vector<float> plain(100);
  const StepContext context{.learning_rate = 0.1, .staleness = 3};
  testing::Make(testing::ConfigOf(v1::DELAY_COMPENSATED_SGD), 100)
      ->Step(value, testing::WholePayload(gradient), context, absl::MakeSpan(compensated));
  testing::Make(testing::ConfigOf(v1::SGD), 100)
      ->Step(value, testing::WholePayload(gradient), context, absl::MakeSpan(plain));
  EXPECT_EQ(compensated, plain);
}

}  // namespace
}  // namespace downpour::core
