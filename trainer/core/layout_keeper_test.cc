#include "trainer/core/layout_keeper.h"

#include <cstdint>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace downpour::core {
namespace {

using Kind = LayoutKeeper::Decision::Kind;
using Moves = LayoutKeeper::Moves;

constexpr Time kStart = absl::Seconds(100);
constexpr absl::Duration kPatience = absl::Seconds(3);

v1::PsMember Member(std::uint32_t index) {
  v1::PsMember member;
  member.set_index(index);
  member.set_session(100 + index);
  member.set_process_incarnation(1);
  return member;
}

class LayoutKeeperTest : public ::testing::Test {
 protected:
  // `count` ps, each the primary of a slice, of which the next one has the standby if `factor` is 2.
  void Begin(std::uint32_t count, std::uint32_t factor) {
    registry_.SetCount(count);
    view_.mutable_stamp()->set_epoch(4);
    view_.set_replication_factor(factor);
    for (std::uint32_t index = 0; index < count; ++index) {
      *view_.add_ps() = Member(index);
      quorum_.insert(100 + index);
      Register(index);
      v1::TensorSpec* tensor = view_.add_tensors();
      tensor->set_name(absl::StrCat("tensor", index));
      tensor->set_type(v1::FLOAT32);
      tensor->add_shape(8);
      v1::SlicePlacement* placement = view_.add_layout();
      placement->set_primary(index);
      placement->set_primary_replica(1);
      if (factor == 1) continue;
      placement->set_standby((index + 1) % count);
      placement->set_standby_replica(2);
    }
    keeper_.OnView(view_);
    EXPECT_EQ(Decide().kind, Kind::kNothing);
  }
  void Register(std::uint32_t index) {
    v1::RegisterPsRequest request;
    *request.mutable_self() = Member(index);
    registry_.Register(request);
    calls_.Hear(index, true, now_);
  }
  // All but these go on answering.
  void PassWithout(const std::set<std::uint32_t>& silent, absl::Duration time) {
    now_ += time;
    for (const auto& [index, registration] : registry_.registrations()) {
      if (silent.count(index) == 0) calls_.Answered(index, now_);
    }
  }
  LayoutKeeper::Decision Decide(Moves moves = Moves::kAll, bool committed = true) {
    return keeper_.Decide(view_, quorum_, committed, registry_, calls_, moves, now_);
  }
  // The decision becomes the view.
  void Take(const LayoutKeeper::Decision& decision) {
    ASSERT_EQ(decision.kind, Kind::kChange);
    keeper_.OnChange(decision.next);
    *view_.mutable_layout() = {decision.next.layout.begin(), decision.next.layout.end()};
    *view_.mutable_ps() = {decision.next.ps.begin(), decision.next.ps.end()};
    view_.mutable_stamp()->set_epoch(view_.stamp().epoch() + 1);
    keeper_.OnView(view_);
  }
  v1::ProgressReply Report() const {
    v1::ProgressReply progress;
    keeper_.Report(view_, &progress);
    return progress;
  }

