#include "gtest/gtest.h"
#include "trainer/core/testing/optimizers.h"

namespace downpour::core {
namespace {

TEST(SgdTest, SubtractsTheGradientTimesTheRate) {
  v1::OptimizerConfig config = testing::ConfigOf(v1::SGD, 0.1);
  testing::ExpectFollows(
      config, [](testing::Element& x, double g, double rate, int, double) { x.value -= rate * (g + 0.02 * x.value); });
  config.set_weight_decay(0);
  testing::ExpectFollows(config, [](testing::Element& x, double g, double rate, int, double) { x.value -= rate * g; });
}

TEST(SgdTest, RemembersNothing) {
  const OptimizerState state = testing::Make(testing::ConfigOf(v1::SGD), 10)->Export();
  EXPECT_EQ(state.type, "SGD");
  EXPECT_TRUE(state.vectors.empty());
  EXPECT_TRUE(state.scalars.empty());
}

}  // namespace
}  // namespace downpour::core
