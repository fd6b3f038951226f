#ifndef DOWNPOUR_TRAINER_PS_CHECKPOINT_THREAD_H_
#define DOWNPOUR_TRAINER_PS_CHECKPOINT_THREAD_H_

#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "trainer/checkpoint/store.h"
#include "trainer/core/ps.h"

namespace downpour::ps {

// Writes the cuts of a ps, and reads the checkpoint that a generation begins with, while the ps goes on.
class CheckpointThread {
 public:
  // `mutex` guards `core`; both must outlive it. `store`: of the job's own checkpoints; null: none. Begins at once.
  CheckpointThread(absl::Mutex* mutex, core::PsCore* core, std::unique_ptr<checkpoint::Store> store,
                   std::string job_uid, std::uint32_t ps);
  // Ends after the file operation that is under way.
  ~CheckpointThread();
  CheckpointThread(const CheckpointThread&) = delete;
  CheckpointThread& operator=(const CheckpointThread&) = delete;

 private:
  void Run();
  void Write(const core::PsCore::CutToWrite& cut);
  void Load(const core::PsCore::Restore& restore);
  absl::Status TryLoad(const core::PsCore::Restore& restore);

  absl::Mutex* const mutex_;
  core::PsCore* const core_ ABSL_PT_GUARDED_BY(mutex_);
  const std::unique_ptr<checkpoint::Store> store_;
  const std::string job_uid_;
  const std::uint32_t ps_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace downpour::ps

#endif  // DOWNPOUR_TRAINER_PS_CHECKPOINT_THREAD_H_
