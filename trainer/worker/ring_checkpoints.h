#ifndef DOWNPOUR_TRAINER_WORKER_RING_CHECKPOINTS_H_
#define DOWNPOUR_TRAINER_WORKER_RING_CHECKPOINTS_H_

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "downpour/v1/control.pb.h"
#include "trainer/checkpoint/store.h"
#include "trainer/core/ring/ring_replica.h"
#include "trainer/core/ring/ring_worker.h"

namespace downpour::worker {

// Writes the checkpoints of a ring while it trains on. Thread-safe.
class RingCheckpoints {
 public:
  using OnWritten = std::function<void(std::uint32_t cut, const absl::StatusOr<v1::PsFiles>& files)>;
  // `store` may be null: whatever is to be written fails then. `on_written` is called on a thread of this object.
  RingCheckpoints(std::unique_ptr<checkpoint::Store> store, std::string job_uid, OnWritten on_written);
  // Ends after what is being written; what waits is dropped.
  ~RingCheckpoints();
  RingCheckpoints(const RingCheckpoints&) = delete;
  RingCheckpoints& operator=(const RingCheckpoints&) = delete;

  void Write(core::RingCut cut);

 private:
  void Run();
  absl::StatusOr<v1::PsFiles> WriteNow(const core::RingCut& cut);

  const std::unique_ptr<checkpoint::Store> store_;
  const std::string job_uid_;
  const OnWritten on_written_;
  absl::Mutex mutex_;
  std::deque<core::RingCut> waiting_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// `replica` becomes what the checkpoint holds, of parameter servers or of a ring. A store that is away is waited for
// until `stop` (kAborted); any other error says that this checkpoint is of no use.
absl::Status LoadCheckpoint(const v1::RestoreSource& source, const absl::Notification& stop,
                            core::RingReplica* replica);

}  // namespace downpour::worker

#endif  // DOWNPOUR_TRAINER_WORKER_RING_CHECKPOINTS_H_
