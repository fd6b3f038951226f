#include <cmath>

#include "gtest/gtest.h"
#include "trainer/core/testing/optimizers.h"

namespace downpour::core {
namespace {

TEST(RmsPropTest, DividesByTheRootOfTheMovingAverage) {
  testing::ExpectFollows(testing::ConfigOf(v1::RMS_PROP),
                         [](testing::Element& x, double gradient, double rate, int, double) {
                           const double g = gradient + 0.02 * x.value;
                           x.first = 0.95 * x.first + 0.05 * g * g;
                           x.value -= rate * g / (std::sqrt(x.first) + 1e-8);
                         });
}

}  // namespace
}  // namespace downpour::core
