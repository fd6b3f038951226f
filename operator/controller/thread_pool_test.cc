#include "operator/controller/thread_pool.h"

#include <set>
#include <thread>

#include "absl/synchronization/barrier.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

namespace downpour::controller {
namespace {

TEST(ThreadPoolTest, NoTaskWaitsForAnother) {
  constexpr int kTasks = 50;
  auto* const all = new absl::Barrier(kTasks);
  ThreadPool pool;
  for (int i = 0; i < kTasks; ++i) {
    pool.Run([all] {
      if (all->Block()) delete all;
    });
  }
}

TEST(ThreadPoolTest, ThreadsAreUsedAgain) {
  constexpr int kTasks = 200;
  ThreadPool pool;
  absl::Mutex mutex;
  std::set<std::thread::id> threads;
  for (int i = 0; i < kTasks; ++i) {
    absl::Notification done;
    pool.Run([&] {
      absl::MutexLock lock(&mutex);
      threads.insert(std::this_thread::get_id());
      done.Notify();
    });
    done.WaitForNotification();
  }
  absl::MutexLock lock(&mutex);
  EXPECT_LT(threads.size(), std::size_t{kTasks}) << "one that is about to become idle is not waited for";
}

TEST(ThreadPoolTest, ItsEndIsThatOfItsTasks) {
  bool ended = false;
  {
    ThreadPool pool;
    absl::Notification begun;
    pool.Run([&] {
      begun.Notify();
      std::this_thread::yield();
      ended = true;
    });
    begun.WaitForNotification();
  }
  EXPECT_TRUE(ended);
}

}  // namespace
}  // namespace downpour::controller
