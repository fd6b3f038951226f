#include "operator/kube/reflector_plan.h"

#include <random>

#include "gtest/gtest.h"
#include "operator/kube/api_error.h"

namespace downpour::kube {
namespace {

using Action = ReflectorPlan::Action;
using End = ReflectorPlan::WatchEnd;

const absl::Status kGone = ToStatus({410, "Expired", "too old", {}});
const absl::Status kDown = absl::UnavailableError("no connection");
constexpr absl::Duration kNow = absl::Hours(1);
constexpr absl::Duration kLong = absl::Minutes(5);

ReflectorPlan Watching(const std::string& version) {
  ReflectorPlan plan({});
  plan.OnPage(version, "");
  return plan;
}

TEST(ReflectorPlan, ListsTheNewestThenWatches) {
  ReflectorPlan plan({});
  EXPECT_EQ(plan.Next(0.5).action, Action::kListFirstPage);
  EXPECT_EQ(plan.Next(0.5).resource_version, "");
  EXPECT_EQ(plan.Next(0.5).wait, absl::ZeroDuration());
  plan.OnPage("7", "");
  EXPECT_EQ(plan.Next(0.5).action, Action::kWatch);
  EXPECT_EQ(plan.Next(0.5).resource_version, "7");
}

TEST(ReflectorPlan, FollowsPagesAndWatchesFromTheFirst) {
  ReflectorPlan plan({});
  plan.OnPage("7", "token-1");
  EXPECT_EQ(plan.Next(0.5).action, Action::kListNextPage);
  EXPECT_EQ(plan.Next(0.5).continue_token, "token-1");
  plan.OnPage("9", "token-2");
  EXPECT_EQ(plan.Next(0.5).continue_token, "token-2");
  plan.OnPage("11", "");
  EXPECT_EQ(plan.Next(0.5).action, Action::kWatch);
  EXPECT_EQ(plan.Next(0.5).resource_version, "7");
}

TEST(ReflectorPlan, AnExpiredTokenBeginsTheListAnew) {
  ReflectorPlan plan({});
  plan.OnPage("7", "token-1");
  plan.OnListFailed(kGone, kNow);
  EXPECT_EQ(plan.Next(0.5).action, Action::kListFirstPage);
  EXPECT_EQ(plan.Next(0.5).resource_version, "");
}

TEST(ReflectorPlan, AFailedFirstListIsTriedAgain) {
  ReflectorPlan plan({});
  plan.OnListFailed(kDown, kNow);
  EXPECT_EQ(plan.Next(0.5).action, Action::kListFirstPage);
  EXPECT_GT(plan.Next(0.5).wait, absl::ZeroDuration());
}

TEST(ReflectorPlan, AClosedWatchGoesOnAtOnceWhereItWas) {
  ReflectorPlan plan = Watching("7");
  plan.OnWatchProgress("8");
  plan.OnWatchProgress("");
  plan.OnWatchEnded(End::kClosed, absl::OkStatus(), kLong, kNow);
  EXPECT_EQ(plan.Next(0.9).action, Action::kWatch);
  EXPECT_EQ(plan.Next(0.9).resource_version, "8");
  EXPECT_EQ(plan.Next(0.9).wait, absl::ZeroDuration());
}

TEST(ReflectorPlan, ABrokenWatchGoesOnWhereItWasAfterAWait) {
  ReflectorPlan plan = Watching("7");
  plan.OnWatchEnded(End::kBroken, kDown, kLong, kNow);
  EXPECT_EQ(plan.Next(0.9).action, Action::kWatch);
  EXPECT_EQ(plan.Next(0.9).resource_version, "7");
  EXPECT_EQ(plan.Next(0.5).wait, absl::Milliseconds(400));
}

TEST(ReflectorPlan, ListsAgainFromTheNewest) {
  const absl::Status forbidden = ToStatus({403, "Forbidden", "", {}});
  const absl::Status unreadable = absl::DataLossError("not JSON");
  for (const auto& [end, status] : {std::pair{End::kExpired, kGone}, std::pair{End::kUnreadable, unreadable},
                                    std::pair{End::kRefused, forbidden}}) {
    ReflectorPlan plan = Watching("7");
    plan.OnWatchEnded(end, status, kLong, kNow);
    EXPECT_EQ(plan.Next(0.5).action, Action::kListFirstPage) << status;
    EXPECT_EQ(plan.Next(0.5).resource_version, "") << "the cache may be older than what was seen";
    EXPECT_GT(plan.Next(0.5).wait, absl::ZeroDuration()) << "a server that always says so is not to be overrun";
  }
}

TEST(ReflectorPlan, AServerInTroubleIsNotAskedForListsToo) {
  for (const int code : {429, 500, 503}) {
    ReflectorPlan plan = Watching("7");
    plan.OnWatchEnded(End::kRefused, ToStatus({code, "", "", absl::Seconds(70)}), absl::ZeroDuration(), kNow);
    EXPECT_EQ(plan.Next(0.5).action, Action::kWatch) << code;
    EXPECT_EQ(plan.Next(0.5).wait, absl::Seconds(70)) << code;
  }
}

TEST(ReflectorPlan, ListsAgainAfterThreeWatchesThatEndAtOnce) {
  ReflectorPlan plan = Watching("7");
  for (int i = 0; i < 2; ++i) {
    plan.OnWatchEnded(End::kClosed, kDown, absl::Milliseconds(5), kNow);
    EXPECT_EQ(plan.Next(0.5).action, Action::kWatch) << i;
    EXPECT_GT(plan.Next(0.5).wait, absl::ZeroDuration()) << i;
  }
  plan.OnWatchEnded(End::kClosed, kDown, absl::Milliseconds(5), kNow);
  EXPECT_EQ(plan.Next(0.5).action, Action::kListFirstPage);
  EXPECT_EQ(plan.Next(0.5).resource_version, "");
}

TEST(ReflectorPlan, AShortWatchThatBroughtSomethingIsFine) {
  ReflectorPlan plan = Watching("7");
  for (int i = 0; i < 20; ++i) {
    plan.OnWatchProgress(std::to_string(8 + i));
    plan.OnWatchEnded(End::kClosed, absl::OkStatus(), absl::Milliseconds(5), kNow);
    EXPECT_EQ(plan.Next(0.5).action, Action::kWatch) << i;
    EXPECT_EQ(plan.Next(0.5).wait, absl::ZeroDuration()) << i;
  }
}

TEST(ReflectorPlan, TheBackoffGrowsToItsLimitAndBeginsAnewWhenHealthy) {
  ReflectorPlan plan({});
  absl::Duration now = kNow;
  absl::Duration before;
  for (int i = 0; i < 40; ++i) {
    plan.OnListFailed(kDown, now);
    now += absl::Seconds(30);
    const absl::Duration most = plan.Next(1).wait;
    EXPECT_GE(most, before);
    EXPECT_LE(most, absl::Seconds(30));
    before = most;
  }
  EXPECT_EQ(before, absl::Seconds(30));
  now += absl::Minutes(2);
  plan.OnListFailed(kDown, now);
  EXPECT_EQ(plan.Next(1).wait, absl::Milliseconds(800));
}

// Whatever happens in whatever order.
TEST(ReflectorPlan, NeverGoesBackInTimeAndNeverSpins) {
  for (std::uint32_t seed = 0; seed < 2000; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](int most) { return std::uniform_int_distribution<int>(0, most)(random); };
    const absl::Status errors[] = {kGone, kDown, ToStatus({429, "", "", absl::Seconds(3)}), ToStatus({403, "", "", {}}),
                                   absl::DataLossError("x")};
    ReflectorPlan plan({});
    absl::Duration now = kNow;
    int version = 100;
    int seen = 0;
    bool synced = false;
    std::string token;
    int steps_without_wait = 0;
    for (int step = 0; step < 100; ++step) {
      const ReflectorPlan::Step next = plan.Next(0.5);
      ASSERT_LE(next.wait, absl::Seconds(30)) << "seed " << seed;
      steps_without_wait = next.wait > absl::ZeroDuration() ? 0 : steps_without_wait + 1;
      now += next.wait + absl::Milliseconds(pick(2000));
      version += pick(3);
      if (next.action == Action::kWatch) {
        ASSERT_TRUE(synced) << "seed " << seed;
        ASSERT_EQ(next.resource_version, std::to_string(seen)) << "seed " << seed;
        const bool event = pick(1) == 0;
        if (event) {
          seen = version;
          plan.OnWatchProgress(std::to_string(seen));
          steps_without_wait = 0;
        }
        const auto lived = pick(1) == 0 ? absl::Milliseconds(1) : kLong;
        if (lived == kLong) steps_without_wait = 0;
        plan.OnWatchEnded(static_cast<End>(pick(4)), errors[pick(4)], lived, now);
      } else {
        if (synced) {
          ASSERT_EQ(next.resource_version, "") << "seed " << seed;
        }
        if (next.action == Action::kListNextPage) {
          ASSERT_EQ(next.continue_token, token) << "seed " << seed;
        }
        if (pick(2) == 0) {
          plan.OnListFailed(errors[pick(4)], now);
          continue;
        }
        if (next.action == Action::kListFirstPage) seen = version;
        token = pick(2) == 0 ? "token-" + std::to_string(step) : "";
        plan.OnPage(std::to_string(version), token);
        synced = synced || token.empty();
        steps_without_wait = 0;
      }
      ASSERT_LE(steps_without_wait, 2) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace downpour::kube
