#include "trainer/core/held_replies.h"

#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "trainer/core/testing/ps_messages.h"

namespace downpour::core {
namespace {

// With a value for each of the slices.
DataReply ReplyOf(std::uint64_t call, const std::vector<std::uint32_t>& slices) {
  DataReply reply{call, {}};
  for (const std::uint32_t slice : slices) {
    reply.frames.push_back(WithFloats(MakeFrame(FrameKind::kReply, slice), 1));
    reply.frames.back().header.status = ReplyStatus::kApplied;
  }
  return reply;
}

std::vector<std::uint64_t> Calls(const std::vector<DataReply>& replies) {
  std::vector<std::uint64_t> calls;
  calls.reserve(replies.size());
  for (const DataReply& reply : replies) calls.push_back(reply.call);
  return calls;
}

TEST(HeldRepliesTest, AnAnswerWaitsForEverySliceThatItSaysSomethingOf) {
  HeldReplies held;
  held.Add(ReplyOf(1, {0, 1}), {{0, 5}, {1, 3}});
  std::vector<DataReply> replies;
  held.Release(0, 4, &replies);
  held.Release(2, UINT64_MAX, &replies);
  EXPECT_TRUE(replies.empty());
  held.Release(0, 5, &replies);
  EXPECT_TRUE(replies.empty()) << "slice 1 is not held";
  held.Release(1, 7, &replies);
  ASSERT_EQ(Calls(replies), std::vector<std::uint64_t>{1});
  EXPECT_EQ(replies[0].frames[1].header.status, ReplyStatus::kApplied);
  EXPECT_EQ(replies[0].frames[1].payload.size(), kElements * sizeof(float));
  EXPECT_EQ(held.size(), 0u);
  held.Release(0, UINT64_MAX, &replies);
  held.Release(1, UINT64_MAX, &replies);
  EXPECT_EQ(replies.size(), 1u) << "each once";
}

TEST(HeldRepliesTest, WhatIsHeldFirstIsToldFirst) {
  HeldReplies held;
  for (const std::uint64_t record : {3u, 1u, 2u, 2u}) held.Add(ReplyOf(record * 10, {0}), {{0, record}});
  std::vector<DataReply> replies;
  held.Release(0, 2, &replies);
  EXPECT_EQ(Calls(replies), (std::vector<std::uint64_t>{10, 20, 20}));
  EXPECT_EQ(held.size(), 1u);
}

TEST(HeldRepliesTest, OfASliceThatIsGoneTheAnswerIsDeniedAndOfOthersItIsNot) {
  HeldReplies held;
  held.Add(ReplyOf(1, {0, 1, 0}), {{0, 5}, {1, 3}});
  held.Add(ReplyOf(2, {0}), {{0, 6}});
  held.Add(ReplyOf(3, {1}), {{1, 3}});
  std::vector<DataReply> replies;
  held.Deny(7, ReplyStatus::kWrongOwner, &replies);
  held.Deny(0, ReplyStatus::kWrongOwner, &replies);
  ASSERT_EQ(Calls(replies), std::vector<std::uint64_t>{2});
  const FrameHeader& denied = replies[0].frames[0].header;
  EXPECT_EQ(denied.status, ReplyStatus::kWrongOwner);
  EXPECT_EQ(denied.type, DataType::kNone);
  EXPECT_EQ(denied.codec, FrameCodec::kNone);
  EXPECT_EQ(denied.elements, 0u);
  EXPECT_EQ(replies[0].frames[0].payload.size(), 0u) << "the value is not held";
  replies.clear();
  held.Release(1, 3, &replies);
  ASSERT_EQ(Calls(replies), (std::vector<std::uint64_t>{1, 3}));
  const std::vector<Frame>& frames = replies[0].frames;
  EXPECT_EQ(frames[0].header.status, ReplyStatus::kWrongOwner);
  EXPECT_EQ(frames[1].header.status, ReplyStatus::kApplied);
  EXPECT_EQ(frames[2].header.status, ReplyStatus::kWrongOwner);
  EXPECT_EQ(held.size(), 0u);
}

TEST(HeldRepliesTest, AllAreDenied) {
  HeldReplies held;
  held.Add(ReplyOf(1, {0, 1}), {{0, 5}});
  held.Add(ReplyOf(2, {1}), {{1, 6}});
  std::vector<DataReply> replies;
  held.DenyAll(ReplyStatus::kRefused, &replies);
  ASSERT_EQ(Calls(replies), (std::vector<std::uint64_t>{1, 2}));
  for (const DataReply& reply : replies) {
    for (const Frame& frame : reply.frames) {
      EXPECT_EQ(frame.header.status, ReplyStatus::kRefused);
      EXPECT_EQ(frame.payload.size(), 0u);
    }
  }
  EXPECT_EQ(held.size(), 0u);
  held.Release(0, UINT64_MAX, &replies);
  EXPECT_EQ(replies.size(), 2u);
}

TEST(HeldRepliesTest, WhateverComesEachIsToldOnceAndNoneTooEarly) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    HeldReplies held;
    std::map<std::uint64_t, HeldReplies::Needs> waiting;
    std::map<std::uint32_t, std::uint64_t> there;
    std::uint64_t call = 0;
    for (int step = 0; step < 100; ++step) {
      std::vector<DataReply> replies;
      const auto slice = static_cast<std::uint32_t>(random() % 3);
      if (random() % 2 == 0) {
        HeldReplies::Needs needs;
        for (std::uint64_t i = 1 + random() % 3; i != 0; --i) {
          const auto of = static_cast<std::uint32_t>(random() % 3);
          needs[of] = there[of] + 1 + random() % 5;
        }
        waiting[++call] = needs;
        held.Add(ReplyOf(call, {0, 1, 2}), needs);
      } else if (random() % 5 != 0) {
        there[slice] += random() % 4;
        held.Release(slice, there[slice], &replies);
      } else {
        held.Deny(slice, ReplyStatus::kWrongOwner, &replies);
        for (auto& [of, needs] : waiting) needs.erase(slice);
      }
      for (const DataReply& reply : replies) {
        ASSERT_EQ(waiting.count(reply.call), 1u) << "told twice";
        for (const auto& [of, record] : waiting[reply.call]) EXPECT_LE(record, there[of]) << "not held yet";
        waiting.erase(reply.call);
      }
      for (const auto& [of, needs] : waiting) {
        bool waits = false;
        for (const auto& [need, record] : needs) waits = waits || record > there[need];
        EXPECT_TRUE(waits) << "call " << of << " is owed its answer";
      }
      ASSERT_EQ(held.size(), waiting.size());
    }
  }
}

}  // namespace
}  // namespace downpour::core
