#include "trainer/core/ps_load.h"

#include <cstdint>
#include <map>
#include <vector>

#include "gtest/gtest.h"

namespace downpour::core {
namespace {

constexpr absl::Duration kWindow = absl::Seconds(10);
constexpr absl::Duration kPeriod = absl::Seconds(1);

class PsLoadsTest : public ::testing::Test {
 protected:
  PsLoadsTest() { loads_.OnLayout({{0, 1000}, {1, 1000}, {2, 1000}}); }

  // Each ps is busy for its share of a time that is more than a measurement takes.
  void Pass(const std::vector<double>& shares, absl::Duration length = kWindow + 2 * kPeriod) {
    for (const Time end = now_ + length; now_ < end; now_ += kPeriod) {
      for (std::uint32_t ps = 0; ps < shares.size(); ++ps) {
        busy_[ps] += shares[ps] * absl::ToDoubleSeconds(kPeriod);
        loads_.OnStats(ps, sessions_[ps], busy_[ps], now_);
      }
    }
  }
  std::vector<double> slowness() const { return {loads_.slowness(0), loads_.slowness(1), loads_.slowness(2)}; }

  PsLoads loads_{kWindow};
  Time now_ = absl::Seconds(100);
  std::map<std::uint32_t, double> busy_;
  std::map<std::uint32_t, std::uint64_t> sessions_ = {{0, 10}, {1, 11}, {2, 12}};
};

using Slowness = std::vector<double>;

TEST_F(PsLoadsTest, WhoIsBusyLongerWithAsMuchIsSlower) {
  EXPECT_EQ(slowness(), (Slowness{1, 1, 1}));
  Pass({0.25, 0.75, 0.25});
  EXPECT_EQ(slowness(), (Slowness{1, 3, 1}));
}

TEST_F(PsLoadsTest, WhatIsHeldCounts) {
  loads_.OnLayout({{0, 1500}, {1, 1000}, {2, 1000}});
  Pass({0.9, 0.6, 0.6});
  EXPECT_EQ(slowness(), (Slowness{1, 1, 1}));
}

TEST_F(PsLoadsTest, ItDoesNotMatterWhileNobodyIsBusy) {
  Pass({0.02, 0.09, 0.02}, 5 * kWindow);
  EXPECT_EQ(slowness(), (Slowness{1, 1, 1}));
}

TEST_F(PsLoadsTest, WhatIsInForceStaysUntilItIsClearlyAnother) {
  Pass({0.5, 0.7, 0.5}, 3 * kWindow);
  EXPECT_EQ(slowness(), (Slowness{1, 1, 1}));
  Pass({0.25, 1, 0.25}, 3 * kWindow);
  EXPECT_EQ(slowness(), (Slowness{1, 4, 1}));
  Pass({0.25, 0.75, 0.25}, 3 * kWindow);
  EXPECT_EQ(slowness(), (Slowness{1, 4, 1}));
  Pass({0.05, 0.05, 0.05}, 3 * kWindow);
  EXPECT_EQ(slowness(), (Slowness{1, 4, 1})) << "that nobody is busy may be due to it";
  Pass({0.5, 0.5, 0.5}, 3 * kWindow);
  EXPECT_EQ(slowness(), (Slowness{1, 1, 1}));
}

TEST_F(PsLoadsTest, AMeasurementIsOfOneLayout) {
  Pass({0.25, 0.75, 0.25}, kWindow - kPeriod);
  loads_.OnLayout({{0, 1100}, {1, 1000}, {2, 900}});
  Pass({0.25, 0.75, 0.25}, kWindow - kPeriod);
  EXPECT_EQ(slowness(), (Slowness{1, 1, 1}));
  loads_.OnLayout({{0, 1100}, {1, 1000}, {2, 900}});  // as before
  Pass({0.25, 0.75, 0.25}, 2 * kPeriod);
  EXPECT_GT(loads_.slowness(1), 2);
}

TEST_F(PsLoadsTest, OfAnotherProcessNothingIsKnown) {
  Pass({0.25, 0.75, 0.25});
  sessions_[1] = 21;
  busy_[1] = 0;
  Pass({0.25, 0.25, 0.25}, kPeriod);
  EXPECT_EQ(slowness(), (Slowness{1, 1, 1}));
}

TEST_F(PsLoadsTest, OneThatIsSilentIsWaitedFor) {
  Pass({0.25, 0.75}, 3 * kWindow);
  EXPECT_EQ(slowness(), (Slowness{1, 1, 1}));
  // Once it is gone it is not.
  loads_.OnLayout({{0, 1500}, {1, 1500}});
  Pass({0.25, 0.75}, 3 * kWindow);
  EXPECT_EQ(slowness(), (Slowness{1, 3, 1}));
}

TEST_F(PsLoadsTest, WhatRequestsCostSaysNothingOfOneThatHoldsLittle) {
  loads_.OnLayout({{0, 1000}, {1, 1000}, {2, 10}});
  Pass({0.6, 0.6, 0.3});
  EXPECT_EQ(slowness(), (Slowness{1, 1, 1}));
  // Nor is it believed that one is a thousand times as slow.
  loads_.OnLayout({{0, 1000}, {1, 1000}, {2, 1000}});
  Pass({0.001, 1, 0.001});
  EXPECT_EQ(loads_.slowness(1), 8);
}

}  // namespace
}  // namespace downpour::core
