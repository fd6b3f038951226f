#include <cmath>

#include "gtest/gtest.h"
#include "trainer/core/testing/optimizers.h"

namespace downpour::core {
namespace {

// Kingma and Ba 2015, algorithm 1.
void Move(testing::Element& x, double g, double rate, int step) {
  x.first = 0.9 * x.first + 0.1 * g;
  x.second = 0.999 * x.second + 0.001 * g * g;
  const double first = x.first / (1 - std::pow(0.9, step));
  const double second = x.second / (1 - std::pow(0.999, step));
  x.value -= rate * first / (std::sqrt(second) + 1e-8);
}

TEST(AdamTest, IsAlgorithm1WithDecayInTheGradient) {
  testing::ExpectFollows(testing::ConfigOf(v1::ADAM), [](testing::Element& x, double gradient, double rate, int step,
                                                         double) { Move(x, gradient + 0.02 * x.value, rate, step); });
}

// Loshchilov and Hutter 2019, algorithm 2, where the decay is multiplied by the learning rate as torch.optim has it.
TEST(AdamTest, WithDecayApartIsAdamW) {
  testing::ExpectFollows(testing::ConfigOf(v1::ADAM_W),
                         [](testing::Element& x, double gradient, double rate, int step, double) {
                           x.value -= rate * 0.02 * x.value;
                           Move(x, gradient, rate, step);
                         });
}

}  // namespace
}  // namespace downpour::core
