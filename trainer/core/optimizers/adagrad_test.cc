#include <cmath>

#include "gtest/gtest.h"
#include "trainer/core/testing/optimizers.h"

namespace downpour::core {
namespace {

// Dean et al. 2012, section 4.1: each parameter's rate is the learning rate over the root of the sum of its squared
// gradients.
TEST(AdagradTest, IsThatOfDownpourSgd) {
  v1::OptimizerConfig config = testing::ConfigOf(v1::ADAGRAD, 0.1);
  config.set_epsilon(1e-10);
  for (const double initial : {0.0, 0.5}) {
    config.set_initial_accumulator(initial);
    testing::ExpectFollows(config, [initial](testing::Element& x, double gradient, double rate, int step, double) {
      const double g = gradient + 0.02 * x.value;
      if (step == 1) x.first = initial;
      x.first += g * g;
      x.value -= rate * g / (std::sqrt(x.first) + 1e-10);
    });
  }
}

}  // namespace
}  // namespace downpour::core
