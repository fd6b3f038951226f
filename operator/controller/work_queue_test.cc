#include "operator/controller/work_queue.h"

#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace downpour::controller {
namespace {

class WorkQueueTest : public ::testing::Test {
 protected:
  absl::Time now_ = absl::UnixEpoch();
};

TEST_F(WorkQueueTest, AKeyIsQueuedOnceAndProcessedByOneWorker) {
  WorkQueue queue({}, [this] { return now_; });
  queue.Add("a");
  queue.Add("a");
  queue.Add("b");
  EXPECT_EQ(queue.counters().depth, 2u);
  EXPECT_EQ(queue.Get()->key, "a");
  queue.Add("a");  // while it is processed
  EXPECT_EQ(queue.Get()->key, "b");
  EXPECT_EQ(queue.counters().depth, 0u);
  queue.Done("a");
  EXPECT_EQ(queue.Get()->key, "a") << "what was added meanwhile is not lost";
  queue.Done("a");
  queue.Done("b");
  EXPECT_EQ(queue.counters().depth, 0u);
  EXPECT_EQ(queue.counters().adds, 4u);
}

TEST_F(WorkQueueTest, CountersSayHowLongKeysAreWorkedOn) {
  WorkQueue queue({}, [this] { return now_; });
  queue.Add("a");
  queue.Add("b");
  queue.Add("c", /*low_priority=*/true);
  EXPECT_EQ(queue.counters().depth, 3u);
  EXPECT_EQ(queue.counters().low_depth, 1u);
  EXPECT_EQ(queue.counters().longest_running, absl::ZeroDuration());
  queue.Get();
  now_ += absl::Seconds(3);
  queue.Get();
  now_ += absl::Seconds(2);
  EXPECT_EQ(queue.counters().processing, 2u);
  EXPECT_EQ(queue.counters().unfinished, absl::Seconds(7));
  EXPECT_EQ(queue.counters().longest_running, absl::Seconds(5));
  queue.Done("a");
  EXPECT_EQ(queue.counters().unfinished, absl::Seconds(2));
}

TEST_F(WorkQueueTest, KeysOfAStartComeLast) {
  WorkQueue queue({}, [this] { return now_; });
  queue.Add("old1", true);
  queue.Add("old2", true);
  queue.Add("new");
  EXPECT_EQ(queue.Get()->key, "new");
  EXPECT_EQ(queue.Get()->key, "old1");
}

TEST_F(WorkQueueTest, TheEarliestDelayCounts) {
  WorkQueue queue({}, [this] { return now_; });
  queue.AddAfter("a", absl::Seconds(10));
  queue.AddAfter("a", absl::Seconds(5));
  queue.AddAfter("a", absl::Seconds(20));
  queue.AddAfter("b", absl::Seconds(7));
  now_ += absl::Seconds(6);
  EXPECT_EQ(queue.Get()->key, "a");
  queue.Done("a");
  now_ += absl::Seconds(2);
  EXPECT_EQ(queue.Get()->key, "b");
  queue.Done("b");
  now_ += absl::Seconds(100);
  queue.Add("c");
  EXPECT_EQ(queue.Get()->key, "c") << "a is not due once more";
  EXPECT_EQ(queue.counters().depth, 0u);
}

TEST_F(WorkQueueTest, RetriesBackOffUntilForgotten) {
  WorkQueue queue({absl::Seconds(1), absl::Seconds(8)}, [this] { return now_; });
  for (const int seconds : {1, 2, 4, 8, 8, 8}) {
    queue.Retry("a");
    now_ += absl::Seconds(seconds) - absl::Milliseconds(1);
    queue.Add("early");
    EXPECT_EQ(queue.Get()->key, "early");
    queue.Done("early");
    now_ += absl::Milliseconds(1);
    EXPECT_EQ(queue.Get()->key, "a");
    queue.Done("a");
  }
  queue.Forget("a");
  queue.Retry("a");
  now_ += absl::Seconds(1);
  EXPECT_EQ(queue.Get()->key, "a");
  EXPECT_EQ(queue.counters().retries, 7u);
}

TEST_F(WorkQueueTest, WhatIsHeldUpMakesRoomForOthers) {
  WorkQueueOptions options;
  options.at_once = 2;
  options.patience = absl::Seconds(2);
  options.most_held_up = 1;
  WorkQueue queue(options, [this] { return now_; });
  for (const char* key : {"a", "b", "c", "d", "e", "f"}) queue.Add(key);
  EXPECT_EQ(queue.Get()->key, "a");
  now_ += absl::Seconds(1);
  EXPECT_EQ(queue.Get()->key, "b");
  now_ += absl::Seconds(1);
  EXPECT_EQ(queue.Get()->key, "c") << "a is held up";
  queue.Done("c");
  EXPECT_EQ(queue.Get()->key, "d");
  queue.Done("a");
  now_ += absl::Seconds(1);
  EXPECT_EQ(queue.Get()->key, "e") << "b is held up too";
  now_ += absl::Hours(1);
  queue.Add("g");
  std::thread other([&queue] { EXPECT_EQ(queue.Get()->key, "f"); });
  EXPECT_EQ(queue.counters().processing, 3u) << "too many are held up";
  queue.Done("b");
  other.join();
}

TEST_F(WorkQueueTest, WhoWaitsForRoomIsToldOfIt) {
  WorkQueueOptions options;
  options.at_once = 1;
  options.patience = absl::Hours(1);
  WorkQueue queue(options, [this] { return now_; });
  queue.Add("a");
  queue.Add("b");
  EXPECT_EQ(queue.Get()->key, "a");
  std::thread worker([&queue] { EXPECT_EQ(queue.Get()->key, "b"); });
  queue.Done("a");
  worker.join();
}

TEST_F(WorkQueueTest, ShutdownWakesWhoWaits) {
  WorkQueue queue;
  std::thread worker([&queue] { EXPECT_FALSE(queue.Get().has_value()); });
  queue.Shutdown();
  worker.join();
}

// Whatever the order of additions and completions: no key is with two workers, none is lost.
TEST_F(WorkQueueTest, IsIdleOnceTheLastKeyIsDone) {
  WorkQueue queue;
  EXPECT_TRUE(queue.AwaitIdle(absl::ZeroDuration()));
  queue.Add("a");
  queue.Add("b");
  const std::string key = queue.Get()->key;
  queue.Shutdown();
  EXPECT_FALSE(queue.AwaitIdle(absl::ZeroDuration()));
  std::thread worker([&] { queue.Done(key); });
  EXPECT_TRUE(queue.AwaitIdle(absl::Seconds(30))) << "b is begun by nobody any more";
  worker.join();
}

TEST_F(WorkQueueTest, NothingIsLostOrDoubled) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    WorkQueue queue({}, [this] { return now_; });
    std::set<std::string> processing;
    std::map<std::string, bool> wanted;  // added since it was handed out last
    for (int step = 0; step < 300; ++step) {
      const std::string key = absl::StrCat("key", random() % 5);
      switch (random() % 4) {
        case 0:
          queue.Add(key, random() % 2 == 0);
          wanted[key] = true;
          break;
        case 1:
          queue.AddAfter(key, absl::Milliseconds(random() % 3));
          wanted[key] = true;
          now_ += absl::Milliseconds(3);
          break;
        case 2: {
          queue.Add("sentinel", true);
          const std::string got = queue.Get()->key;
          if (got != "sentinel") {
            ASSERT_TRUE(processing.insert(got).second) << seed;
            wanted[got] = false;
          } else {
            queue.Done(got);
          }
          break;
        }
        default:
          if (processing.erase(key) != 0) queue.Done(key);
      }
    }
    now_ += absl::Seconds(1);
    for (const std::string& key : processing) queue.Done(key);
    std::set<std::string> rest;
    queue.Add("last", true);
    for (;;) {
      const std::string got = queue.Get()->key;
      rest.insert(got);
      if (got == "last") break;
    }
    for (const auto& [key, still] : wanted) {
      ASSERT_TRUE(!still || rest.count(key) == 1) << seed << " lost " << key;
    }
  }
}

}  // namespace
}  // namespace downpour::controller
