#include "trainer/core/view_in_force.h"

#include <cstdint>
#include <set>

#include "gtest/gtest.h"

namespace downpour::core {
namespace {

using Sessions = std::set<std::uint64_t>;

std::uint64_t SessionOf(std::uint32_t index) { return 100 + index; }

v1::View FirstView(std::uint32_t ps_count) {
  v1::View view;
  view.mutable_stamp()->set_generation(1);
  view.mutable_stamp()->set_incarnation(1);
  view.mutable_stamp()->set_epoch(1);
  view.set_mode_epoch(1);
  for (std::uint32_t index = 0; index < ps_count; ++index) {
    v1::PsMember& member = *view.add_ps();
    member.set_index(index);
    member.set_session(SessionOf(index));
  }
  return view;
}

v1::View Without(v1::View view, int place) {
  view.mutable_ps()->DeleteSubrange(place, 1);
  return view;
}

// The ps says that it has the view in force.
void Reply(ViewInForce* in_force, std::uint32_t index) {
  v1::DirectReply reply;
  *reply.mutable_stamp() = in_force->view().stamp();
  EXPECT_TRUE(in_force->OnReply(index, SessionOf(index), reply));
}

bool IsToldAll(const ViewInForce& in_force, std::uint32_t index) {
  v1::DirectRequest directive;
  in_force.Tell(SessionOf(index), &directive);
  EXPECT_EQ(directive.stamp().epoch(), in_force.view().stamp().epoch());
  EXPECT_EQ(directive.committed(), in_force.committed());
  return directive.has_view();
}

TEST(ViewInForceTest, TheFirstOfAHistoryCountsOnceEveryPsHasIt) {
  ViewInForce in_force;
  in_force.Begin(FirstView(3));
  for (const std::uint32_t index : {2u, 0u, 1u}) {
    EXPECT_FALSE(in_force.committed()) << index;
    EXPECT_TRUE(IsToldAll(in_force, index));
    Reply(&in_force, index);
    EXPECT_FALSE(IsToldAll(in_force, index)) << "it has it";
  }
  EXPECT_TRUE(in_force.committed());
  EXPECT_EQ(in_force.Quorum(), (Sessions{100, 101, 102}));
  in_force.Begin(FirstView(3));
  EXPECT_FALSE(in_force.committed());
  EXPECT_TRUE(IsToldAll(in_force, 0)) << "of another history";
}

TEST(ViewInForceTest, AnotherCountsOnceAMajorityOfThoseBeforeHasIt) {
  ViewInForce in_force;
  in_force.Begin(FirstView(3));
  for (const std::uint32_t index : {0u, 1u, 2u}) Reply(&in_force, index);
  in_force.GoOn(Without(in_force.view(), 2), /*mode=*/false);
  EXPECT_EQ(in_force.view().stamp().epoch(), 2u);
  EXPECT_FALSE(in_force.committed());
  EXPECT_EQ(in_force.ps(), (std::set<std::uint32_t>{0, 1}));
  EXPECT_EQ(in_force.Told(), (Sessions{100, 101, 102})) << "the last one decides as well";
  EXPECT_EQ(in_force.Before(), (Sessions{100, 101, 102}));
  Reply(&in_force, 2);
  EXPECT_FALSE(in_force.committed());
  Reply(&in_force, 0);
  EXPECT_TRUE(in_force.committed()) << "before ps-1 has heard of it";
  EXPECT_FALSE(in_force.states().all_have_view());
  EXPECT_EQ(in_force.Told(), (Sessions{100, 101}));
  EXPECT_EQ(in_force.Quorum(), (Sessions{100, 101}));
  EXPECT_EQ(in_force.Before(), Sessions());
}

TEST(ViewInForceTest, OneThatDidNotCountLeavesTheDecisionToThoseBeforeIt) {
  ViewInForce in_force;
  in_force.Begin(FirstView(4));
  for (const std::uint32_t index : {0u, 1u, 2u, 3u}) Reply(&in_force, index);
  in_force.GoOn(Without(in_force.view(), 3), /*mode=*/false);
  Reply(&in_force, 0);
  in_force.GoOn(Without(in_force.view(), 2), /*mode=*/false);
  EXPECT_EQ(in_force.Quorum(), (Sessions{100, 101, 102, 103}));
  for (const std::uint32_t index : {0u, 1u}) Reply(&in_force, index);
  EXPECT_FALSE(in_force.committed()) << "both of its own ps are no majority of four";
  Reply(&in_force, 3);
  EXPECT_TRUE(in_force.committed());
}

TEST(ViewInForceTest, OfTwoNobodyIsAskedButBothAreNeededUntilAllHaveIt) {
  ViewInForce in_force;
  in_force.Begin(FirstView(2));
  for (const std::uint32_t index : {0u, 1u}) Reply(&in_force, index);
  in_force.GoOn(Without(in_force.view(), 1), /*mode=*/false);
  EXPECT_TRUE(in_force.committed());
  EXPECT_EQ(in_force.Told(), Sessions{100});
  EXPECT_EQ(in_force.Before(), (Sessions{100, 101})) << "another coordinator could go on from there";
  Reply(&in_force, 0);
  EXPECT_EQ(in_force.Before(), Sessions());
}

TEST(ViewInForceTest, AModeIsTakenOnceEveryPsHasItAndStaysSoInAnotherLayout) {
  ViewInForce in_force;
  in_force.Begin(FirstView(2));
  EXPECT_FALSE(in_force.mode_taken());
  for (const std::uint32_t index : {0u, 1u}) {
    Reply(&in_force, index);
    in_force.NoteMode();
    EXPECT_EQ(in_force.mode_taken(), index == 1);
  }
  in_force.GoOn(in_force.view(), /*mode=*/true);
  EXPECT_EQ(in_force.view().mode_epoch(), 2u);
  in_force.NoteMode();
  EXPECT_FALSE(in_force.mode_taken());
  for (const std::uint32_t index : {0u, 1u}) Reply(&in_force, index);
  in_force.NoteMode();
  EXPECT_TRUE(in_force.mode_taken());
  in_force.GoOn(Without(in_force.view(), 1), /*mode=*/false);
  EXPECT_EQ(in_force.view().mode_epoch(), 2u);
  EXPECT_TRUE(in_force.mode_taken());
}

TEST(ViewInForceTest, PsAreToldOfTheSessionsAnewWithAnotherMode) {
  ViewInForce in_force;
  in_force.Begin(FirstView(1));
  v1::DirectReply reply;
  *reply.mutable_stamp() = in_force.view().stamp();
  reply.set_members_version(5);
  in_force.OnReply(0, SessionOf(0), reply);
  in_force.GoOn(in_force.view(), /*mode=*/false);
  EXPECT_EQ(in_force.states().members_version(0), 5u);
  in_force.GoOn(in_force.view(), /*mode=*/true);
  EXPECT_EQ(in_force.states().members_version(0), 0u);
}

TEST(ViewInForceTest, WhatIsSaidOfAnotherViewCountsForNothingButTheStatistics) {
  ViewInForce in_force;
  in_force.Begin(FirstView(1));
  v1::DirectReply reply;
  *reply.mutable_stamp() = in_force.view().stamp();
  reply.mutable_stamp()->set_epoch(2);
  reply.mutable_stats()->set_applied(7);
  EXPECT_FALSE(in_force.OnReply(0, SessionOf(0), reply));
  EXPECT_FALSE(in_force.committed());
  EXPECT_TRUE(IsToldAll(in_force, 0));
  EXPECT_EQ(in_force.states().stats(0).applied(), 7u);
}

}  // namespace
}  // namespace downpour::core
