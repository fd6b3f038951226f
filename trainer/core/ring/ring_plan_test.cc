#include "trainer/core/ring/ring_plan.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace downpour::core {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = RingDecision::Kind;

constexpr Time kNow = absl::Seconds(100);
constexpr Time kLongAgo = absl::Seconds(10);

// Workers by session, each of the index of its session.
class RingPlanTest : public ::testing::Test {
 protected:
  RingPlanTest() {
    situation_.wish = {1, 3};
    situation_.since = situation_.broken_since = kLongAgo;
  }
  RingCandidate& Add(std::uint64_t session, bool has_state) {
    RingCandidate candidate;
    candidate.index = static_cast<std::uint32_t>(session);
    candidate.session = session;
    candidate.has_state = has_state;
    situation_.candidates.push_back(candidate);
    return situation_.candidates.back();
  }
  // A ring of 1, 2 and 3 that trains.
  void Train() {
    situation_.ring = {1, 2, 3};
    for (const std::uint64_t session : situation_.ring) Add(session, true);
  }
  RingDecision Plan() const { return PlanRing(situation_, kNow); }

  RingSituation situation_;
};

TEST_F(RingPlanTest, BeginsWithAllThatAreExpected) {
  situation_.since = kNow;
  Add(1, false);
  Add(2, false);
  EXPECT_EQ(Plan().kind, Kind::kWait);
  EXPECT_EQ(Plan().reason, "2 of 3 workers are there");
  Add(3, false);
  EXPECT_EQ(Plan().kind, Kind::kBegin);
  EXPECT_THAT(Plan().members, ElementsAre(1, 2, 3));
}

TEST_F(RingPlanTest, WaitsForThoseWhoMayComeBackWithWhatTheOthersHaveNot) {
  Train();
  situation_.candidates.erase(situation_.candidates.begin(), situation_.candidates.begin() + 2);
  EXPECT_EQ(Plan().kind, Kind::kForm) << "it has all";
  situation_.may_return_until = kNow + absl::Seconds(1);
  EXPECT_EQ(Plan().kind, Kind::kForm) << "it has all";
  situation_.incomplete = true;
  EXPECT_EQ(Plan().kind, Kind::kAwait);
  EXPECT_EQ(Plan().reason, "those who have the rest of the state are not heard of, and may come back");
  situation_.may_return_until = kNow;
  EXPECT_EQ(Plan().kind, Kind::kForm) << "they have not";
  situation_.may_return_until = kNow + absl::Seconds(1);
  situation_.incomplete = false;
  situation_.candidates = {};
  Add(4, false);
  EXPECT_EQ(Plan().kind, Kind::kAwait) << "a new one has nothing";
  situation_.may_return_until = kNow;
  EXPECT_EQ(Plan().kind, Kind::kBegin);
}

TEST_F(RingPlanTest, BeginsWithFewerWhenNobodyElseComes) {
  Add(1, false);
  EXPECT_EQ(Plan().kind, Kind::kBegin);
  situation_.wish.least = 2;
  EXPECT_EQ(Plan().kind, Kind::kWait);
  EXPECT_EQ(Plan().reason, "1 of at least 2 workers are there");
}

TEST_F(RingPlanTest, StaysAsItIs) {
  Train();
  EXPECT_EQ(Plan().kind, Kind::kKeep);
  EXPECT_EQ(Plan().reason, "");
}

TEST_F(RingPlanTest, GoesOnWithoutOneThatIsGone) {
  Train();
  situation_.candidates.erase(situation_.candidates.begin() + 1);
  EXPECT_EQ(Plan().kind, Kind::kForm);
  EXPECT_THAT(Plan().members, ElementsAre(1, 3));
  EXPECT_EQ(Plan().reason, "rank 1 is gone: 2 workers");
}

TEST_F(RingPlanTest, OfAnotherCoordinatorItIsFormedAnew) {
  Train();
  situation_.of_another_coordinator = true;
  EXPECT_EQ(Plan().kind, Kind::kForm);
  EXPECT_THAT(Plan().members, ElementsAre(1, 2, 3));
  situation_.candidates[1].busy = true;
  EXPECT_EQ(Plan().kind, Kind::kKeep);
}

TEST_F(RingPlanTest, GrowsOnceNobodyElseComes) {
  Train();
  Add(4, false);
  situation_.since = kNow;
  EXPECT_EQ(Plan().kind, Kind::kKeep);
  situation_.since = kLongAgo;
  EXPECT_EQ(Plan().kind, Kind::kForm);
  EXPECT_THAT(Plan().members, ElementsAre(1, 2, 3, 4));
}

TEST_F(RingPlanTest, ATaskIsNotInterruptedByWhoComes) {
  Train();
  situation_.candidates[0].busy = true;
  Add(4, false);
  EXPECT_EQ(Plan().kind, Kind::kKeep);
  EXPECT_EQ(Plan().reason, "worker-1 has a task");
}