  Time now_ = kStart;
  PsRegistry registry_{0};
  DirectCalls calls_{absl::Milliseconds(10), absl::Seconds(1)};
  v1::View view_;
  std::set<std::uint64_t> quorum_;
  LayoutKeeper keeper_{LayoutKeeper::Options{.incarnation = 7, .patience = kPatience}};
};

TEST_F(LayoutKeeperTest, ASilentPsIsGivenUpAfterThePatienceAndNotBefore) {
  Begin(3, 2);
  PassWithout({0}, kPatience);
  EXPECT_EQ(Decide().kind, Kind::kNothing);
  PassWithout({0}, absl::Milliseconds(1));
  const LayoutKeeper::Decision decision = Decide(Moves::kNone);
  ASSERT_EQ(decision.kind, Kind::kChange);
  EXPECT_TRUE(decision.loss);
  EXPECT_EQ(decision.next.layout[0].primary(), 1u);
  EXPECT_FALSE(decision.next.layout[2].has_standby());
  EXPECT_EQ(decision.next.failovers, 1u);
  Take(decision);
  EXPECT_EQ(Report().replication().failovers(), 1u);
  EXPECT_EQ(Report().placed_ps_size(), 2);
}

TEST_F(LayoutKeeperTest, ABrokenConnectionGivesAPsUpAtOnce) {
  Begin(3, 2);
  for (int call = 0; call < 3; ++call) {
    calls_.Broken(1, now_);
    EXPECT_EQ(Decide().kind, Kind::kNothing);
    PassWithout({1}, absl::Milliseconds(25));
  }
  const LayoutKeeper::Decision decision = Decide();
  ASSERT_EQ(decision.kind, Kind::kChange);
  EXPECT_TRUE(decision.loss);
  EXPECT_EQ(decision.next.layout[1].primary(), 2u);
}

TEST_F(LayoutKeeperTest, OneThatHasEndedIsGivenUpAtOnce) {
  Begin(3, 2);
  registry_.OnEnded(2, 1);
  const LayoutKeeper::Decision decision = Decide();
  ASSERT_EQ(decision.kind, Kind::kChange);
  EXPECT_EQ(decision.next.layout[2].primary(), 0u);
}

TEST_F(LayoutKeeperTest, WithoutStandbysASilentPsIsWaitedForAndOneThatHasEndedIsLost) {
  Begin(2, 1);
  PassWithout({0}, 2 * kPatience);
  LayoutKeeper::Decision decision = Decide();
  EXPECT_EQ(decision.kind, Kind::kNothing);
  EXPECT_NE(decision.why.find("waiting for ps-0"), std::string::npos) << decision.why;
  EXPECT_EQ(Report().replication().message(), decision.why);
  PassWithout({}, absl::Milliseconds(1));
  EXPECT_EQ(Decide().kind, Kind::kNothing) << "it is back";
  registry_.OnEnded(0, 1);
  EXPECT_EQ(Decide().kind, Kind::kLost);
}

TEST_F(LayoutKeeperTest, AMinorityWaitsForOthersAndIsLostWithoutThem) {
  Begin(4, 2);
  // ps-0 and ps-2 have no slice in common: what they had goes on elsewhere, but two of four do not decide.
  PassWithout({0, 2}, 2 * kPatience);
  const LayoutKeeper::Decision decision = Decide();
  EXPECT_EQ(decision.kind, Kind::kNothing);
  EXPECT_NE(decision.why.find("too few"), std::string::npos) << decision.why;
  registry_.OnEnded(0, 1);
  EXPECT_EQ(Decide().kind, Kind::kNothing) << "ps-2 may come back, and three decide";
  registry_.OnEnded(2, 1);
  EXPECT_EQ(Decide().kind, Kind::kLost);
}

// A coordinator that began anew made a view without one that had not come, and lost another before that counted.
TEST_F(LayoutKeeperTest, OneThatHasNotComeYetMayStillDecide) {
  Begin(3, 2);
  registry_.SetCount(4);
  quorum_.insert(103);
  v1::PsMember next = Member(1);
  next.set_session(201);
  next.set_process_incarnation(2);
  v1::RegisterPsRequest request;
  *request.mutable_self() = next;
  registry_.Register(request);
  calls_.Hear(1, true, now_);
  LayoutKeeper::Decision decision = Decide(Moves::kNone, /*committed=*/false);
  EXPECT_EQ(decision.kind, Kind::kNothing);
  EXPECT_NE(decision.why.find("too few"), std::string::npos) << decision.why;
  // Another process is in its place: it does not come any more.
  request.mutable_self()->set_index(3);
  request.mutable_self()->set_session(203);
  registry_.Register(request);
  calls_.Hear(3, true, now_);
  EXPECT_EQ(Decide(Moves::kNone, /*committed=*/false).kind, Kind::kLost);
}

TEST_F(LayoutKeeperTest, OfTwoOneGoesOnAlone) {
  Begin(2, 2);
  registry_.OnEnded(0, 1);
  const LayoutKeeper::Decision decision = Decide();
  ASSERT_EQ(decision.kind, Kind::kChange);
  EXPECT_EQ(decision.next.layout[0].primary(), 1u);
  EXPECT_EQ(decision.next.ps.size(), 1u);
}

TEST_F(LayoutKeeperTest, APauseOfTheCoordinatorGivesNobodyUp) {
  Begin(3, 2);
  now_ += absl::Minutes(1);
  keeper_.OnPause(now_);
  EXPECT_EQ(Decide().kind, Kind::kNothing);
  PassWithout({1}, kPatience);
  EXPECT_EQ(Decide().kind, Kind::kNothing);
  PassWithout({1}, absl::Milliseconds(1));
  EXPECT_EQ(Decide().kind, Kind::kChange) << "it has had its time since";
}

TEST_F(LayoutKeeperTest, MovesBeginOnlyWhereTheyMay) {
  Begin(3, 2);
  v1::ProgressRequest wish;
  wish.mutable_ps()->set_count(3);
  wish.add_leaving_ps(0);
  keeper_.OnWish(wish);
  EXPECT_EQ(Decide(Moves::kNone).kind, Kind::kNothing);
  EXPECT_EQ(Decide(Moves::kUnderWay).kind, Kind::kNothing);
  LayoutKeeper::Decision decision = Decide(Moves::kAll);
  ASSERT_EQ(decision.kind, Kind::kChange);
  EXPECT_FALSE(decision.loss);
  EXPECT_TRUE(decision.next.layout[0].frozen()) << "to its standby";
  ASSERT_TRUE(decision.next.layout[2].has_joining()) << "another standby";
  EXPECT_EQ(decision.next.layout[2].joining(), 1u);
  EXPECT_EQ(decision.next.layout[2].joining_replica(), ReplicaNumber(7, 5));
  Take(decision);

  EXPECT_TRUE(keeper_.HasFrozen());
  EXPECT_TRUE(keeper_.Awaits(0));
  EXPECT_FALSE(keeper_.Awaits(1));
  EXPECT_TRUE(keeper_.Awaits(2));
  EXPECT_EQ(Report().replication().moving(), 1u);
  EXPECT_EQ(Decide(Moves::kAll).kind, Kind::kNothing);
  v1::DirectReply reply;
  v1::ReplicaState* state = reply.add_replicas();
  state->set_slice(2);
  state->set_replica(ReplicaNumber(7, 5));
  keeper_.OnReply(2, 102, reply, kStart);
  EXPECT_EQ(Decide(Moves::kAll).kind, Kind::kNothing) << "not level yet";
  state->set_level(true);
  keeper_.OnReply(1, 101, reply, kStart);
  EXPECT_EQ(Decide(Moves::kAll).kind, Kind::kNothing) << "ps-1 is not its primary";
  keeper_.OnReply(2, 102, reply, kStart);
  EXPECT_EQ(Decide(Moves::kNone).kind, Kind::kNothing);
  decision = Decide(Moves::kUnderWay);
  ASSERT_EQ(decision.kind, Kind::kChange) << "what is under way goes on";
  EXPECT_EQ(decision.next.layout[2].standby(), 1u);
  EXPECT_TRUE(decision.next.layout[0].frozen());
  Take(decision);
  EXPECT_TRUE(keeper_.HasFrozen());
  EXPECT_FALSE(keeper_.Awaits(2));

  reply.clear_replicas();
  state = reply.add_replicas();
  state->set_slice(0);
  state->set_frozen(true);
  keeper_.OnReply(0, 100, reply, kStart);
  decision = Decide(Moves::kUnderWay);
  ASSERT_EQ(decision.kind, Kind::kChange);
  EXPECT_EQ(decision.next.layout[0].primary(), 1u);
  Take(decision);
  EXPECT_FALSE(keeper_.HasFrozen());
  EXPECT_EQ(Report().replication().moves(), 2u);
  EXPECT_EQ(Report().replication().failovers(), 0u);
  EXPECT_EQ(Report().replication().in_sync(), 2u);
  EXPECT_EQ(Report().replication().slices(), 3u);
  EXPECT_EQ(Report().replication().factor(), 2u);
}

TEST_F(LayoutKeeperTest, WhatWasSaidOfAnotherViewIsForgotten) {
  Begin(2, 2);
  view_.mutable_layout(0)->clear_standby();
  view_.mutable_layout(0)->set_joining(1);
  view_.mutable_layout(0)->set_joining_replica(9);
  keeper_.OnView(view_);
  v1::DirectReply reply;
  reply.add_replicas()->set_replica(9);
  reply.mutable_replicas(0)->set_level(true);
  keeper_.OnReply(0, 100, reply, kStart);
  keeper_.OnView(view_);
  EXPECT_EQ(Decide().kind, Kind::kNothing);
  keeper_.OnReply(0, 100, reply, kStart);
  EXPECT_EQ(Decide().kind, Kind::kChange);
}

TEST_F(LayoutKeeperTest, TheNewestWishForANumberOfPsCounts) {
  EXPECT_FALSE(keeper_.wanted().has_value());
  v1::ProgressRequest wish;
  wish.mutable_ps()->set_revision(5);
  wish.mutable_ps()->set_count(3);
  keeper_.OnWish(wish);
  EXPECT_EQ(keeper_.wanted(), 3u);
  wish.mutable_ps()->set_revision(4);
  wish.mutable_ps()->set_count(9);
  keeper_.OnWish(wish);
  EXPECT_EQ(keeper_.wanted(), 3u) << "an older one";
  wish.mutable_ps()->set_revision(6);
  wish.mutable_ps()->set_count(0);
  keeper_.OnWish(wish);
  EXPECT_EQ(keeper_.wanted(), 3u) << "without any there is nothing";
  wish.mutable_ps()->set_count(2);
  keeper_.OnWish(wish);
  EXPECT_EQ(keeper_.wanted(), 2u);
}

TEST_F(LayoutKeeperTest, OfMoreThanAreWantedTheLastLeave) {
  Begin(3, 1);
  registry_.SetCount(2);
  const PsConditions conditions = keeper_.Conditions(registry_, calls_, now_);
  EXPECT_FALSE(conditions.at(1).leaving);
  EXPECT_TRUE(conditions.at(2).leaving);
  const LayoutKeeper::Decision decision = Decide();
  ASSERT_EQ(decision.kind, Kind::kChange);
  EXPECT_TRUE(decision.next.layout[2].joining_leads());
}

}  // namespace
}  // namespace downpour::core
