#include "absl/strings/str_cat.h"
#include "tests/simulation/job.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/manifest.h"

namespace downpour::simulation {

struct Job::Writing {
  core::PsCore::CutToWrite cut;
  std::map<std::uint32_t, core::SliceSnapshot> snapshots;
};

void Job::StepStore(const ProcessPointer& process) {
  if (process->store_busy || !process->alive) return;
  if (process->kind == Kind::kCoordinator) {
    if (process->store_calls.empty()) return;
    process->store_busy = true;
    AtProcess(now() + disk_->Delay(), process, [this, process] {
      const core::StoreCall call = std::move(process->store_calls.front());
      process->store_calls.pop_front();
      CarryOut(process, call);
    });
  } else if (const auto restore = process->ps->TakeRestore(); restore.has_value()) {
    process->store_busy = true;
    Load(process, *restore);
  } else if (auto cut = process->ps->TakeCutToWrite(); cut.has_value()) {
    process->store_busy = true;
    GatherSnapshots(process, std::make_shared<Writing>(Writing{*std::move(cut), {}}));
  }
}

bool Job::Died(const ProcessPointer& process, Disk::Outcome outcome) {
  if (outcome == Disk::Outcome::kOver) return false;
  Count(outcome == Disk::Outcome::kProcessDied ? "torn write" : "machine stops");
  if (outcome == Disk::Outcome::kMachineStopped) checks_->AfterStop();
  Kill(process, "in the middle of its use of the disk");
  ReplaceSoon(process);
  return true;
}

// ---- the coordinator

void Job::CarryOut(const ProcessPointer& process, const core::StoreCall& call) {
  core::StoreReply reply;
  if (disk_->away()) {
    reply.status = absl::UnavailableError("the store is away");
  } else {
    checks_->BeforeStop();
    const Disk::Outcome outcome = disk_->Use([&] { reply = process->store->CarryOut(call); });
    const std::string& store = config_.checkpoint().uri();
    if (outcome != Disk::Outcome::kOver) reply.status = absl::AbortedError("the process is dead");
    if (call.kind == core::StoreCall::Kind::kCommit) {
      checks_->OnCommitted(store, call.manifest, reply.status);
      if (reply.status.ok()) faults_->OnCheckpoint();
    }
    if (Died(process, outcome)) return;
    if (call.kind != core::StoreCall::Kind::kBegin) process->found = checks_->NewestIntact(config_);
  }
  Trace(absl::StrCat(process->name(), ": store call ", static_cast<int>(call.kind), ": ", reply.status.ToString()));
  AtProcess(now() + disk_->Delay(), process, [this, process, id = call.call, reply] {
    process->coordinator->OnStoreReply(id, reply, process->clock(now()));
    process->store_busy = false;
    TickCoordinator(process);
  });
}

// ---- a ps

void Job::Load(const ProcessPointer& process, const core::PsCore::Restore& restore) {
  AtProcess(now() + disk_->Delay(), process, [this, process, restore] {
    if (process->ps->RestoreWanted(restore.generation)) {
      absl::Status loaded = absl::UnavailableError("the store is away");
      if (!disk_->away()) {
        checks_->BeforeStop();
        if (Died(process, disk_->Use([&] { loaded = TryLoad(*process, restore); }))) return;
      }
      Trace(absl::StrCat(process->name(), " loads ", restore.source.checkpoint(), ": ", loaded.ToString()));
      process->ps->OnRestored(restore.generation, loaded);
      if (core::RestoreMayComeYet(loaded)) return Load(process, restore);
    }
    process->store_busy = false;
    StepStore(process);
  });
}

absl::Status Job::TryLoad(Process& process, const core::PsCore::Restore& restore) {
  const std::unique_ptr<checkpoint::Store> store = disk_->Open(restore.source.store());
  const absl::StatusOr<v1::CheckpointManifest> manifest = checkpoint::ReadManifest(*store, restore.source.checkpoint());
  if (!manifest.ok()) return manifest.status();
  return checkpoint::ReadSlices(
      *store, restore.source.checkpoint(), *manifest, restore.slices, [&](const core::SliceSnapshot& snapshot) {
        const absl::Status taken = process.ps->OnSliceRestored(restore.generation, snapshot);
        if (!taken.ok()) return taken;
        const core::DataPlan plan = *core::DataPlan::Create(process.ps->view().data());
        const v1::LedgerReply tables = process.ps->ReadLedger();
        for (const v1::SliceLedger& table : tables.slices()) {
          if (table.slice() != snapshot.number) continue;
          checks_->OnRestored(HistoryOf(process),
                              absl::StrCat(restore.source.store(), "/", restore.source.checkpoint()), plan, table,
                              *process.ps->value(table.slice()));
        }
        return absl::OkStatus();
      });
}

void Job::GatherSnapshots(const ProcessPointer& process, const std::shared_ptr<Writing>& writing) {
  // One after another while pushes go on, as when each is written before the next is taken.
  AtProcess(now() + disk_->Delay(), process, [this, process, writing] {
    const std::size_t next = writing->snapshots.size();
    if (next == writing->cut.slices.size()) return WriteFiles(process, writing);
    absl::StatusOr<core::SliceSnapshot> snapshot =
        process->ps->TakeSnapshot(writing->cut.cut, writing->cut.slices[next]);
    if (!snapshot.ok()) return EndWriting(process, writing->cut.cut, snapshot.status());
    writing->snapshots.emplace(writing->cut.slices[next], *std::move(snapshot));
    GatherSnapshots(process, writing);
  });
}

void Job::WriteFiles(const ProcessPointer& process, const std::shared_ptr<Writing>& writing) {
  absl::StatusOr<v1::PsFiles> files = absl::UnavailableError("the store is away");
  if (!disk_->away()) {
    const std::unique_ptr<checkpoint::Store> store = disk_->Open(config_.checkpoint().uri());
    const checkpoint::PsCut part{writing->cut.checkpoint, process->job_uid,  process->index,
                                 writing->cut.tensors,    writing->cut.data, writing->cut.slices};
    const auto write = [&] {
      files = checkpoint::WritePsFiles(*store, part, [&](std::uint32_t slice) -> absl::StatusOr<core::SliceSnapshot> {
        return writing->snapshots.at(slice);
      });
    };
    checks_->BeforeStop();
    // To say that they are there before they are is to say so before they are durable.
    const bool early = options_.bug == core::PlantedBug::kManifestBeforeData;
    if (Died(process, early ? disk_->UseUnsynced(write) : disk_->Use(write))) return;
  }
  Trace(absl::StrCat(process->name(), " writes ", writing->cut.checkpoint, ": ", files.status().ToString()));
  AtProcess(now() + disk_->Delay(), process,
            [this, process, cut = writing->cut.cut, files] { EndWriting(process, cut, files); });
}

void Job::EndWriting(const ProcessPointer& process, std::uint32_t cut, absl::StatusOr<v1::PsFiles> files) {
  process->ps->OnCutWritten(cut, files);
  process->store_busy = false;
  StepStore(process);
}

}  // namespace downpour::simulation
