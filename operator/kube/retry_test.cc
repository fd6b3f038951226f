#include "operator/kube/retry.h"

#include <random>

#include "gtest/gtest.h"

namespace downpour::kube {
namespace {

HttpResponse Answer(int status, std::optional<absl::Duration> retry_after = {}) { return {status, "", retry_after}; }

TEST(TokenBucket, GivesTheBurstAndThenTheRate) {
  TokenBucket bucket(10, 5);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(bucket.Take(absl::Seconds(100), absl::Hours(1)), absl::ZeroDuration());
  for (int i = 1; i <= 20; ++i) {
    const auto wait = bucket.Take(absl::Seconds(100), absl::Hours(1));
    ASSERT_TRUE(wait.has_value());
    EXPECT_NEAR(absl::ToDoubleSeconds(*wait), i * 0.1, 1e-6);
  }
}

TEST(TokenBucket, KeepsThePermitThatIsNotWaitedFor) {
  TokenBucket bucket(1, 1);
  EXPECT_EQ(bucket.Take(absl::ZeroDuration(), absl::ZeroDuration()), absl::ZeroDuration());
  for (int i = 0; i < 10; ++i) EXPECT_EQ(bucket.Take(absl::ZeroDuration(), absl::Milliseconds(999)), std::nullopt);
  EXPECT_EQ(bucket.Take(absl::Seconds(1), absl::ZeroDuration()), absl::ZeroDuration());
}

TEST(TokenBucket, NeverExceedsItsRate) {
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    TokenBucket bucket(7, 3);
    absl::Duration now;
    std::vector<absl::Duration> used;
    for (int i = 0; i < 200; ++i) {
      now += absl::Milliseconds(std::uniform_int_distribution<int>(0, 300)(random));
      if (const auto wait = bucket.Take(now, absl::Seconds(2))) used.push_back(now + *wait);
    }
    for (std::size_t from = 0; from < used.size(); ++from) {
      for (std::size_t to = from; to < used.size(); ++to) {
        const double seconds = absl::ToDoubleSeconds(used[to] - used[from]);
        ASSERT_LE(static_cast<double>(to - from), 3 + 7 * seconds + 1e-6) << "seed " << seed;
      }
    }
  }
}

TEST(TokenBucket, NoRateIsNoLimit) {
  TokenBucket bucket(0, 0);
  for (int i = 0; i < 1000; ++i)
    EXPECT_EQ(bucket.Take(absl::ZeroDuration(), absl::ZeroDuration()), absl::ZeroDuration());
}

TEST(RetryDelay, TriesAgainWhatMayPass) {
  EXPECT_TRUE(RetryDelay(absl::UnavailableError("reset"), 1, 0.5).has_value());
  EXPECT_TRUE(RetryDelay(Answer(429), 1, 0.5).has_value());
  EXPECT_TRUE(RetryDelay(Answer(503, absl::Seconds(1)), 1, 0.5).has_value());
  EXPECT_TRUE(RetryDelay(Answer(500, absl::Seconds(1)), 1, 0.5).has_value());
}

TEST(RetryDelay, LeavesTheRest) {
  for (const int status : {200, 201, 302, 400, 401, 403, 404, 409, 410, 422, 500, 503}) {
    EXPECT_EQ(RetryDelay(Answer(status), 1, 0.5), std::nullopt) << status;
  }
  EXPECT_EQ(RetryDelay(Answer(409, absl::Seconds(1)), 1, 0.5), std::nullopt);
  EXPECT_EQ(RetryDelay(absl::DeadlineExceededError(""), 1, 0.5), std::nullopt);
  EXPECT_EQ(RetryDelay(absl::CancelledError(""), 1, 0.5), std::nullopt);
  EXPECT_EQ(RetryDelay(absl::ResourceExhaustedError(""), 1, 0.5), std::nullopt);
  EXPECT_EQ(RetryDelay(absl::UnavailableError(""), kMaxTries, 0.5), std::nullopt);
  EXPECT_EQ(RetryDelay(Answer(429, absl::Seconds(1)), kMaxTries, 0.5), std::nullopt);
}

TEST(RetryDelay, WaitsAtLeastAsLongAsAsked) {
  EXPECT_EQ(RetryDelay(Answer(429, absl::Seconds(77)), 1, 0.5), absl::Seconds(77));
  EXPECT_GT(RetryDelay(Answer(429, absl::ZeroDuration()), 1, 0), absl::ZeroDuration());
}

TEST(RetryDelay, BacksOffWithinItsLimits) {
  absl::Duration before;
  for (int tries = 1; tries < kMaxTries; ++tries) {
    const absl::Duration least = *RetryDelay(absl::UnavailableError(""), tries, 0);
    const absl::Duration most = *RetryDelay(absl::UnavailableError(""), tries, 0.999);
    EXPECT_LT(least, most);
    EXPECT_GE(most, before);
    EXPECT_LE(most, absl::Seconds(5));
    before = most;
  }
}

}  // namespace
}  // namespace downpour::kube
