#include "trainer/ps/checkpoint_thread.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "spdlog/spdlog.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/service/process.h"

namespace downpour::ps {
namespace {

constexpr absl::Duration kPause = absl::Seconds(2);  // between two tries to read

}  // namespace

CheckpointThread::CheckpointThread(absl::Mutex* mutex, core::PsCore* core, std::unique_ptr<checkpoint::Store> store,
                                   std::string job_uid, std::uint32_t ps)
    : mutex_(mutex), core_(core), store_(std::move(store)), job_uid_(std::move(job_uid)), ps_(ps), thread_([this] {
        Run();
      }) {}

CheckpointThread::~CheckpointThread() {
  {
    absl::MutexLock lock(mutex_);
    stopped_ = true;
  }
  thread_.join();
}

void CheckpointThread::Run() {
  for (;;) {
    std::optional<core::PsCore::CutToWrite> cut;
    std::optional<core::PsCore::Restore> restore;
    {
      absl::MutexLock lock(mutex_);
      const auto due = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopped_ || core_->HasStoreWork(); };
      mutex_->Await(absl::Condition(&due));
      if (stopped_) return;
      restore = core_->TakeRestore();
      cut = core_->TakeCutToWrite();
    }
    if (restore.has_value()) Load(*restore);
    if (cut.has_value()) Write(*cut);
  }
}

void CheckpointThread::Write(const core::PsCore::CutToWrite& cut) {
  const core::Time begun = service::MonotonicNow();
  const auto take = [&](std::uint32_t slice) -> absl::StatusOr<core::SliceSnapshot> {
    absl::MutexLock lock(mutex_);
    if (stopped_) return absl::CancelledError("the ps ends");
    return core_->TakeSnapshot(cut.cut, slice);
  };
  const checkpoint::PsCut part{cut.checkpoint, job_uid_, ps_, cut.tensors, cut.data, cut.slices};
  const absl::StatusOr<v1::PsFiles> files = checkpoint::WritePsFiles(*store_, part, take);
  if (files.ok()) {
    spdlog::info("cut {}: {} slices, {} bytes written in {:.3f} s", cut.cut, files->slices_size(),
                 files->weights().bytes() + files->state().bytes(),
                 absl::ToDoubleSeconds(service::MonotonicNow() - begun));
  } else {
    spdlog::warn("cut {}: {}", cut.cut, files.status().ToString());
  }
  absl::MutexLock lock(mutex_);
  core_->OnCutWritten(cut.cut, files);
}

absl::Status CheckpointThread::TryLoad(const core::PsCore::Restore& restore) {
  return checkpoint::ReadSlices(restore.source, restore.slices,
                                [&](const core::SliceSnapshot& snapshot) -> absl::Status {
                                  absl::MutexLock lock(mutex_);
                                  if (stopped_) return absl::CancelledError("the ps ends");
                                  return core_->OnSliceRestored(restore.generation, snapshot);
                                });
}

void CheckpointThread::Load(const core::PsCore::Restore& restore) {
  const core::Time begun = service::MonotonicNow();
  for (;;) {
    const absl::Status loaded = TryLoad(restore);
    absl::MutexLock lock(mutex_);
    if (stopped_ || !core_->RestoreWanted(restore.generation)) return;
    core_->OnRestored(restore.generation, loaded);
    if (loaded.ok()) {
      spdlog::info("generation {} begins with {}/{}: {} slices read in {:.3f} s", restore.generation,
                   restore.source.store(), restore.source.checkpoint(), restore.slices.size(),
                   absl::ToDoubleSeconds(service::MonotonicNow() - begun));
      return;
    }
    spdlog::warn("{}/{}: {}", restore.source.store(), restore.source.checkpoint(), loaded.ToString());
    if (!core::RestoreMayComeYet(loaded)) return;
    const auto over = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return stopped_ || !core_->RestoreWanted(restore.generation);
    };
    if (mutex_->AwaitWithTimeout(absl::Condition(&over), kPause)) return;
  }
}

}  // namespace downpour::ps
