#include "trainer/core/quorum.h"

#include <cstdint>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace downpour::core {
namespace {

v1::View ViewOf(std::uint32_t ps_count, const std::vector<std::uint64_t>& quorum = {}) {
  v1::View view;
  for (std::uint32_t index = 0; index < ps_count; ++index) {
    v1::PsMember& member = *view.add_ps();
    member.set_index(index);
    member.set_session(100 + index);
    member.set_process_incarnation(1);
  }
  for (const std::uint64_t session : quorum) view.add_quorum(session);
  return view;
}

TEST(QuorumTest, AMajorityCommitsAndOfFewNobodyIsAsked) {
  struct Case {
    std::vector<std::uint64_t> quorum;
    std::set<std::uint64_t> sessions;
    bool committed;
  };
  const Case cases[] = {
      {{}, {}, true},
      {{100}, {}, true},
      {{100, 101}, {}, true},
      {{100, 101, 102}, {}, false},
      {{100, 101, 102}, {101}, false},
      {{100, 101, 102}, {101, 102}, true},
      {{100, 101, 102}, {101, 900, 901}, false},  // of others
      {{100, 101, 102, 103}, {100, 101}, false},
      {{100, 101, 102, 103}, {100, 101, 103}, true},
      {{100, 101, 102, 103, 104}, {100, 101}, false},
      {{100, 101, 102, 103, 104}, {100, 102, 104}, true},
  };
  for (const Case& one : cases) {
    EXPECT_EQ(IsCommittedBy(ViewOf(0, one.quorum), one.sessions), one.committed)
        << one.sessions.size() << " of " << one.quorum.size();
  }
}

TEST(QuorumTest, WhoDidNotMakeTheViewNeedsThoseThatWouldKnowOfALaterOne) {
  struct Case {
    std::uint32_t ps;
    std::set<std::uint64_t> sessions;
    bool may;
  };
  const Case cases[] = {
      {0, {}, true},          {1, {}, false},
      {1, {100}, true},       {1, {101}, false},
      {2, {100}, false},      {2, {101}, false},
      {2, {100, 101}, true},  {3, {100}, false},
      {3, {100, 102}, true},  {3, {100, 900, 901}, false},
      {4, {100, 101}, false}, {4, {100, 101, 102}, true},
      {5, {100, 101}, false}, {5, {102, 103, 104}, true},
  };
  for (const Case& one : cases) {
    EXPECT_EQ(MayTakeOver(ViewOf(one.ps), one.sessions), one.may) << one.sessions.size() << " of " << one.ps;
  }
  // The view itself has to count too: those that decided on it are others than those that it has.
  const std::set<std::uint64_t> sessions = {100, 101, 102};
  EXPECT_FALSE(MayTakeOver(ViewOf(3, {102, 110, 111, 112}), sessions));
  EXPECT_TRUE(MayTakeOver(ViewOf(3, {101, 102, 112}), sessions));
}

// Two coordinators that do not know of each other cannot both go on: any two sets that may take over share a ps.
TEST(QuorumTest, OfTwoThatTakeOverOneKnowsOfTheOther) {
  for (std::uint32_t count = 1; count <= 5; ++count) {
    const v1::View view = ViewOf(count);
    for (std::uint32_t one = 0; one < 1u << count; ++one) {
      for (std::uint32_t other = 0; other < 1u << count; ++other) {
        if ((one & other) != 0) continue;
        std::set<std::uint64_t> a, b;
        for (std::uint32_t index = 0; index < count; ++index) {
          if ((one >> index & 1) != 0) a.insert(100 + index);
          if ((other >> index & 1) != 0) b.insert(100 + index);
        }
        EXPECT_FALSE(MayTakeOver(view, a) && MayTakeOver(view, b)) << count << " ps: " << one << ", " << other;
      }
    }
  }
}

}  // namespace
}  // namespace downpour::core
