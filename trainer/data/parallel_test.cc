#include "trainer/data/parallel.h"

#include <atomic>
#include <thread>
#include <vector>

#include "absl/synchronization/barrier.h"
#include "gtest/gtest.h"

namespace downpour::data {
namespace {

TEST(ParallelTest, DoesEachItemOnce) {
  for (const int threads : {0, 1, 3}) {
    Parallel parallel(threads);
    for (const std::size_t items : {0U, 1U, 2U, 1000U}) {
      std::vector<std::atomic<int>> done(items);
      parallel.ForEach(items, [&](std::size_t i) { ++done[i]; });
      for (const std::atomic<int>& times : done) EXPECT_EQ(times.load(), 1) << threads << " threads, " << items;
    }
  }
}

TEST(ParallelTest, ItemsAreDoneAtTheSameTime) {
  Parallel parallel(2);
  absl::Barrier* const barrier = new absl::Barrier(3);
  parallel.ForEach(3, [&](std::size_t) {
    if (barrier->Block()) delete barrier;
  });
}

TEST(ParallelTest, SeveralMayCall) {
  Parallel parallel(2);
  std::atomic<int> done{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      for (int round = 0; round < 50; ++round) parallel.ForEach(7, [&](std::size_t) { ++done; });
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(done.load(), 4 * 50 * 7);
}

}  // namespace
}  // namespace downpour::data
