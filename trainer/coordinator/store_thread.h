#ifndef DOWNPOUR_TRAINER_COORDINATOR_STORE_THREAD_H_
#define DOWNPOUR_TRAINER_COORDINATOR_STORE_THREAD_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "trainer/checkpoint/job_store.h"
#include "trainer/core/job_checkpoints.h"

namespace downpour::coordinator {

// Carries out what the coordinator wants of the store, one call after another. Thread-safe.
class StoreThread {
 public:
  // `done` is called on the thread, once for each call.
  StoreThread(std::unique_ptr<checkpoint::JobStore> store, std::function<void(std::uint64_t, core::StoreReply)> done);
  // Ends after the call that is under way; those that wait are dropped.
  ~StoreThread();
  StoreThread(const StoreThread&) = delete;
  StoreThread& operator=(const StoreThread&) = delete;

  void Add(std::vector<core::StoreCall> calls);

 private:
  void Run();

  const std::unique_ptr<checkpoint::JobStore> store_;
  const std::function<void(std::uint64_t, core::StoreReply)> done_;
  absl::Mutex mutex_;
  std::deque<core::StoreCall> calls_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace downpour::coordinator

#endif  // DOWNPOUR_TRAINER_COORDINATOR_STORE_THREAD_H_
