#include "trainer/core/ps_exchanges.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace downpour::core {
namespace {

using Kind = PsExchanges::Kind;
using Slices = std::vector<std::uint32_t>;

// ps 0 and 1, each with a session that is not its number.
v1::View ViewOf(const std::map<std::uint32_t, std::uint64_t>& sessions) {
  v1::View view;
  for (const auto& [ps, session] : sessions) {
    v1::PsMember* member = view.add_ps();
    member->set_index(ps);
    member->set_address(absl::StrCat("ps", ps, ":", session));
    member->set_session(session);
  }
  return view;
}

class PsExchangesTest : public ::testing::Test {
 protected:
  PsExchangesTest() { Use(1000, 8); }
  void Use(std::size_t payload_bytes, int in_flight) {
    PsExchanges::Options options;
    options.deadline = absl::Seconds(3);
    options.payload_bytes = payload_bytes;
    options.in_flight = in_flight;
    exchanges_.emplace(options);
    exchanges_->SetView(ViewOf({{0, 70}, {1, 71}}));
  }
  // Slices 0 and on, of so many bytes each. What of them leaves.
  std::vector<ExchangeCall> Send(std::size_t count, std::size_t bytes, std::uint32_t ps = 0, Kind kind = Kind::kPush) {
    std::vector<PsExchanges::Part> parts;
    for (std::uint32_t slice = 0; slice < count; ++slice) parts.push_back({slice, bytes});
    std::vector<ExchangeCall> calls;
    exchanges_->Send(
        kind, ps, kToken, parts,
        [](std::uint32_t slice) {
          Frame frame;
          frame.header.slice = slice;
          return frame;
        },
        &calls);
    return calls;
  }
  static std::vector<Slices> SlicesOf(const std::vector<ExchangeCall>& calls) {
    std::vector<Slices> slices;
    for (const ExchangeCall& call : calls) {
      slices.emplace_back();
      for (const Frame& frame : call.frames) slices.back().push_back(frame.header.slice);
    }
    return slices;
  }

  static constexpr std::uint64_t kToken = 12;
  std::optional<PsExchanges> exchanges_;
};

TEST_F(PsExchangesTest, PartsGoTogetherAsFarAsTheyFit) {
  const std::vector<ExchangeCall> calls = Send(5, 400, 1);
  EXPECT_EQ(SlicesOf(calls), (std::vector<Slices>{{0, 1}, {2, 3}, {4}}));
  std::set<std::uint64_t> numbers;
  for (const ExchangeCall& call : calls) {
    numbers.insert(call.call);
    EXPECT_EQ(call.ps, 1u);
    EXPECT_EQ(call.address, "ps1:71");
    EXPECT_EQ(call.deadline, absl::Seconds(3));
  }
  EXPECT_EQ(numbers.size(), 3u);
  EXPECT_EQ(SlicesOf(Send(2, 1001)), (std::vector<Slices>{{0}, {1}})) << "one goes however large it is";
  EXPECT_EQ(SlicesOf(Send(2, 500)), (std::vector<Slices>{{0, 1}})) << "up to the limit";
  EXPECT_TRUE(Send(0, 1).empty());
}

// So that what carries many small slices is no more than the transport takes.
TEST_F(PsExchangesTest, AMessageIsNoLargerThanTheTransportTakesWithTheHeadersOfItsFrames) {
  constexpr std::size_t kPayload = std::size_t{4} << 20;
  for (const std::size_t bytes :
       {std::size_t{4}, std::size_t{100}, std::size_t{1000}, std::size_t{4000}, std::size_t{9000}, kPayload}) {
    SCOPED_TRACE(bytes);
    Use(kPayload, 1000);
    const std::size_t count = 2 * (kMaxMessageBytes / (bytes + kFrameHeaderBytes)) + 3;
    const std::vector<ExchangeCall> calls = Send(count, bytes);
    std::size_t frames = 0;
    for (const ExchangeCall& call : calls) {
      frames += call.frames.size();
      EXPECT_LE(call.frames.size() * (bytes + kFrameHeaderBytes), kMaxMessageBytes);
      EXPECT_LE(call.frames.size() * bytes, kPayload);
    }
    EXPECT_EQ(frames, count);
    const std::size_t most = std::min(kPayload / bytes, kMaxMessageBytes / (bytes + kFrameHeaderBytes));
    EXPECT_EQ(calls.front().frames.size(), most) << "it is full";
  }
}

TEST_F(PsExchangesTest, SoManyAreUnderWayToEachPs) {
  Use(1000, 2);
  std::vector<ExchangeCall> calls = Send(5, 1000);
  EXPECT_EQ(SlicesOf(calls), (std::vector<Slices>{{0}, {1}}));
  EXPECT_TRUE(Send(5, 1000).empty());
  EXPECT_EQ(Send(5, 1000, 1).size(), 2u) << "of another ps";
  exchanges_->SendOne(Kind::kPush, 0, kToken, Frame(), &calls);
  ASSERT_EQ(calls.size(), 3u) << "what is about no slice goes all the same";
  EXPECT_EQ(calls[2].frames.size(), 1u);
  EXPECT_EQ(calls[2].address, "ps0:70");
  const std::optional<PsExchanges::Exchange> verdict = exchanges_->End(calls[2].call);
  ASSERT_TRUE(verdict.has_value());
  EXPECT_TRUE(verdict->slices.empty());
  EXPECT_TRUE(Send(5, 1000).empty());
  const std::optional<PsExchanges::Exchange> ended = exchanges_->End(calls[0].call);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->kind, Kind::kPush);
  EXPECT_EQ(ended->ps, 0u);
  EXPECT_EQ(ended->token, kToken);
  EXPECT_EQ(ended->slices, Slices{0});
  EXPECT_FALSE(exchanges_->End(calls[0].call).has_value()) << "each once";
  EXPECT_EQ(Send(5, 1000).size(), 1u);
}

