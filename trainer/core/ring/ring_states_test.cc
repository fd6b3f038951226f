#include "trainer/core/ring/ring_states.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace downpour::core {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::uint32_t kIncarnation = 2;

// Sessions 10, 11, ... are the ranks 0, 1, ... of a ring.
class RingStatesTest : public ::testing::Test {
 protected:
  RingStatesTest() { SetView(1, 3); }

  void SetView(std::uint32_t epoch, std::uint64_t members) {
    view_.mutable_stamp()->set_generation(1);
    view_.mutable_stamp()->set_incarnation(kIncarnation);
    view_.mutable_stamp()->set_epoch(epoch);
    view_.set_ring_epoch(epoch);
    view_.set_mode(v1::SYNCHRONOUS);
    view_.set_updates_per_step(4);
    view_.clear_ring();
    for (std::uint64_t rank = 0; rank < members; ++rank) view_.add_ring()->set_session(10 + rank);
    states_.OnView();
  }

  // In the group of the view at hand.
  v1::RingState State(std::uint64_t updates) const {
    v1::RingState state;
    *state.mutable_joined() = view_.stamp();
    *state.mutable_took() = view_.stamp();
    state.set_updates(updates);
    return state;
  }
  v1::RingState Waiting(std::uint64_t updates, std::uint32_t digest) const {
    v1::RingState state = State(updates);
    state.set_waits(true);
    state.set_digest(digest);
    return state;
  }
  v1::RingState Holding(std::uint32_t rank, std::uint32_t holders) const {
    v1::RingState state = State(8);
    state.add_shares()->set_rank(rank);
    state.mutable_shares(0)->set_holders(holders);
    return state;
  }

  v1::View view_;
  RingStates states_{&view_, kIncarnation};
};

TEST_F(RingStatesTest, ARingIsFormedWhenAllAreInItsGroupAndNoGroupFailed) {
  EXPECT_FALSE(states_.IsFormed());
  for (const std::uint64_t session : {10, 11}) states_.Tell(session, State(4));
  EXPECT_FALSE(states_.IsFormed()) << "one has told nothing";
  states_.Tell(12, State(4));
  EXPECT_TRUE(states_.IsFormed());
  v1::RingState broken = State(4);
  broken.set_broken("rank 0 is lost");
  EXPECT_TRUE(states_.IsBroken(states_.Tell(11, broken)));
  EXPECT_FALSE(states_.IsFormed());
  SetView(2, 3);
  EXPECT_FALSE(states_.IsBroken(states_.told().at(11))) << "that was the group before";
  EXPECT_FALSE(states_.IsFormed()) << "nobody is in the new one";
}

TEST_F(RingStatesTest, AllWaitOnlyWithTheSameUpdates) {
  for (const std::uint64_t session : {10, 11}) states_.Tell(session, Waiting(8, 7));
  states_.Tell(12, State(8));
  EXPECT_FALSE(states_.AllWait(8));
  states_.Tell(12, Waiting(4, 7));
  EXPECT_FALSE(states_.AllWait(8));
  states_.Tell(12, Waiting(8, 7));
  EXPECT_TRUE(states_.AllWait(8));
  EXPECT_FALSE(states_.AllWait(12));
}

TEST_F(RingStatesTest, OnlyThoseWhoAreEquallyFarCanDiffer) {
  states_.Tell(10, Waiting(8, 7));
  states_.Tell(11, Waiting(4, 6));
  EXPECT_THAT(states_.Different(), IsEmpty());
  states_.Tell(12, Waiting(8, 5));
  EXPECT_THAT(states_.Different(), ElementsAre(10, 12));
  states_.Tell(12, Waiting(8, 7));
  EXPECT_THAT(states_.Different(), IsEmpty());
}

TEST_F(RingStatesTest, WhatOneHasTakenOnlyItsOwnStepCanBeMissingElsewhere) {
  states_.Tell(10, State(8));
  states_.Tell(11, State(4));
  states_.Tell(13, State(4));
  EXPECT_TRUE(states_.IsRecent(10));
  EXPECT_TRUE(states_.IsRecent(11));
  EXPECT_TRUE(states_.IsRecent(13)) << "one step behind";
  states_.Tell(10, State(16));
  EXPECT_TRUE(states_.IsRecent(11)) << "it told that long ago: it took part in the step";
  EXPECT_FALSE(states_.IsRecent(13)) << "it is not in the ring";
  EXPECT_EQ(states_.Newest()->updates(), 16u);
  states_.End(10);
  EXPECT_EQ(states_.Newest()->updates(), 4u) << "as told last";
  EXPECT_EQ(states_.LeastUpdates(), 12u) << "all but the newest step";
  states_.BeginHistory();
  EXPECT_EQ(states_.LeastUpdates(), 4u);
}

