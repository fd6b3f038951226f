#include "trainer/core/membership.h"

#include <cstdint>
#include <iterator>
#include <random>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace downpour::core {
namespace {

constexpr absl::Duration kLease = absl::Seconds(3);
constexpr Time kStart = absl::Seconds(100);

v1::WorkerSyncRequest CallOf(std::uint64_t session, std::uint32_t index, std::uint32_t start = 1,
                             std::uint32_t wanted = 2) {
  v1::WorkerSyncRequest request;
  request.set_session(session);
  request.set_index(index);
  request.set_process_incarnation(start);
  request.set_wanted(wanted);
  request.set_sequence(1);
  return request;
}

TEST(MembershipTest, ASessionIsAMemberOnceAndIsReplacedByANewerOneOfItsIndex) {
  Membership members(kLease);
  members.Add(7);
  EXPECT_FALSE(members.all_known());
  EXPECT_EQ(members.Find(7)->version, members.version());
  EXPECT_EQ(members.Hear(CallOf(7, 3), kStart), std::nullopt);
  EXPECT_TRUE(members.all_known());
  EXPECT_TRUE(members.InSession({3, 1}));
  EXPECT_EQ(members.available(), std::set<std::uint32_t>{3});

  members.Add(8);
  EXPECT_EQ(members.Hear(CallOf(8, 3, 2), kStart), 7u);
  EXPECT_EQ(members.Hear(CallOf(8, 3, 2), kStart), std::nullopt);
  EXPECT_TRUE(members.IsZombie({3, 1}));
  EXPECT_FALSE(members.IsZombie({3, 2}));
  EXPECT_FALSE(members.IsZombie({4, 1}));
  const std::uint64_t before = members.version();
  EXPECT_EQ(members.End(7)->process(), ProcessKey(3, 1));
  EXPECT_EQ(members.version(), before + 1);
  EXPECT_EQ(members.End(7), std::nullopt);
  EXPECT_EQ(members.version(), before + 1);
  EXPECT_TRUE(members.ended(7));
  EXPECT_FALSE(members.InSession({3, 1}));
  EXPECT_TRUE(members.InSession({3, 2}));
  EXPECT_EQ(members.available(), std::set<std::uint32_t>{3});
  members.Hear(CallOf(8, 3, 2, /*wanted=*/0), kStart);
  EXPECT_TRUE(members.available().empty()) << "it is about to leave";
}

TEST(MembershipTest, TellsWhoTrains) {
  Membership members(kLease);
  for (const std::uint64_t session : {1, 2}) members.Add(session);
  const std::uint64_t before = members.version();
  members.SetTraining(2, true);
  members.SetTraining(2, true);
  EXPECT_EQ(members.version(), before + 1);
  EXPECT_EQ(members.Find(2)->version, members.version()) << "not before every ps knows it";
  v1::DirectRequest difference;
  members.Tell(before, &difference);
  EXPECT_EQ(difference.sessions_size(), 1);
  ASSERT_EQ(difference.training_size(), 1);
  EXPECT_EQ(difference.training(0), 2u);
  members.SetTraining(2, false);
  EXPECT_EQ(members.Find(2)->version, before + 1) << "nothing has to wait for that";
  v1::DirectRequest whole;
  members.Tell(0, &whole);
  EXPECT_EQ(whole.sessions_size(), 2);
  EXPECT_EQ(whole.training_size(), 0);
}

TEST(MembershipTest, ALeaseRunsOutOnceAndIsExtendedByACallAndForAll) {
  Membership members(kLease);
  for (const std::uint64_t session : {1, 2}) {
    members.Add(session);
    members.Hear(CallOf(session, static_cast<std::uint32_t>(session)), kStart);
  }
  members.Adopt(3, kStart);
  EXPECT_TRUE(members.Expired(kStart + kLease).empty());
  members.Hear(CallOf(1, 1), kStart + absl::Seconds(1));
  const Time after = kStart + kLease + absl::Milliseconds(1);
  EXPECT_EQ(members.Expired(after), (std::vector<std::uint64_t>{2, 3}));
  members.End(2);
  members.End(3);
  members.Extend(after);
  EXPECT_TRUE(members.Expired(after + kLease).empty());
  EXPECT_EQ(members.Expired(after + kLease + absl::Milliseconds(1)), std::vector<std::uint64_t>{1});
}

v1::DirectRequest Told(const Membership& members, std::uint64_t since) {
  v1::DirectRequest directive;
  members.Tell(since, &directive);
  EXPECT_EQ(directive.members_version(), members.version());
  return directive;
}

TEST(MembershipTest, APsIsToldWhatChangedSinceItsVersion) {
  constexpr std::uint64_t kMembers = 1000;
  Membership members(kLease);
  for (std::uint64_t session = 1; session <= kMembers; ++session) members.Add(session);
  EXPECT_EQ(Told(members, 0).sessions_size(), 1000) << "it has none";
  const std::uint64_t version = members.version();
  const v1::DirectRequest nothing = Told(members, version);
  EXPECT_EQ(nothing.sessions_size() + nothing.ended_size(), 0);
  EXPECT_EQ(nothing.members_since(), version);
  members.End(5);
  members.Add(2000);
  members.Add(2001);
  members.End(2001);
  const v1::DirectRequest some = Told(members, version);
  EXPECT_EQ(some.members_since(), version);
  EXPECT_EQ(std::vector<std::uint64_t>(some.sessions().begin(), some.sessions().end()),
            std::vector<std::uint64_t>{2000});
  EXPECT_EQ(std::vector<std::uint64_t>(some.ended().begin(), some.ended().end()),
            (std::vector<std::uint64_t>{5, 2001}));
  EXPECT_EQ(Told(members, members.version() + 1).members_since(), 0u) << "a version that there is not";
}

// Whatever the ps has, a difference brings it to the newest list, and is never longer than the list.
TEST(MembershipTest, DifferencesLeadToTheListFromAnyVersionSince) {
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    std::mt19937 random(seed);
    Membership members(kLease);
    std::vector<std::set<std::uint64_t>> lists(2);  // by version
    std::uint64_t next = 1;
    for (int i = 0; i < 60; ++i) {
      std::set<std::uint64_t> list = lists.back();
      if (list.empty() || random() % 5 < 3) {
        members.Add(next);
        list.insert(next++);
      } else {
        const std::uint64_t session = *std::next(list.begin(), random() % list.size());
        members.End(session);
        list.erase(session);
      }
      lists.push_back(list);
      ASSERT_EQ(lists.size() - 1, members.version());
      const std::uint64_t since = random() % lists.size();
      const v1::DirectRequest directive = Told(members, since);
      EXPECT_LE(directive.sessions_size() + directive.ended_size(), static_cast<int>(list.size()));
      for (std::uint64_t version = directive.members_since(); version < lists.size(); ++version) {
        std::set<std::uint64_t> result(directive.sessions().begin(), directive.sessions().end());
        if (directive.members_since() != 0) result.insert(lists[version].begin(), lists[version].end());
        for (const std::uint64_t session : directive.ended()) result.erase(session);
        EXPECT_EQ(result, list) << "seed " << seed << ", since " << since << ", at " << version;
      }
    }
  }
}

// Each member calls six times a lease, and time is looked at after every call, as the coordinator does.
TEST(MembershipTest, ExpiryLooksAtAMemberOnceALease) {
  constexpr std::uint32_t kMembers = 1000;
  constexpr int kLeases = 10;
  Membership members(kLease);
  for (std::uint32_t index = 0; index < kMembers; ++index) members.Adopt(1 + index, kStart);
  Time now = kStart;
  std::uint64_t calls = 0;
  for (int round = 0; round < 6 * kLeases; ++round) {
    for (std::uint32_t index = 0; index < kMembers; ++index) {
      members.Hear(CallOf(1 + index, index), now);
      ASSERT_TRUE(members.Expired(now).empty());
      ++calls;
      now += kLease / 6 / kMembers;
    }
  }
  EXPECT_EQ(calls, 6u * kLeases * kMembers);
  EXPECT_LE(members.looked_at(), kMembers * (kLeases + 2u));
}

}  // namespace
}  // namespace downpour::core
