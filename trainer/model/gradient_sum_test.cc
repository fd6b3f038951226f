#include "trainer/model/gradient_sum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace downpour::model {
namespace {

using ::testing::ElementsAre;

std::vector<float> Values(const GradientSum::Sum& sum) { return {sum.values.begin(), sum.values.end()}; }

TEST(GradientSumTest, IsOfAllAndComesOnceTheLastHasGiven) {
  HostGradientSum sum(2, 2);
  ASSERT_TRUE(sum.Begin({0.25F, 0.75F}).ok());
  sum.Give(1, 1, {4, 8});
  sum.Give(0, 0, {4});
  sum.Give(0, 1, {8, 16});
  std::optional<GradientSum::Sum> next = sum.Next();
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->tensor, 1u);
  EXPECT_THAT(Values(*next), ElementsAre(5, 10));
  std::thread late([&sum] { sum.Give(1, 0, {-4}); });
  next = sum.Next();
  late.join();
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->tensor, 0u);
  EXPECT_THAT(Values(*next), ElementsAre(-2));
  sum.End();
  EXPECT_FALSE(sum.Next().has_value());
}

TEST(GradientSumTest, WhoHasNoWeightGivesNothing) {
  HostGradientSum sum(3, 1);
  ASSERT_TRUE(sum.Begin({0.5F, 0.5F, 0}).ok());
  sum.Give(0, 0, {2});
  sum.Give(1, 0, {4});
  EXPECT_THAT(Values(*sum.Next()), ElementsAre(3));
  sum.End();
  ASSERT_TRUE(sum.Begin({0, 0, 1}).ok());
  sum.Give(2, 0, {7, 8});
  EXPECT_THAT(Values(*sum.Next()), ElementsAre(7, 8)) << "nothing of the step before";
}

TEST(GradientSumTest, AtTheEndWhatIsCompleteIsTakenAndTheRestIsGone) {
  HostGradientSum sum(2, 2);
  ASSERT_TRUE(sum.Begin({0.5F, 0.5F}).ok());
  sum.Give(0, 0, {1});
  sum.Give(1, 0, {1});
  sum.Give(0, 1, {1});
  sum.End();
  EXPECT_EQ(sum.Next()->tensor, 0u);
  EXPECT_FALSE(sum.Next().has_value());
  ASSERT_TRUE(sum.Begin({0.5F, 0.5F}).ok());
  sum.Give(1, 1, {2});
  sum.End();
  EXPECT_FALSE(sum.Next().has_value());
}

TEST(GradientSumTest, WhoWaitsIsWokenByTheEnd) {
  HostGradientSum sum(1, 1);
  ASSERT_TRUE(sum.Begin({1}).ok());
  std::thread late([&sum] { sum.End(); });
  EXPECT_FALSE(sum.Next().has_value());
  late.join();
}

}  // namespace
}  // namespace downpour::model