TEST_F(RingStatesTest, AStateOfAnotherGenerationIsNone) {
  v1::RingState old = State(100);
  old.mutable_took()->set_generation(7);
  states_.Tell(10, old);
  EXPECT_EQ(states_.Newest(), nullptr);
  EXPECT_FALSE(states_.IsRecent(10));
  EXPECT_EQ(states_.LeastUpdates(), 0u);
}

TEST_F(RingStatesTest, OfADividedStateThoseWhoStayHaveAllOrNot) {
  view_.set_state_copies(2);
  view_.set_state_holders(3);
  for (std::uint32_t rank = 0; rank < 3; ++rank) states_.Tell(10 + rank, Holding(rank, 3));
  EXPECT_TRUE(states_.HaveAllWithoutLeavers());
  states_.Leave(11);
  EXPECT_TRUE(states_.Leaves(11));
  EXPECT_TRUE(states_.HaveAllWithoutLeavers()) << "its part is held by another one too";
  states_.Tell(12, Holding(0, 2));
  EXPECT_FALSE(states_.HaveAllWithoutLeavers()) << "it has the share of another ring";
  states_.Tell(12, Holding(2, 3));
  states_.Leave(10);
  EXPECT_FALSE(states_.HaveAllWithoutLeavers());
  states_.End(10);
  states_.End(11);
  EXPECT_FALSE(states_.AnyLeaves());
  EXPECT_FALSE(states_.HaveAllWithoutLeavers()) << "nobody has told of it";
}

TEST_F(RingStatesTest, WhoIsMissedIsWaitedForUntilHeIsBackOrGone) {
  const Time now = absl::Seconds(100);
  EXPECT_LT(states_.MayReturnUntil(), now);
  states_.Miss({0, 3}, now);
  states_.Miss({1, 3}, now);
  states_.Miss({2, 0}, now);
  EXPECT_EQ(states_.MayReturnUntil(), now + kRingReturns);
  const Time later = now + absl::Seconds(60);
  states_.Come({0, 3}, /*alone=*/false, later);
  EXPECT_EQ(states_.MayReturnUntil(), later + kRingReturns) << "the others may be where it was";
  states_.Come({1, 4}, /*alone=*/false, later + absl::Seconds(60));
  EXPECT_EQ(states_.MayReturnUntil(), later + kRingReturns) << "that is another process";
  states_.Come({5, 1}, /*alone=*/true, later + absl::Seconds(90));
  EXPECT_EQ(states_.MayReturnUntil(), later + absl::Seconds(90) + kRingReturns) << "nobody was there before";
  states_.Forget({2, 1});
  EXPECT_LT(states_.MayReturnUntil(), now) << "nobody is missed";
  states_.Miss({1, 4}, now);
  states_.Forget({1, 3});
  EXPECT_EQ(states_.MayReturnUntil(), now + kRingReturns) << "that was the process before";
}

TEST_F(RingStatesTest, OfADividedStateThoseWhoLiveHaveAllOrNot) {
  view_.set_state_copies(1);
  view_.set_state_holders(3);
  for (std::uint32_t rank = 0; rank < 2; ++rank) states_.Tell(10 + rank, Holding(rank, 3));
  EXPECT_FALSE(states_.HaveAll());
  states_.Tell(99, Holding(2, 3));
  EXPECT_TRUE(states_.HaveAll()) << "it has a session that is not in the ring";
  states_.Tell(99, Holding(2, 4));
  EXPECT_FALSE(states_.HaveAll());
}

TEST_F(RingStatesTest, ALostStateIsOneOfTheViewAtHand) {
  v1::RingState lost = State(4);
  lost.set_state_lost("nobody has part 1 of 3");
  states_.Tell(11, lost);
  EXPECT_EQ(states_.StateLost(), "nobody has part 1 of 3");
  SetView(2, 2);
  EXPECT_EQ(states_.StateLost(), "");
}

}  // namespace
}  // namespace downpour::core