TEST_F(RingPlanTest, OthersNoticeABrokenGroupFirst) {
  Train();
  situation_.candidates[0].broken = true;
  situation_.broken_since = kNow;
  EXPECT_EQ(Plan().kind, Kind::kKeep);
  situation_.broken_since = kNow - kRingNotices;
  EXPECT_EQ(Plan().kind, Kind::kForm);
  EXPECT_THAT(Plan().members, ElementsAre(1, 2, 3));
}

TEST_F(RingPlanTest, ABrokenGroupThatAllHaveNoticedIsFormedAnewAtOnce) {
  Train();
  for (RingCandidate& candidate : situation_.candidates) candidate.broken = true;
  situation_.broken_since = kNow;
  EXPECT_EQ(Plan().kind, Kind::kForm);
}

TEST_F(RingPlanTest, WhoLeavesIsLeftOut) {
  Train();
  situation_.candidates[2].leaving = true;
  EXPECT_EQ(Plan().kind, Kind::kForm);
  EXPECT_THAT(Plan().members, ElementsAre(1, 2));
}

TEST_F(RingPlanTest, WhoLeavesAndAloneHasTheStateHandsItOverFirst) {
  situation_.ring = {1};
  Add(1, true).leaving = true;
  Add(2, false);
  EXPECT_EQ(Plan().kind, Kind::kForm);
  EXPECT_THAT(Plan().members, ElementsAre(2, 1)) << "rank 0 is of those who stay";
  situation_.ring = {2, 1};
  EXPECT_EQ(Plan().kind, Kind::kKeep);
  EXPECT_THAT(Plan().reason, HasSubstr("hand over"));
  situation_.candidates[1].has_state = true;
  EXPECT_EQ(Plan().kind, Kind::kForm);
  EXPECT_THAT(Plan().members, ElementsAre(2));
}

TEST_F(RingPlanTest, AllLeave) {
  Train();
  for (RingCandidate& candidate : situation_.candidates) candidate.leaving = true;
  EXPECT_EQ(Plan().kind, Kind::kWait);
}

TEST_F(RingPlanTest, ADividedStateIsHandedOverAlsoWhereTooFewStay) {
  Train();
  situation_.wish.least = 3;
  situation_.holders = 3;
  situation_.hand_over = true;
  situation_.candidates[0].leaving = true;
  EXPECT_EQ(Plan().kind, Kind::kForm);
  EXPECT_THAT(Plan().members, ElementsAre(2, 3, 1)) << "behind those who stay";
  situation_.ring = {2, 3, 1};
  situation_.holders = 2;
  EXPECT_EQ(Plan().kind, Kind::kKeep) << "until they have it";
  situation_.hand_over = false;
  EXPECT_EQ(Plan().kind, Kind::kWait);
}

TEST_F(RingPlanTest, AStateThatIsLostBeginsAnew) {
  Train();
  situation_.holders = 3;
  for (RingCandidate& candidate : situation_.candidates) candidate.broken = true;
  situation_.state_lost = "some of it is gone";
  EXPECT_EQ(Plan().kind, Kind::kBegin);
  EXPECT_THAT(Plan().reason, HasSubstr("some of it is gone"));
}

TEST_F(RingPlanTest, ItBeginsAnewWhenNobodyHasAState) {
  situation_.ring = {1, 2};
  Add(3, false);
  EXPECT_EQ(Plan().kind, Kind::kBegin);
  EXPECT_THAT(Plan().members, ElementsAre(3));
}

RingPosition Position(std::uint32_t incarnation, std::uint32_t epoch, std::uint64_t updates) {
  RingPosition position;
  position.known = true;
  position.took.set_generation(1);
  position.took.set_incarnation(incarnation);
  position.took.set_epoch(epoch);
  position.updates = updates;
  return position;
}

TEST(RingPositionTest, TheViewOfTheNewestStepGoesBeforeTheNumberOfUpdates) {
  EXPECT_GT(ComparePositions(Position(1, 3, 10), Position(1, 2, 12)), 0);
  EXPECT_GT(ComparePositions(Position(2, 4, 10), Position(1, 4, 10)), 0);
  EXPECT_LT(ComparePositions(Position(1, 2, 10), Position(1, 2, 11)), 0);
  EXPECT_EQ(ComparePositions(Position(1, 2, 10), Position(1, 2, 10)), 0);
  EXPECT_LT(ComparePositions(RingPosition(), Position(1, 1, 0)), 0);
  EXPECT_EQ(NewestOf({RingPosition(), Position(1, 2, 5), Position(1, 2, 5), Position(1, 1, 9)}), 1);
  EXPECT_EQ(NewestOf({}), -1);
}

}  // namespace
}  // namespace downpour::core
