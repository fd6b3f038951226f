#include "trainer/core/staleness_bound.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace downpour::core {
namespace {

constexpr std::uint32_t kSlice = 3;

TEST(StalenessBoundTest, TheFastestWaitsForTheSlowestThatTrains) {
  StalenessBound bound(2, {kSlice});
  for (const std::uint64_t session : {1, 2}) bound.SetTraining(session, true);
  for (const std::uint64_t clock : {1, 2}) {
    bound.SetClock(kSlice, 1, clock);
    EXPECT_TRUE(bound.MayBegin(kSlice, 1));
  }
  bound.SetClock(kSlice, 1, 3);
  EXPECT_FALSE(bound.MayBegin(kSlice, 1));
  EXPECT_TRUE(bound.MayBegin(kSlice, 2)) << "the slowest never waits";
  bound.SetClock(kSlice, 2, 1);
  EXPECT_TRUE(bound.MayBegin(kSlice, 1));
  bound.SetClock(kSlice, 1, 4);
  EXPECT_FALSE(bound.MayBegin(kSlice, 1));
  bound.SetTraining(2, false);
  EXPECT_TRUE(bound.MayBegin(kSlice, 1)) << "the other one has nothing to do";
}

TEST(StalenessBoundTest, WhoIsOverDoesNotCount) {
  StalenessBound bound(0, {kSlice});
  for (const std::uint64_t session : {1, 2}) bound.SetTraining(session, true);
  bound.SetClock(kSlice, 1, 1);
  EXPECT_FALSE(bound.MayBegin(kSlice, 1));
  bound.End(2);
  EXPECT_TRUE(bound.MayBegin(kSlice, 1));
}

TEST(StalenessBoundTest, ALateCopyChangesNothing) {
  StalenessBound bound(0, {kSlice});
  for (const std::uint64_t session : {1, 2}) bound.SetTraining(session, true);
  for (const std::uint64_t session : {1, 2}) bound.SetClock(kSlice, session, 2);
  bound.SetClock(kSlice, 2, 1);
  EXPECT_EQ(bound.clock(kSlice, 2), 2u);
  EXPECT_TRUE(bound.MayBegin(kSlice, 1));
}

TEST(StalenessBoundTest, WhoJoinsStartsAtTheSlowestClock) {
  StalenessBound bound(1, {kSlice});
  for (const std::uint64_t session : {1, 2}) bound.SetTraining(session, true);
  bound.SetClock(kSlice, 1, 11);
  bound.SetClock(kSlice, 2, 10);
  bound.SetTraining(3, true);
  EXPECT_EQ(bound.clock(kSlice, 3), 10u);
  bound.SetClock(kSlice, 3, 12);
  EXPECT_FALSE(bound.MayBegin(kSlice, 3));
  bound.SetTraining(2, false);
  bound.SetClock(kSlice, 1, 40);
  bound.SetTraining(2, true);
  EXPECT_EQ(bound.clock(kSlice, 2), 12u) << "the slowest clock by then";
}

// Several ps, which hear of everything at different times. Whoever begins is at most the bound ahead of all others that
// have begun one since they train, and somebody may always go on.
TEST(StalenessBoundTest, HoldsInAnyOrderOnSeveralPs) {
  struct Session {
    std::uint64_t clock = 0;
    bool begun = false;
    std::set<std::size_t> untold;  // ps that do not have its newest update yet
  };
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto most = static_cast<std::uint32_t>(random() % 3);
    std::vector<StalenessBound> ps(3, StalenessBound(most, {kSlice}));
    std::map<std::uint64_t, Session> training;
    std::uint64_t fresh = 1;
    for (std::uint32_t step = 0; step < 600; ++step) {
      const auto what = static_cast<std::uint32_t>(random() % 30);
      if (training.empty() || (what == 0 && training.size() < 6)) {
        for (StalenessBound& one : ps) one.SetTraining(fresh, true);
        training[fresh++];
        continue;
      }
      const auto chosen = std::next(training.begin(), static_cast<std::ptrdiff_t>(random() % training.size()));
      auto& [number, session] = *chosen;
      if (what == 1) {
        for (StalenessBound& one : ps) one.End(number);
        training.erase(chosen);
        continue;
      }
      const auto may_begin = [&](std::uint64_t one) {
        return std::all_of(ps.begin(), ps.end(), [&](const StalenessBound& at) { return at.MayBegin(kSlice, one); });
      };
      ASSERT_TRUE(std::any_of(training.begin(), training.end(),
                              [&](const auto& one) { return !one.second.untold.empty() || may_begin(one.first); }))
          << "seed " << seed << ": all wait";
      if (!session.untold.empty()) {
        const std::size_t at = *session.untold.begin();
        session.untold.erase(at);
        ps[at].SetClock(kSlice, number, session.clock + 1);
        if (session.untold.empty()) ++session.clock;
      } else if (may_begin(number)) {
        for (const StalenessBound& one : ps) session.clock = std::max(session.clock, one.clock(kSlice, number));
        for (StalenessBound& one : ps) one.SetClock(kSlice, number, session.clock);
        if (!may_begin(number)) continue;
        session.begun = true;
        for (const auto& [other_number, other] : training) {
          if (!other.begun) continue;
          ASSERT_LE(session.clock, other.clock + most) << "seed " << seed;
        }
        session.untold = {0, 1, 2};
      }
    }
  }
}

}  // namespace
}  // namespace downpour::core
