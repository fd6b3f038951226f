#include "trainer/service/timer.h"

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

namespace downpour::service {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(30);  // far longer than anything here takes

TEST(TimerTest, TheTimeThatWasSetLastCountsIfItIsEarlier) {
  absl::Notification called;
  Timer timer([&called] { called.Notify(); });
  timer.Set(MonotonicNow() + absl::Hours(2));
  timer.Set(MonotonicNow() + absl::Hours(1));
  timer.Set(MonotonicNow());
  EXPECT_TRUE(called.WaitForNotificationWithTimeout(kPatience));
}

TEST(TimerTest, TheTimeThatWasSetLastCountsIfItIsLater) {
  absl::Mutex mutex;
  core::Time called = absl::ZeroDuration();
  Timer timer([&] {
    absl::MutexLock lock(&mutex);
    called = MonotonicNow();
  });
  const core::Time later = MonotonicNow() + absl::Milliseconds(30);
  timer.Set(MonotonicNow() + absl::Seconds(10));
  timer.Set(later);
  timer.Set(absl::InfiniteDuration());
  timer.Set(later);
  absl::MutexLock lock(&mutex);
  const auto was_called = [&called] { return called != absl::ZeroDuration(); };
  ASSERT_TRUE(mutex.AwaitWithTimeout(absl::Condition(&was_called), kPatience));
  EXPECT_GE(called, later);
}

TEST(TimerTest, TheCallSetsTheNextOne) {
  absl::Notification third;
  int calls = 0;
  Timer* again = nullptr;
  absl::Mutex mutex;
  Timer timer([&] {
    absl::MutexLock lock(&mutex);
    if (++calls == 3) return third.Notify();
    again->Set(MonotonicNow());
  });
  {
    absl::MutexLock lock(&mutex);
    again = &timer;
  }
  timer.Set(MonotonicNow());
  EXPECT_TRUE(third.WaitForNotificationWithTimeout(kPatience));
  timer.Stop();
  EXPECT_EQ(calls, 3);
}

}  // namespace
}  // namespace downpour::service
