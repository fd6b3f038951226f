#include "gtest/gtest.h"
#include "trainer/core/testing/optimizers.h"

namespace downpour::core {
namespace {

TEST(MomentumTest, AddsUpGradientsWithoutDampening) {
  testing::ExpectFollows(testing::ConfigOf(v1::MOMENTUM),
                         [](testing::Element& x, double gradient, double rate, int, double) {
                           x.first = 0.9 * x.first + gradient + 0.02 * x.value;
                           x.value -= rate * x.first;
                         });
}

TEST(MomentumTest, OfNesterovLooksAhead) {
  testing::ExpectFollows(testing::ConfigOf(v1::NESTEROV),
                         [](testing::Element& x, double gradient, double rate, int, double) {
                           const double g = gradient + 0.02 * x.value;
                           x.first = 0.9 * x.first + g;
                           x.value -= rate * (g + 0.9 * x.first);
                         });
}

}  // namespace
}  // namespace downpour::core
