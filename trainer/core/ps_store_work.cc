#include "trainer/core/ps_store_work.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/core/step_sum.h"

namespace downpour::core {

bool RestoreMayComeYet(const absl::Status& read) {
  return !read.ok() && !absl::IsDataLoss(read) && !absl::IsNotFound(read) && !absl::IsInvalidArgument(read);
}

PsStoreWork::PsStoreWork(PsReplicas* replicas, const Options& options) : replicas_(*replicas), options_(options) {}

void PsStoreWork::Begin() {
  restore_given_out_ = false;
  restore_error_.clear();
  restore_waits_.clear();
}

void PsStoreWork::Take(const v1::DirectRequest& request) {
  const bool newer_coordinator = request.stamp().incarnation() > incarnation_;
  if (!newer_coordinator && request.sequence() < sequence_) return;
  incarnation_ = request.stamp().incarnation();
  sequence_ = request.sequence();
  const v1::CutOrder& order = request.cut();
  if (!request.has_cut() || (open_cut_.has_value() && open_cut_->cut() != order.cut())) open_cut_.reset();
  if (!request.has_cut()) return;
  if (!open_cut_.has_value()) {
    const std::vector<std::uint32_t> numbers = replicas_.primaries();
    open_cut_.emplace(order, std::set(numbers.begin(), numbers.end()), options_.extra_bytes_limit);
    if (!options_.has_store) {
      open_cut_->OnWritten(absl::FailedPreconditionError(absl::StrCat("ps-", options_.ps, " has no store")));
    } else if (order.cut() <= highest_cut_) {
      // Pushes that belong behind it may have been applied meanwhile.
      open_cut_->OnWritten(absl::AbortedError(absl::StrCat("ps-", options_.ps, " has seen cut ", highest_cut_)));
    }
    highest_cut_ = std::max(highest_cut_, order.cut());
  }
  if (order.sealed()) open_cut_->Seal();
}

void PsStoreWork::OnPush(std::uint32_t cut) {
  highest_cut_ = std::max(highest_cut_, cut);
  applied_cut_ = std::max(applied_cut_, cut);
}

void PsStoreWork::Describe(bool with_cut, v1::DirectReply* reply) const {
  if (with_cut && open_cut_.has_value()) *reply->mutable_cut() = open_cut_->state();
  reply->set_restore_error(restore_error_);
  reply->set_restore_waits(restore_waits_);
}

// ---- the open cut

bool PsStoreWork::HasWork(const v1::View& view) const {
  return (open_cut_.has_value() && open_cut_->due()) || (view.has_restore() && !restore_given_out_);
}

std::optional<PsStoreWork::CutToWrite> PsStoreWork::TakeCutToWrite(const v1::View& view) {
  if (!open_cut_.has_value() || !open_cut_->due()) return std::nullopt;
  open_cut_->GiveOut();
  return CutToWrite{open_cut_->cut(),
                    open_cut_->checkpoint(),
                    {view.tensors().begin(), view.tensors().end()},
                    view.data(),
                    replicas_.primaries()};
}

absl::StatusOr<SliceSnapshot> PsStoreWork::TakeSnapshot(std::uint32_t cut, std::uint32_t slice) {
  if (!open_cut_.has_value() || open_cut_->cut() != cut) {
    return absl::AbortedError(absl::StrCat("cut ", cut, " is not wanted any more"));
  }
  const PsReplicas::Entry* entry = replicas_.Primary(slice);
  if (entry == nullptr) return absl::AbortedError(absl::StrCat("slice ", slice, " is not here any more"));
  absl::StatusOr<SliceSnapshot> snapshot = open_cut_->Take(entry->replica.state());
  if (options_.bug == PlantedBug::kStepSumLost && snapshot.ok()) {
    return StepSum().Import(&snapshot->optimizer, snapshot->slice.elements, 0).ok() ? *std::move(snapshot) : snapshot;
  }
  return snapshot;
}

void PsStoreWork::OnCutWritten(std::uint32_t cut, const absl::StatusOr<v1::PsFiles>& files) {
  if (open_cut_.has_value() && open_cut_->cut() == cut) open_cut_->OnWritten(files);
}

// ---- the checkpoint

std::optional<PsStoreWork::Restore> PsStoreWork::TakeRestore(const v1::View& view) {
  if (!view.has_restore() || restore_given_out_) return std::nullopt;
  restore_given_out_ = true;
  return Restore{view.stamp().generation(), view.restore(), replicas_.primaries()};
}

absl::Status PsStoreWork::OnSliceRestored(const v1::View& view, std::uint64_t generation,
                                          const SliceSnapshot& snapshot) {
  PsReplicas::Entry* entry = replicas_.Primary(snapshot.number);
  if (generation != view.stamp().generation() || entry == nullptr) {
    return absl::AbortedError(absl::StrCat("generation ", generation, " is over"));
  }
  SliceState& state = entry->replica.state();
  if (state.initialised()) return absl::OkStatus();  // by a try before
  absl::Status imported = state.Import(snapshot, view.optimizer().learning_rate());
  if (!imported.ok()) return imported;
  state.SettleSum();
  replicas_.OnRestored(snapshot.number);
  return absl::OkStatus();
}

void PsStoreWork::OnRestored(const absl::Status& read) {
  restore_waits_.clear();
  if (read.ok()) return;
  (RestoreMayComeYet(read) ? restore_waits_ : restore_error_) = std::string(read.message());
}

}  // namespace downpour::core
