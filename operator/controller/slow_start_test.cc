#include "operator/controller/slow_start.h"

#include <algorithm>
#include <atomic>
#include <random>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>

#include "absl/synchronization/barrier.h"
#include "absl/synchronization/mutex.h"
#include "gtest/gtest.h"

namespace downpour::controller {
namespace {

TEST(SlowStartTest, WithoutTasksNothingIsCalled) {
  ThreadPool pool;
  EXPECT_TRUE(SlowStart(pool, 0, 8, [](std::size_t) { return absl::InternalError("never"); }).ok());
}

TEST(SlowStartTest, DoesAllOfVeryMany) {
  ThreadPool pool;
  for (const auto& [count, most] : {std::pair{500, 2}, std::pair{100, 8}}) {
    absl::Mutex mutex;
    std::set<std::size_t> done;
    EXPECT_TRUE(SlowStart(pool, static_cast<std::size_t>(count), most, [&](std::size_t i) {
                  absl::MutexLock lock(&mutex);
                  EXPECT_TRUE(done.insert(i).second);
                  return absl::OkStatus();
                }).ok());
    EXPECT_EQ(done.size(), static_cast<std::size_t>(count));
  }
}

TEST(SlowStartTest, DoesAllOnceAndNoMoreThanAllowedAtATime) {
  ThreadPool pool;
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const std::size_t count = random() % 60;
    const int most = static_cast<int>(random() % 10);
    absl::Mutex mutex;
    std::multiset<std::size_t> done;
    int running = 0;
    int most_running = 0;
    int succeeded = 0;
    EXPECT_TRUE(SlowStart(pool, count, most, [&](std::size_t i) {
                  {
                    absl::MutexLock lock(&mutex);
                    most_running = std::max(most_running, ++running);
                    EXPECT_LE(running, succeeded + 1) << "each that succeeds lets one more run";
                  }
                  std::this_thread::yield();
                  absl::MutexLock lock(&mutex);
                  --running;
                  ++succeeded;
                  done.insert(i);
                  return absl::OkStatus();
                }).ok());
    EXPECT_EQ(done.size(), count);
    EXPECT_EQ(std::set<std::size_t>(done.begin(), done.end()).size(), count);
    EXPECT_LE(most_running, std::max(most, 1));
  }
}

TEST(SlowStartTest, AsManyAsAllowedRunAtATimeInTheEnd) {
  ThreadPool pool;
  // The first alone; its success lets two run at a time, and theirs four, which wait for each other here.
  auto* const two = new absl::Barrier(2);
  auto* const four = new absl::Barrier(4);
  EXPECT_TRUE(SlowStart(pool, 7, 4, [&](std::size_t i) {
                if ((i == 1 || i == 2) && two->Block()) delete two;
                if (i >= 3 && four->Block()) delete four;
                return absl::OkStatus();
              }).ok());
}

TEST(SlowStartTest, WhatIsRefusedIsRefusedOnce) {
  ThreadPool pool;
  std::atomic<int> calls = 0;
  const absl::Status refused = SlowStart(pool, 100, 8, [&](std::size_t) {
    ++calls;
    return absl::PermissionDeniedError("no");
  });
  EXPECT_EQ(refused, absl::PermissionDeniedError("no"));
  EXPECT_EQ(calls, 1);
}

TEST(SlowStartTest, AfterAFailureNothingNewIsBegun) {
  ThreadPool pool;
  for (int bad = 0; bad < 40; ++bad) {
    int calls = 0;
    EXPECT_FALSE(SlowStart(pool, 1000, 1, [&](std::size_t) {
                   return calls++ == bad ? absl::InternalError("bad") : absl::OkStatus();
                 }).ok());
    EXPECT_EQ(calls, bad + 1);
  }
}

TEST(SlowStartTest, WhatATaskThrowsComesOutOnceAllHaveEnded) {
  ThreadPool pool;
  for (const std::size_t bad : {std::size_t{0}, std::size_t{1}, std::size_t{2}}) {
    std::atomic<int> calls = 0;
    EXPECT_THROW((void)SlowStart(pool, 3, 2,
                                 [&](std::size_t i) {
                                   ++calls;
                                   if (i == bad) throw std::runtime_error("a defect");
                                   return absl::OkStatus();
                                 }),
                 std::runtime_error);
    EXPECT_GE(calls, static_cast<int>(bad) + 1);
  }
}

TEST(SlowStartTest, WhatRunsBesideAFailureIsWaitedFor) {
  ThreadPool pool;
  auto* const both = new absl::Barrier(2);
  std::atomic<bool> waited = false;
  EXPECT_EQ(SlowStart(pool, 3, 2,
                      [&](std::size_t i) -> absl::Status {
                        if (i == 0) return absl::OkStatus();
                        if (both->Block()) delete both;
                        if (i == 1) return absl::InternalError("bad");
                        std::this_thread::yield();
                        waited = true;
                        return absl::OkStatus();
                      }),
            absl::InternalError("bad"));
  EXPECT_TRUE(waited);
}

}  // namespace
}  // namespace downpour::controller
