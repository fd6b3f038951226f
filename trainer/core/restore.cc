#include "trainer/core/restore.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "trainer/core/layout.h"
#include "trainer/core/optimizer.h"

namespace downpour::core {
namespace {

constexpr std::size_t kSkippedTold = 10;

// The first that is usable and, where `job_uid` is given, of that job.
const FoundCheckpoint* First(const std::vector<FoundCheckpoint>& found, const std::string& job_uid,
                             const std::map<std::string, std::string>& unusable) {
  for (const FoundCheckpoint& checkpoint : found) {
    if (!job_uid.empty() && checkpoint.manifest.job_uid() != job_uid) continue;
    if (unusable.count(checkpoint.uri()) == 0) return &checkpoint;
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<std::optional<FoundCheckpoint>> ChooseCheckpoint(const FoundCheckpoints& found,
                                                                const v1::TrainingConfig& config,
                                                                const std::map<std::string, std::string>& unusable) {
  const FoundCheckpoint* chosen = First(found.own, config.job_uid(), unusable);
  if (chosen == nullptr) {
    switch (config.checkpoint().resume()) {
      case v1::RESUME_LATEST:
        chosen = First(found.own, "", unusable);
        break;
      case v1::RESUME_FROM:
        chosen = First(found.source, "", unusable);
        if (chosen == nullptr) {
          std::string why;
          for (const std::string& skipped : SkippedFor(found, std::nullopt, unusable)) {
            absl::StrAppend(&why, "; ", skipped);
          }
          return absl::NotFoundError(absl::StrCat("no usable checkpoint in ", config.checkpoint().resume_uri(), why));
        }
        break;
      default:
        break;
    }
  }
  if (chosen == nullptr) return std::nullopt;
  return *chosen;
}

std::vector<std::string> SkippedFor(const FoundCheckpoints& found, const std::optional<FoundCheckpoint>& chosen,
                                    const std::map<std::string, std::string>& unusable) {
  std::vector<std::string> lines;
  lines.reserve(unusable.size() + found.skipped.size());
  for (const auto& [uri, why] : unusable) lines.push_back(absl::StrCat(uri, ": ", why));
  std::reverse(lines.begin(), lines.end());
  for (const SkippedCheckpoint& one : found.skipped) {
    // Names sort by the number of the cut. One in another folder comes before all that is there.
    const bool older = chosen.has_value() && one.store == chosen->store && one.name < chosen->name;
    if (!older) lines.push_back(one.text());
  }
  if (lines.size() > kSkippedTold) lines.resize(kSkippedTold);
  return lines;
}

absl::Status CheckFits(const FoundCheckpoint& checkpoint, const v1::TrainingConfig& config,
                       absl::Span<const v1::TensorSpec> tensors, std::uint64_t sample_count) {
  const v1::CheckpointManifest& manifest = checkpoint.manifest;
  const auto refuse = [&checkpoint](const std::string& why) {
    return absl::FailedPreconditionError(absl::StrCat("the checkpoint ", checkpoint.uri(), " does not fit: ", why));
  };
  const std::string difference = TensorDifference(tensors, manifest.tensors());
  if (!difference.empty()) return refuse(absl::StrCat("in the checkpoint ", difference));
  if (manifest.data().sample_count() != sample_count) {
    return refuse(absl::StrCat("it was made with ", manifest.data().sample_count(), " training samples, there are ",
                               sample_count));
  }
  if (manifest.data().seed() != config.seed()) {
    // The order of the samples and what is not trained follow from it.
    return refuse(
        absl::StrCat("it was made with spec.training.seed ", manifest.data().seed(), ", the job has ", config.seed()));
  }
  if (const auto has = config.dataset().shuffle_block(); manifest.data().shuffle_block() != has) {
    const auto name = [](std::uint64_t block) { return block == 0 ? "Full" : absl::StrCat("Blocks of ", block); };
    return refuse(absl::StrCat("it was made with spec.dataset.shuffle ", name(manifest.data().shuffle_block()),
                               ", the job has ", name(has)));
  }
  const std::string made_with = OptimizerStateType(manifest.optimizer());
  if (const std::string has = OptimizerStateType(config.optimizer()); made_with != has) {
    return refuse(absl::StrCat("it was made with the optimizer ", made_with, ", spec.update.optimizer is ", has));
  }
  const v1::ShardId& end = manifest.end();
  const std::uint32_t begun = end.dataset_epoch() + (end.shard() > 0 ? 1 : 0);
  if (config.steps() == 0 && begun > config.epochs()) {
    return refuse(absl::StrCat("it has begun epoch ", begun, ", spec.training.epochs is ", config.epochs()));
  }
  const absl::Status plan = ResumedPlan(manifest, config).status();
  return plan.ok() ? plan : refuse(std::string(plan.message()));
}

absl::StatusOr<DataPlan> ResumedPlan(const v1::CheckpointManifest& manifest, const v1::TrainingConfig& config) {
  const absl::StatusOr<DataPlan> plan = DataPlan::Create(manifest.data());
  if (!plan.ok()) return plan.status();
  return plan->Resumed(manifest.end().dataset_epoch(), manifest.end().shard(), config);
}

absl::StatusOr<Ledger> BeginWith(const FoundCheckpoint& checkpoint, const v1::TrainingConfig& config, v1::View* view) {
  const std::vector<v1::TensorSpec> tensors(view->tensors().begin(), view->tensors().end());
  const absl::Status fits = CheckFits(checkpoint, config, tensors, view->data().sample_count());
  if (!fits.ok()) return fits;
  const absl::StatusOr<DataPlan> plan = ResumedPlan(checkpoint.manifest, config);
  if (!plan.ok()) return plan.status();
  *view->mutable_data() = plan->proto();
  view->mutable_restore()->set_store(checkpoint.store);
  view->mutable_restore()->set_checkpoint(checkpoint.name);
  view->mutable_restore()->set_updates(checkpoint.manifest.updates());
  return LedgerOf(checkpoint.manifest, *plan);
}

Ledger LedgerOf(const v1::CheckpointManifest& manifest, const DataPlan& plan) {
  Ledger ledger;
  ledger.watermark = std::min(manifest.watermark(), plan.epochs());
  for (const v1::EpochLedger& epoch : manifest.ledger()) {
    if (epoch.dataset_epoch() < ledger.watermark || epoch.dataset_epoch() >= plan.epochs()) continue;
    ledger.retired.emplace(epoch.dataset_epoch(),
                           Bitmap::FromBytes(plan.shards_in_epoch(epoch.dataset_epoch()), epoch.retired()));
  }
  return ledger;
}

}  // namespace downpour::core
