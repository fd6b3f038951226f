#include "operator/kube/wall_clock.h"

#include "gtest/gtest.h"
#include "tests/support/wall_clock.h"

namespace downpour::kube {
namespace {

TEST(NextMomentTest, ItIsTheMachinesTime) {
  EXPECT_EQ(NextMoment(0, absl::ZeroDuration(), 1000), 1000);
  EXPECT_EQ(NextMoment(1000, absl::Seconds(10), 1010), 1010);
  EXPECT_EQ(NextMoment(1000, absl::Seconds(10), 1009), 1009) << "slowed down a little";
}

TEST(NextMomentTest, AForwardStepIsFollowed) { EXPECT_EQ(NextMoment(1000, absl::Seconds(10), 1610), 1610); }

TEST(NextMomentTest, AfterAStepBackItGoesOnAtHalfSpeedUntilTheMachinesHasCaughtUp) {
  double last = 1000;
  double wall = 400;
  int seconds = 0;
  for (; last > wall; ++seconds) {
    const double next = NextMoment(last, absl::Seconds(1), ++wall);
    EXPECT_GE(next, last + 0.5);
    last = next;
  }
  EXPECT_EQ(seconds, 1200) << "twice the step";
}

TEST(WallClockTest, NeverGoesBack) {
  WallClock clock;
  const double before = clock.Now();
  EXPECT_GT(before, 1.7e9);
  downpour::testing::SetWallClock(std::chrono::minutes(-10));
  const double after = clock.Now();
  downpour::testing::SetWallClock(std::chrono::nanoseconds(0));
  EXPECT_GE(after, before);
  EXPECT_LT(after, before + 300);
}

}  // namespace
}  // namespace downpour::kube
