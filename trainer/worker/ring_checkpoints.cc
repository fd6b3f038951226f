#include "trainer/worker/ring_checkpoints.h"

#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "spdlog/spdlog.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/core/ps_store_work.h"
#include "trainer/service/process.h"

namespace downpour::worker {
namespace {

constexpr std::uint32_t kWriter = 0;  // as which ps the files are named
constexpr absl::Duration kPause = absl::Seconds(1);

absl::Status TryLoad(const v1::RestoreSource& source, core::RingReplica* replica) {
  std::vector<std::uint32_t> slices(replica->slices().size());
  std::iota(slices.begin(), slices.end(), 0);
  return checkpoint::ReadSlices(source, slices,
                                [&](const core::SliceSnapshot& snapshot) { return replica->Import(snapshot); });
}

}  // namespace

RingCheckpoints::RingCheckpoints(std::unique_ptr<checkpoint::Store> store, std::string job_uid, OnWritten on_written)
    : store_(std::move(store)), job_uid_(std::move(job_uid)), on_written_(std::move(on_written)) {
  thread_ = std::thread([this] { Run(); });
}

RingCheckpoints::~RingCheckpoints() {
  {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
  }
  thread_.join();
}

void RingCheckpoints::Write(core::RingCut cut) {
  absl::MutexLock lock(&mutex_);
  waiting_.push_back(std::move(cut));
}

void RingCheckpoints::Run() {
  for (;;) {
    core::RingCut cut;
    {
      absl::MutexLock lock(&mutex_);
      const auto woken = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopped_ || !waiting_.empty(); };
      mutex_.Await(absl::Condition(&woken));  // ends with the destructor
      if (stopped_) return;
      cut = std::move(waiting_.front());
      waiting_.pop_front();
    }
    const core::Time begun = service::MonotonicNow();
    const absl::StatusOr<v1::PsFiles> files = WriteNow(cut);
    if (files.ok()) {
      spdlog::info("cut {}: {} slices, {} bytes written in {:.3f} s", cut.cut, files->slices_size(),
                   files->weights().bytes() + files->state().bytes(),
                   absl::ToDoubleSeconds(service::MonotonicNow() - begun));
    } else {
      spdlog::warn("cut {}: {}", cut.cut, files.status().ToString());
    }
    cut.slices.clear();  // what they share may be written again
    on_written_(cut.cut, files);
  }
}

absl::StatusOr<v1::PsFiles> RingCheckpoints::WriteNow(const core::RingCut& cut) {
  if (store_ == nullptr) return absl::FailedPreconditionError("this worker has no store");
  checkpoint::PsCut part{cut.checkpoint, job_uid_, kWriter, cut.tensors, cut.data, {}};
  part.slices.resize(cut.slices.size());
  std::iota(part.slices.begin(), part.slices.end(), 0);
  return checkpoint::WritePsFiles(
      *store_, part, [&](std::uint32_t slice) -> absl::StatusOr<core::SliceSnapshot> { return cut.slices[slice]; });
}

absl::Status LoadCheckpoint(const v1::RestoreSource& source, const absl::Notification& stop,
                            core::RingReplica* replica) {
  for (;;) {
    absl::Status loaded = TryLoad(source, replica);
    if (loaded.ok()) {
      spdlog::info("begins with {}/{}", source.store(), source.checkpoint());
      return loaded;
    }
    spdlog::warn("{}/{}: {}", source.store(), source.checkpoint(), loaded.ToString());
    if (!core::RestoreMayComeYet(loaded)) return loaded;
    if (stop.WaitForNotificationWithTimeout(kPause)) return absl::AbortedError("another ring has come");
  }
}

}  // namespace downpour::worker
