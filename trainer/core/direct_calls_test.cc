#include "trainer/core/direct_calls.h"

#include "gtest/gtest.h"

namespace downpour::core {
namespace {

constexpr absl::Duration kPace = absl::Milliseconds(5);
constexpr absl::Duration kPeriod = absl::Milliseconds(500);
constexpr Time kStart = absl::Seconds(100);

TEST(DirectCallsTest, ThereIsOneCallAtATimeAndTheNextComesSoonOrLater) {
  DirectCalls calls(kPace, kPeriod);
  calls.Hear(1, /*new_process=*/true, kStart);
  EXPECT_EQ(calls.Due(1, /*settled=*/true), kStart);
  const std::uint64_t call = calls.Begin(1, kStart);
  EXPECT_EQ(calls.Due(1, false), std::nullopt);
  EXPECT_EQ(calls.End(call), 1u);
  EXPECT_EQ(calls.End(call), std::nullopt) << "answered once";
  const Time answered = kStart + absl::Milliseconds(2);
  calls.Answered(1, answered);
  EXPECT_EQ(calls.Due(1, /*settled=*/false), answered + kPace);
  EXPECT_EQ(calls.Due(1, /*settled=*/true), kStart + kPeriod);
  calls.Postpone(1, kStart + absl::Seconds(9));
  EXPECT_EQ(calls.Due(1, false), kStart + absl::Seconds(9));
  EXPECT_EQ(calls.last_heard(1), answered) << "to have no answer is not to hear";
}

TEST(DirectCallsTest, AnswersOfAProcessThatWasReplacedOrAboutAnotherHistoryDoNotCount) {
  DirectCalls calls(kPace, kPeriod);
  const std::uint64_t replaced = calls.Begin(0, kStart);
  const std::uint64_t other = calls.Begin(1, kStart);
  calls.Hear(1, /*new_process=*/false, kStart);
  EXPECT_EQ(calls.Due(1, false), std::nullopt) << "still under way";
  calls.Hear(0, /*new_process=*/true, kStart);
  EXPECT_EQ(calls.End(replaced), std::nullopt);
  EXPECT_EQ(calls.Due(0, true), kStart);
  calls.ForgetAll();
  EXPECT_EQ(calls.End(other), std::nullopt);
  EXPECT_EQ(calls.Due(1, true), absl::ZeroDuration()) << "at once";
}

TEST(DirectCallsTest, OneThatIsNotThereSeveralTimesInARowIsBroken) {
  DirectCalls calls(kPace, kPeriod);
  const Time begin = absl::Seconds(1);
  const auto at = [&](int milliseconds) { return begin + absl::Milliseconds(milliseconds); };
  calls.Hear(0, /*new_process=*/true, begin);
  for (const int milliseconds : {0, 20, 40}) calls.Broken(0, at(milliseconds));
  EXPECT_FALSE(calls.broken(0, at(40))) << "a moment";
  EXPECT_TRUE(calls.broken(0, at(60)));
  calls.Answered(0, at(70));
  EXPECT_FALSE(calls.broken(0, at(200)));
  for (const int milliseconds : {100, 200}) calls.Broken(0, at(milliseconds));
  EXPECT_FALSE(calls.broken(0, at(300))) << "twice";
  calls.Broken(0, at(300));
  EXPECT_TRUE(calls.broken(0, at(300)));
  calls.Hear(0, /*new_process=*/true, at(310));
  EXPECT_FALSE(calls.broken(0, at(400)));
  EXPECT_FALSE(calls.broken(1, at(400))) << "one that nobody knows";
}

}  // namespace
}  // namespace downpour::core
