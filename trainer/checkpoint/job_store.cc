#include "trainer/checkpoint/job_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/retention.h"

namespace downpour::checkpoint {
namespace {

// What of a list a job may begin with, and what cannot be used.
void Take(const std::string& uri, CheckpointList list, std::vector<core::FoundCheckpoint>* found,
          std::vector<core::SkippedCheckpoint>* skipped) {
  for (ListedCheckpoint& listed : list.checkpoints) {
    found->push_back({uri, std::move(listed.name), std::move(listed.manifest)});
  }
  for (SkippedCheckpoint& one : list.skipped) {
    // One that was being written when its job ended is nothing that somebody counts on.
    if (!one.unfinished) skipped->push_back({uri, std::move(one.name), std::move(one.reason)});
  }
}

std::uint32_t CutOf(const std::string& name) {
  const std::optional<CheckpointId> id = ParseCheckpointName(name);
  return id.has_value() ? id->cut : 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobStore>> JobStore::Create(const v1::TrainingConfig& config, std::uint32_t incarnation,
                                                           Opener open, std::function<double()> now_seconds) {
  absl::StatusOr<std::unique_ptr<Store>> store = open(config.checkpoint().uri());
  if (!store.ok()) return store.status();
  return std::unique_ptr<JobStore>(
      new JobStore(config, incarnation, *std::move(store), std::move(open), std::move(now_seconds)));
}

JobStore::JobStore(v1::TrainingConfig config, std::uint32_t incarnation, std::unique_ptr<Store> store, Opener open,
                   std::function<double()> now_seconds)
    : config_(std::move(config)),
      incarnation_(incarnation),
      store_(std::move(store)),
      open_(std::move(open)),
      now_seconds_(std::move(now_seconds)) {}

core::StoreReply JobStore::CarryOut(const core::StoreCall& call) {
  core::StoreReply reply;
  switch (call.kind) {
    case core::StoreCall::Kind::kFind:
      reply.status = Find(&reply.found);
      break;
    case core::StoreCall::Kind::kBegin:
      reply.status = Begin(call);
      break;
    case core::StoreCall::Kind::kCommit:
      Commit(call, &reply);
      break;
  }
  return reply;
}

absl::Status JobStore::Find(core::FoundCheckpoints* found) {
  absl::StatusOr<CheckpointList> own = ListCheckpoints(*store_);
  if (!own.ok()) return own.status();
  // Both are the newest first.
  if (!own->checkpoints.empty()) found->highest_cut = CutOf(own->checkpoints.front().name);
  if (!own->skipped.empty()) found->highest_cut = std::max(found->highest_cut, CutOf(own->skipped.front().name));
  Take(store_->uri(), *std::move(own), &found->own, &found->skipped);
  return config_.checkpoint().resume() == v1::RESUME_FROM ? FindSource(found) : absl::OkStatus();
}

absl::Status JobStore::FindSource(core::FoundCheckpoints* found) {
  std::string uri = config_.checkpoint().resume_uri();
  while (uri.size() > 1 && uri.back() == '/') uri.pop_back();
  const CheckpointLocation location = ParseCheckpointUri(uri);
  const absl::StatusOr<std::unique_ptr<Store>> store = open_(location.store);
  if (!store.ok()) return store.status();
  if (location.checkpoint.empty()) {
    absl::StatusOr<CheckpointList> list = ListCheckpoints(**store);
    if (!list.ok()) return list.status();
    Take(location.store, *std::move(list), &found->source, &found->skipped);
    return absl::OkStatus();
  }
  absl::StatusOr<v1::CheckpointManifest> manifest = ReadManifest(**store, location.checkpoint);
  if (manifest.ok()) {
    found->source.push_back({location.store, location.checkpoint, *std::move(manifest)});
  } else if (absl::IsNotFound(manifest.status()) || absl::IsDataLoss(manifest.status())) {
    found->skipped.push_back({location.store, location.checkpoint, std::string(manifest.status().message())});
  } else {
    return manifest.status();
  }
  return absl::OkStatus();
}

absl::Status JobStore::Begin(const core::StoreCall& call) {
  // What of this job has no manifest by now never gets one: of an earlier coordinator, or of a cut that was given up.
  // It may take the very room that this one lacks.
  const auto removed = RemoveUnfinished(*store_, config_.job_uid(), incarnation_ + 1);
  if (!removed.ok()) return removed.status();
  v1::CheckpointManifest identity = call.manifest;
  identity.set_created_seconds(now_seconds_());
  return ClaimCheckpoint(*store_, identity);
}

void JobStore::Commit(const core::StoreCall& call, core::StoreReply* reply) {
  v1::CheckpointManifest base = call.manifest;
  base.set_created_seconds(now_seconds_());
  absl::StatusOr<v1::CheckpointManifest> manifest =
      MakeManifest(std::move(base), {call.manifest.files().begin(), call.manifest.files().end()});
  reply->status = manifest.status();
  if (!manifest.ok()) return;
  reply->status = WriteManifest(*store_, *manifest);
  if (!reply->status.ok()) return;
  for (const v1::PsFiles& files : manifest->files()) reply->bytes += files.weights().bytes() + files.state().bytes();
  reply->manifest = *std::move(manifest);
  // The checkpoint is there; that there is more than is wanted costs room alone.
  if (const absl::Status tidied = TidyUp(call.in_use); !tidied.ok()) {
    reply->warning = absl::StrCat("old checkpoints could not be removed: ", tidied.message());
  }
}

absl::Status JobStore::TidyUp(const std::string& in_use) {
  absl::StatusOr<CheckpointList> list = ListCheckpoints(*store_);
  if (!list.ok()) return list.status();
  const Retention retention{config_.job_uid(), config_.checkpoint().keep(), config_.checkpoint().keep_best(), in_use};
  for (const Removal& removal : ToRemove(list->checkpoints, retention)) {
    if (absl::Status removed = Remove(*store_, removal.name); !removed.ok()) return removed;
  }
  return absl::OkStatus();
}

}  // namespace downpour::checkpoint
