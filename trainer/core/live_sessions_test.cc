#include "trainer/core/live_sessions.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace downpour::core {
namespace {

using Sessions = std::set<std::uint64_t>;
using Ended = std::optional<std::vector<std::uint64_t>>;

Ended Over(std::vector<std::uint64_t> sessions) { return sessions; }

v1::DirectRequest Directive(std::uint32_t incarnation, std::uint64_t since, std::uint64_t version,
                            const Sessions& sessions, const Sessions& ended = {}) {
  v1::DirectRequest request;
  request.mutable_stamp()->set_incarnation(incarnation);
  request.set_members_since(since);
  request.set_members_version(version);
  for (const std::uint64_t session : sessions) request.add_sessions(session);
  for (const std::uint64_t session : ended) request.add_ended(session);
  return request;
}

TEST(LiveSessionsTest, AWholeListEndsWhoIsNotOnIt) {
  LiveSessions live;
  EXPECT_EQ(live.Take(Directive(1, 0, 1, {5, 6})), Over({}));
  EXPECT_TRUE(live.Contains(5) && live.Contains(6));
  EXPECT_EQ(live.Take(Directive(1, 0, 2, {6, 7})), Over({5}));
  EXPECT_EQ(live.sessions(), (Sessions{6, 7}));
  EXPECT_FALSE(live.Contains(5));
}

TEST(LiveSessionsTest, ADifferenceEndsThoseOfWhomItSaysSoAndWhoIsThere) {
  LiveSessions live;
  ASSERT_TRUE(live.Take(Directive(1, 0, 1, {5, 6})).has_value());
  EXPECT_EQ(live.Take(Directive(1, 1, 2, {7}, {4, 5})), Over({5})) << "4 was never here";
  EXPECT_EQ(live.sessions(), (Sessions{6, 7}));
}

TEST(LiveSessionsTest, ADifferenceCountsIfItBeginsWithAListThatWasHere) {
  LiveSessions live;
  EXPECT_FALSE(live.Take(Directive(1, 1, 2, {5})).has_value()) << "nothing was here";
  EXPECT_TRUE(live.sessions().empty());
  ASSERT_TRUE(live.Take(Directive(1, 0, 3, {5})).has_value());
  EXPECT_FALSE(live.Take(Directive(1, 4, 5, {6}, {5})).has_value()) << "version 4 was never here";
  EXPECT_FALSE(live.Take(Directive(1, 2, 3, {6}, {5})).has_value()) << "it was overtaken";
  EXPECT_FALSE(live.Take(Directive(1, 0, 2, {6})).has_value()) << "as this one";
  EXPECT_EQ(live.sessions(), Sessions{5});
  EXPECT_EQ(live.version(1), 3u);
  EXPECT_EQ(live.Take(Directive(1, 2, 4, {6}, {5})), Over({5})) << "as the answer before was lost";
  EXPECT_EQ(live.version(1), 4u);
}

TEST(LiveSessionsTest, AnotherCoordinatorSaysTheWholeListFirst) {
  LiveSessions live;
  ASSERT_TRUE(live.Take(Directive(1, 0, 7, {5})).has_value());
  EXPECT_FALSE(live.Take(Directive(2, 7, 8, {}, {5})).has_value());
  EXPECT_FALSE(live.version(2).has_value());
  EXPECT_TRUE(live.Contains(5));
  EXPECT_EQ(live.Take(Directive(2, 0, 1, {6})), Over({5})) << "it counts from the beginning";
  EXPECT_EQ(live.version(2), 1u);
  EXPECT_FALSE(live.version(1).has_value());
}

TEST(LiveSessionsTest, OnceClearedTheWholeListIsSaidAgain) {
  LiveSessions live;
  ASSERT_TRUE(live.Take(Directive(1, 0, 7, {5})).has_value());
  live.Clear();
  EXPECT_TRUE(live.sessions().empty());
  EXPECT_FALSE(live.Take(Directive(1, 7, 8, {6})).has_value());
  EXPECT_EQ(live.Take(Directive(1, 0, 7, {5})), Over({})) << "of the same version too";
  EXPECT_TRUE(live.Contains(5));
}

// A coordinator's list changes at random; its directives and the answers are lost, repeated and overtake each other.
// Whatever is heard, what is here is the list as it was at the version that is confirmed.
TEST(LiveSessionsTest, WhatIsHereIsTheListAsItWasAtTheVersionThatIsConfirmed) {
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    LiveSessions live;
    std::vector<Sessions> lists = {{}};  // by version
    std::vector<v1::DirectRequest> sent;
    std::uint64_t confirmed = 0, next = 1;
    Sessions ended;  // as it was told
    for (int step = 0; step < 300; ++step) {
      Sessions list = lists.back();
      if (random() % 3 == 0 && !list.empty()) list.erase(list.begin());
      if (random() % 2 == 0) list.insert(next++);
      lists.push_back(list);
      Sessions added, over;
      const Sessions& before = lists[confirmed];
      std::set_difference(list.begin(), list.end(), before.begin(), before.end(), std::inserter(added, added.end()));
      std::set_difference(before.begin(), before.end(), list.begin(), list.end(), std::inserter(over, over.end()));
      // Who came and went since may have been heard of by way of a directive whose answer was lost.
      for (std::uint64_t session = 1; session < next; ++session) {
        if (list.count(session) == 0) over.insert(session);
      }
      sent.push_back(confirmed == 0 ? Directive(1, 0, lists.size() - 1, list)
                                    : Directive(1, confirmed, lists.size() - 1, added, over));
      const v1::DirectRequest& heard = sent[random() % 3 != 0 ? sent.size() - 1 : random() % sent.size()];
      if (const Ended now = live.Take(heard); now.has_value()) {
        for (const std::uint64_t session : *now) EXPECT_TRUE(ended.insert(session).second) << "each once";
        EXPECT_EQ(live.version(1), heard.members_version());
      }
      ASSERT_EQ(live.sessions(), lists[live.version(1).value_or(0)]);
      if (random() % 2 == 0) confirmed = live.version(1).value_or(0);
    }
    EXPECT_FALSE(ended.empty());
  }
}

}  // namespace
}  // namespace downpour::core
