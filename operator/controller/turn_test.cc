#include "operator/controller/turn.h"

#include <map>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace downpour::controller {
namespace {

constexpr double kNow = 1'800'000'000;

TEST(TurnTest, TheNextTurnIsHalfAPeriodToOneAndAHalfAwayAndThenAPeriodEach) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> periods(0.5, 500);
  std::uniform_real_distribution<double> times(kNow, kNow + 1000);
  for (int seed = 0; seed < 2000; ++seed) {
    const std::string uid = absl::StrCat("uid-", seed);
    const double period = periods(random);
    const double last = times(random);
    const double turn = NextTurn(uid, period, last);
    EXPECT_GE(turn, last + period / 2 - 1e-5);
    EXPECT_LE(turn, last + 1.5 * period + 1e-5);
    EXPECT_NEAR(NextTurn(uid, period, turn + 0.1 * period), turn + period, 1e-5) << "some time late, and on time again";
  }
}

TEST(TurnTest, JobsThatStartedTogetherAreSpreadEvenly) {
  constexpr int kJobs = 1000;
  constexpr double kPeriod = 250;
  std::map<int, int> turns;  // by tenth of the period
  for (int job = 0; job < kJobs; ++job) {
    const double turn = NextTurn(absl::StrCat("5f0c6c1e-7f3e-4c39-9b8d-", job), kPeriod, kNow);
    ++turns[static_cast<int>((turn - kNow) / kPeriod * 10)];
  }
  for (const auto& [tenth, count] : turns) EXPECT_LE(count, 160) << tenth;
}

}  // namespace
}  // namespace downpour::controller