TEST_F(PsExchangesTest, APsThatFailsIsTriedAgainLaterAndLaterUntilOneSucceeds) {
  Time now = absl::Seconds(5);
  EXPECT_LE(exchanges_->retry_at(0), now);
  for (const int milliseconds : {20, 40, 80, 160, 320, 500, 500}) {
    exchanges_->BackOff(0, now);
    EXPECT_EQ(exchanges_->retry_at(0), now + absl::Milliseconds(milliseconds));
    now = exchanges_->retry_at(0);
  }
  EXPECT_LE(exchanges_->retry_at(1), now);
  exchanges_->Succeed(0);
  exchanges_->BackOff(0, now);
  EXPECT_EQ(exchanges_->retry_at(0), now + absl::Milliseconds(20));
}

TEST_F(PsExchangesTest, WhatIsGivenUpMakesRoomAndIsHeardNoMore) {
  Use(1000, 2);
  const std::vector<ExchangeCall> pulls = Send(2, 400, 0, Kind::kPull);
  const std::vector<ExchangeCall> pushes = Send(1, 400);
  EXPECT_TRUE(exchanges_->GiveUp(Kind::kPull, kToken + 1).empty()) << "of another update";
  EXPECT_EQ(exchanges_->GiveUp(Kind::kPull, kToken), (Slices{0, 1}));
  EXPECT_FALSE(exchanges_->End(pulls.at(0).call).has_value());
  EXPECT_EQ(Send(9, 1000).size(), 1u);
  EXPECT_TRUE(exchanges_->End(pushes.at(0).call).has_value());
}

TEST_F(PsExchangesTest, WhatWasOnItsWayToAPsThatIsGoneIsForgotten) {
  Use(1000, 1);
  const std::vector<ExchangeCall> first = Send(1, 1, 0), second = Send(1, 1, 1);
  exchanges_->BackOff(0, absl::Seconds(5));
  exchanges_->BackOff(1, absl::Seconds(5));
  EXPECT_EQ(exchanges_->SetView(ViewOf({{0, 72}, {1, 71}, {2, 73}})), std::set<std::uint32_t>{0})
      << "another one of the same number";
  EXPECT_FALSE(exchanges_->End(first.at(0).call).has_value());
  EXPECT_EQ(exchanges_->retry_at(0), absl::ZeroDuration()) << "nothing is known of it";
  EXPECT_NE(exchanges_->retry_at(1), absl::ZeroDuration());
  const std::vector<ExchangeCall> again = Send(1, 1, 0);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].address, "ps0:72");
  EXPECT_TRUE(Send(1, 1, 1).empty()) << "one is under way";
  EXPECT_TRUE(exchanges_->End(second.at(0).call).has_value());
  EXPECT_EQ(exchanges_->SetView(ViewOf({{2, 73}})), (std::set<std::uint32_t>{0, 1}));
  EXPECT_FALSE(exchanges_->End(again[0].call).has_value());
}

TEST_F(PsExchangesTest, OnceClearedNothingIsUnderWayAndTheViewStays) {
  Use(1000, 1);
  const std::vector<ExchangeCall> calls = Send(1, 1);
  exchanges_->BackOff(0, absl::Seconds(5));
  exchanges_->Clear();
  EXPECT_FALSE(exchanges_->End(calls.at(0).call).has_value());
  EXPECT_EQ(exchanges_->retry_at(0), absl::ZeroDuration());
  const std::vector<ExchangeCall> next = Send(1, 1);
  ASSERT_EQ(next.size(), 1u);
  EXPECT_NE(next[0].call, calls[0].call) << "an answer to the one before must not count";
  EXPECT_EQ(next[0].address, "ps0:70");
}

}  // namespace
}  // namespace downpour::core
