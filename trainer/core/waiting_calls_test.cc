#include "trainer/core/waiting_calls.h"

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "trainer/core/testing/ps_messages.h"

namespace downpour::core {
namespace {

using Call = WaitingCalls::Call;
using Decision = WaitingCalls::Decision;
using Numbers = std::vector<std::uint64_t>;

constexpr std::uint64_t kOther = kWorker + 1;
constexpr std::size_t kBytes = kElements * sizeof(float);

Call Pushes(std::uint64_t call, const UpdateId& update, const std::vector<std::uint32_t>& slices,
            std::uint64_t session = kWorker) {
  Call pushes{call, {}};
  for (const std::uint32_t slice : slices) {
    pushes.frames.push_back(Push(slice, update, Verdict::kPending));
    pushes.frames.back().header.session = session;
  }
  return pushes;
}

Call Pulls(std::uint64_t call, const std::vector<std::uint32_t>& slices, std::uint64_t session = kWorker) {
  Call pulls{call, {}};
  for (const std::uint32_t slice : slices) {
    pulls.frames.push_back(MakeFrame(FrameKind::kPull, slice));
    pulls.frames.back().header.session = session;
  }
  return pulls;
}

Numbers NumbersOf(const std::vector<Call>& calls) {
  Numbers numbers;
  numbers.reserve(calls.size());
  for (const Call& call : calls) numbers.push_back(call.call);
  return numbers;
}

// Takes them, in the place of nobody.
bool Held(WaitingCalls& waiting, Call call) {
  std::vector<Call> superseded;
  const bool held = waiting.HoldPushes(call, &superseded);
  EXPECT_TRUE(superseded.empty());
  return held;
}

TEST(WaitingCallsTest, PushesWaitForTheVerdictOnTheirUpdateAndSession) {
  WaitingCalls waiting(1 << 20);
  ASSERT_TRUE(Held(waiting, Pushes(1, kFirst, {0, 1})));
  ASSERT_TRUE(Held(waiting, Pushes(2, kFirst, {2})));
  ASSERT_TRUE(Held(waiting, Pushes(3, kFirst, {0}, kOther)));
  EXPECT_EQ(waiting.pushed_bytes(), 4 * kBytes);
  EXPECT_TRUE(waiting.Decide(kWorker, kSecond, {Verdict::kApply}).empty());
  const std::vector<Call> calls = waiting.Decide(kWorker, kFirst, {Verdict::kApply});
  ASSERT_EQ(NumbersOf(calls), (Numbers{1, 2}));
  ASSERT_EQ(calls[0].frames.size(), 2u);
  EXPECT_EQ(calls[0].frames[1].header.slice, 1u);
  EXPECT_EQ(calls[0].frames[1].payload.size(), kBytes);
  EXPECT_EQ(waiting.pushed_bytes(), kBytes);
  EXPECT_TRUE(waiting.Decide(kWorker, kFirst, {Verdict::kApply}).empty()) << "each once";
  EXPECT_EQ(NumbersOf(waiting.Decide(kOther, kFirst, {Verdict::kSkip})), Numbers{3});
  EXPECT_EQ(waiting.pushed_bytes(), 0u);
}

TEST(WaitingCallsTest, TheNewestVerdictOfASessionIsKnown) {
  WaitingCalls waiting(1 << 20);
  EXPECT_FALSE(waiting.DecisionOn(kWorker, kFirst).has_value());
  waiting.Decide(kWorker, kFirst, {Verdict::kApply, 0.5F, 2});
  const std::optional<Decision> decision = waiting.DecisionOn(kWorker, kFirst);
  ASSERT_TRUE(decision.has_value());
  EXPECT_EQ(decision->verdict, Verdict::kApply);
  EXPECT_EQ(decision->factor, 0.5F);
  EXPECT_EQ(decision->loss, 2);
  EXPECT_FALSE(waiting.DecisionOn(kWorker, kSecond).has_value());
  EXPECT_FALSE(waiting.DecisionOn(kOther, kFirst).has_value());
  waiting.Decide(kWorker, kSecond, {Verdict::kSkip});
  EXPECT_FALSE(waiting.DecisionOn(kWorker, kFirst).has_value());
  EXPECT_EQ(waiting.DecisionOn(kWorker, kSecond)->verdict, Verdict::kSkip);
  waiting.End(kWorker);
  EXPECT_FALSE(waiting.DecisionOn(kWorker, kSecond).has_value());
}

TEST(WaitingCallsTest, PushesOfAnotherUpdateSupersedeThoseOfTheirSession) {
  WaitingCalls waiting(1 << 20);
  ASSERT_TRUE(Held(waiting, Pushes(1, kFirst, {0})));
  ASSERT_TRUE(Held(waiting, Pushes(2, kFirst, {1})));
  ASSERT_TRUE(Held(waiting, Pushes(3, kFirst, {0}, kOther)));
  Call next = Pushes(4, kSecond, {0});
  std::vector<Call> superseded;
  EXPECT_TRUE(waiting.HoldPushes(next, &superseded));
  EXPECT_EQ(NumbersOf(superseded), (Numbers{1, 2}));
  EXPECT_EQ(waiting.pushed_bytes(), 2 * kBytes);
  EXPECT_TRUE(waiting.Decide(kWorker, kFirst, {Verdict::kApply}).empty());
  EXPECT_EQ(NumbersOf(waiting.Decide(kWorker, kSecond, {Verdict::kApply})), Numbers{4});
}

TEST(WaitingCallsTest, PushesBeyondTheLimitAreHandedBackAsTheyAre) {
  WaitingCalls waiting(2 * kBytes);
  ASSERT_TRUE(Held(waiting, Pushes(1, kFirst, {0})));
  Call large = Pushes(2, kFirst, {1, 2});
  std::vector<Call> superseded;
  EXPECT_FALSE(waiting.HoldPushes(large, &superseded));
  EXPECT_EQ(large.call, 2u);
  EXPECT_EQ(large.frames.size(), 2u);
  EXPECT_EQ(large.frames[1].payload.size(), kBytes);
  EXPECT_EQ(waiting.pushed_bytes(), kBytes);
  EXPECT_TRUE(Held(waiting, Pushes(3, kFirst, {1}, kOther))) << "up to the limit";
  EXPECT_FALSE(Held(waiting, Pushes(4, kFirst, {1}, kOther))) << "it is that of all sessions";
  // What is superseded makes room, and goes also where that is not enough.
  large = Pushes(5, kSecond, {0, 1});
  EXPECT_FALSE(waiting.HoldPushes(large, &superseded));
  EXPECT_EQ(NumbersOf(superseded), Numbers{1});
  EXPECT_EQ(waiting.pushed_bytes(), kBytes);
  EXPECT_TRUE(Held(waiting, Pushes(6, kSecond, {0})));
  EXPECT_EQ(NumbersOf(waiting.Decide(kWorker, kSecond, {Verdict::kApply})), Numbers{6});
}

TEST(WaitingCallsTest, APullSupersedesThoseOfItsSlicesAndSession) {
  WaitingCalls waiting(0);
  EXPECT_TRUE(waiting.HoldPulls(Pulls(1, {0, 1})).empty());
  EXPECT_TRUE(waiting.HoldPulls(Pulls(2, {2})).empty());
  EXPECT_TRUE(waiting.HoldPulls(Pulls(3, {0, 1, 2}, kOther)).empty());
  EXPECT_EQ(NumbersOf(waiting.HoldPulls(Pulls(4, {1, 3}))), Numbers{1});
  EXPECT_EQ(NumbersOf(waiting.HoldPulls(Pulls(5, {2, 3}))), (Numbers{2, 4}));
  const auto all = [](const std::vector<Frame>&) { return true; };
  EXPECT_EQ(NumbersOf(waiting.TakePulls(all)), (Numbers{5, 3}));
  EXPECT_TRUE(waiting.TakePulls(all).empty()) << "each once";
}

TEST(WaitingCallsTest, PullsWaitUntilTheyAreOver) {
  WaitingCalls waiting(0);
  waiting.HoldPulls(Pulls(1, {0}, kOther));
  waiting.HoldPulls(Pulls(2, {0}));
  waiting.HoldPulls(Pulls(3, {1, 2}));
  std::set<std::size_t> asked;
  const auto of_two = [&](const std::vector<Frame>& pulls) {
    asked.insert(pulls.size());
    return pulls.size() == 2;
  };
  const std::vector<Call> taken = waiting.TakePulls(of_two);
  ASSERT_EQ(NumbersOf(taken), Numbers{3});
  EXPECT_EQ(taken[0].frames[1].header.slice, 2u);
  EXPECT_EQ(asked, (std::set<std::size_t>{1, 2}));
  EXPECT_EQ(NumbersOf(waiting.TakePulls([](const std::vector<Frame>&) { return true; })), (Numbers{2, 1}))
      << "by session";
  bool any = false;
  waiting.TakePulls([&any](const std::vector<Frame>&) { return any = true; });
  EXPECT_FALSE(any);
}

TEST(WaitingCallsTest, WhatWaitsOfASessionThatIsOverIsHandedBack) {
  WaitingCalls waiting(1 << 20);
  waiting.HoldPulls(Pulls(1, {0}));
  ASSERT_TRUE(Held(waiting, Pushes(2, kFirst, {0, 1})));
  waiting.HoldPulls(Pulls(3, {0}, kOther));
  ASSERT_TRUE(Held(waiting, Pushes(4, kFirst, {0}, kOther)));
  EXPECT_TRUE(waiting.End(kOther + 1).empty());
  EXPECT_EQ(NumbersOf(waiting.End(kWorker)), (Numbers{2, 1}));
  EXPECT_EQ(waiting.pushed_bytes(), kBytes);
  EXPECT_TRUE(waiting.Decide(kWorker, kFirst, {Verdict::kApply}).empty());
  EXPECT_EQ(NumbersOf(waiting.EndAll()), (Numbers{4, 3}));
  EXPECT_EQ(waiting.pushed_bytes(), 0u);
  EXPECT_FALSE(waiting.DecisionOn(kWorker, kFirst).has_value());
  EXPECT_TRUE(waiting.EndAll().empty());
}

// Whatever happens: each call comes back once or waits, and the bytes are those of the pushes that wait.
TEST(WaitingCallsTest, EachCallComesBackOnceAndTheBytesAreOfThoseThatWait) {
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    constexpr std::size_t kLimit = 6 * kBytes;
    WaitingCalls waiting(kLimit);
    std::map<std::uint64_t, std::size_t> out;  // calls that wait: the bytes of their pushes
    std::uint64_t next = 1;
    const auto back = [&out](const std::vector<Call>& calls) {
      for (const Call& call : calls) EXPECT_EQ(out.erase(call.call), 1u) << call.call;
    };
    for (int step = 0; step < 400; ++step) {
      const std::uint64_t session = kWorker + random() % 3;
      const UpdateId update{0, 0, static_cast<std::uint32_t>(random() % 3)};
      std::vector<std::uint32_t> slices(1 + random() % 3);
      for (std::uint32_t& slice : slices) slice = random() % 4;
      switch (random() % 8) {
        case 0:
        case 1:
        case 2: {
          Call call = Pushes(next++, update, slices, session);
          std::vector<Call> superseded;
          const std::uint64_t number = call.call;
          if (waiting.HoldPushes(call, &superseded)) out[number] = slices.size() * kBytes;
          back(superseded);
          break;
        }
        case 3:
        case 4:
          out[next] = 0;
          back(waiting.HoldPulls(Pulls(next++, slices, session)));
          break;
        case 5:
          back(waiting.Decide(session, update, {Verdict::kApply}));
          break;
        case 6:
          back(waiting.TakePulls([&](const std::vector<Frame>&) { return random() % 2 == 0; }));
          break;
        default:
          back(random() % 4 == 0 ? waiting.EndAll() : waiting.End(session));
          break;
      }
      std::size_t bytes = 0;
      for (const auto& [call, pushed] : out) bytes += pushed;
      ASSERT_EQ(waiting.pushed_bytes(), bytes);
      ASSERT_LE(bytes, kLimit);
    }
    back(waiting.EndAll());
    EXPECT_TRUE(out.empty());
  }
}

}  // namespace
}  // namespace downpour::core
