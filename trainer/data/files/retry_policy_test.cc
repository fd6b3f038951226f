#include "trainer/data/files/retry_policy.h"

#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace downpour::data {
namespace {

using ::testing::ElementsAre;

absl::Duration Seconds(double seconds) { return absl::Seconds(seconds); }

TEST(RetryPolicyTest, WaitsGrowToTheirMost) {
  RetryPolicy policy(RetryOptions{});
  std::vector<absl::Duration> waits;
  for (int attempt = 1; attempt <= 10; ++attempt) {
    waits.push_back(*policy.Failed({Seconds(0), Seconds(0), attempt}, Seconds(1), 0.5));
  }
  EXPECT_THAT(waits, ElementsAre(Seconds(0.05), Seconds(0.1), Seconds(0.2), Seconds(0.4), Seconds(0.8), Seconds(1.6),
                                 Seconds(3.2), Seconds(5), Seconds(5), Seconds(5)));
  EXPECT_EQ(policy.Failed({Seconds(0), Seconds(0), 1 << 30}, Seconds(1), 0.0), absl::ZeroDuration());
}

TEST(RetryPolicyTest, TheLastWaitEndsWithThePatience) {
  RetryPolicy policy({.patience = Seconds(20)});
  EXPECT_EQ(policy.Failed({Seconds(0), Seconds(0), 9}, Seconds(19.5), 0.5), Seconds(0.5));
  EXPECT_FALSE(policy.GivenUp(Seconds(19.9)));
  EXPECT_TRUE(policy.GivenUp(Seconds(20)));
  EXPECT_EQ(policy.Failed({Seconds(0), Seconds(19.9), 10}, Seconds(21), 0.5), std::nullopt);
}

TEST(RetryPolicyTest, CallsHaveOneOutage) {
  RetryPolicy policy({.patience = Seconds(20)});
  EXPECT_TRUE(policy.Failed({Seconds(3), Seconds(3)}, Seconds(5), 0.5).has_value());
  EXPECT_TRUE(policy.Failed({Seconds(20), Seconds(20)}, Seconds(22), 0.5).has_value());
  EXPECT_EQ(policy.Outage(Seconds(22)), Seconds(19)) << "from the beginning of what failed first";
  EXPECT_FALSE(policy.Failed({Seconds(22), Seconds(22)}, Seconds(23), 0.5).has_value());
}

TEST(RetryPolicyTest, AnAnswerBeginsAnew) {
  RetryPolicy policy({.patience = Seconds(20)});
  EXPECT_TRUE(policy.Failed({Seconds(0), Seconds(0)}, Seconds(19), 0.5).has_value());
  policy.Answered(Seconds(30));
  EXPECT_EQ(policy.Outage(Seconds(31)), absl::ZeroDuration());
  EXPECT_TRUE(policy.Failed({Seconds(25), Seconds(25)}, Seconds(40), 0.5).has_value());
  EXPECT_EQ(policy.Outage(Seconds(40)), Seconds(10)) << "what began before the answer counts from the answer";
}

TEST(RetryPolicyTest, ACallThatAloneFailsEndsToo) {
  RetryPolicy policy({.patience = Seconds(20)});
  for (int second = 1; second < 20; ++second) {
    EXPECT_TRUE(policy.Failed({Seconds(0), Seconds(second - 1), second}, Seconds(second), 0.5).has_value());
    policy.Answered(Seconds(second));
  }
  EXPECT_FALSE(policy.Failed({Seconds(0), Seconds(19), 20}, Seconds(20), 0.5).has_value());
  EXPECT_FALSE(policy.GivenUp(Seconds(20))) << "others are answered";
}

}  // namespace
}  // namespace downpour::data
