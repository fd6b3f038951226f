#include "trainer/core/ps_replicas.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/core/buffer_update.h"
#include "trainer/core/layout.h"
#include "trainer/core/optimizer.h"

namespace downpour::core {

std::optional<PsReplicas::Place> PsReplicas::PlaceIn(const v1::SlicePlacement& placement) const {
  if (placement.primary() == ps_) return Place{Role::kPrimary, placement.primary_replica()};
  if (placement.has_standby() && placement.standby() == ps_) return Place{Role::kStandby, placement.standby_replica()};
  if (placement.has_joining() && placement.joining() == ps_) return Place{Role::kJoining, placement.joining_replica()};
  return std::nullopt;
}

absl::StatusOr<PsReplicas::Entry> PsReplicas::Make(const v1::View& view, std::uint32_t number, std::uint64_t replica,
                                                   Role role) const {
  const Slice& slice = slices_[number];
  const v1::TensorSpec& tensor = view.tensors(static_cast<int>(slice.tensor));
  const bool buffer = tensor.kind() == v1::BUFFER;
  absl::StatusOr<std::unique_ptr<Optimizer>> optimizer =
      buffer ? CreateBufferUpdate() : CreateOptimizer(view.optimizer(), tensor.name(), slice.elements);
  if (!optimizer.ok()) return optimizer.status();
  Entry entry{Replica(replica, SliceState(number, slice, *std::move(optimizer), plan_), buffer), role, false, {}, 0, 0};
  entry.leader = view.layout(static_cast<int>(number)).primary_replica();
  if (role == Role::kJoining) entry.assembly.emplace(number, slice);
  return entry;
}

absl::Status PsReplicas::Begin(const v1::View& view) {
  absl::StatusOr<std::vector<Slice>> slices = CutTensors(view);
  if (!slices.ok()) return slices.status();
  absl::StatusOr<DataPlan> plan = DataPlan::Create(view.data());
  if (!plan.ok()) return plan.status();
  if (static_cast<std::size_t>(view.layout_size()) != slices->size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("view: the layout places ", view.layout_size(), " slices, the tensors have ", slices->size()));
  }
  PsReplicas fresh(ps_, bug_);
  fresh.slices_ = *std::move(slices);
  fresh.plan_ = *std::move(plan);
  for (std::uint32_t number = 0; number < fresh.slice_count(); ++number) {
    const std::optional<Place> place = PlaceIn(view.layout(static_cast<int>(number)));
    if (!place.has_value()) continue;
    absl::StatusOr<Entry> entry = fresh.Make(view, number, place->number, place->role);
    if (!entry.ok()) return entry.status();
    fresh.entries_.emplace(number, *std::move(entry));
  }
  fresh.Count();
  fresh.tables_looked_at_ = tables_looked_at_;
  *this = std::move(fresh);
  return absl::OkStatus();
}

absl::Status PsReplicas::Change(const v1::View& view) {
  if (static_cast<std::uint32_t>(view.layout_size()) != slice_count()) {
    return absl::InvalidArgumentError(
        absl::StrCat("view: the layout places ", view.layout_size(), " slices, the tensors have ", slice_count()));
  }
  std::map<std::uint32_t, Entry> fresh;
  for (std::uint32_t number = 0; number < slice_count(); ++number) {
    const std::optional<Place> place = PlaceIn(view.layout(static_cast<int>(number)));
    if (!place.has_value()) continue;
    const auto held = entries_.find(number);
    const bool goes_on = held != entries_.end() && held->second.replica.number() == place->number;
    if (goes_on && !(place->role != Role::kJoining && held->second.assembly.has_value())) continue;
    if (goes_on || place->role != Role::kJoining) {
      return absl::InvalidArgumentError(
          absl::StrCat("view: replica ", place->number, " of slice ", number, " is to count, and is not here"));
    }
    absl::StatusOr<Entry> entry = Make(view, number, place->number, place->role);
    if (!entry.ok()) return entry.status();
    fresh.emplace(number, *std::move(entry));
  }
  bool counts_change = false;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const v1::SlicePlacement& placement = view.layout(static_cast<int>(entry->first));
    const std::optional<Place> place = PlaceIn(placement);
    if (!place.has_value() || fresh.count(entry->first) != 0) {
      counts_change = counts_change || entry->second.counted();
      entry = entries_.erase(entry);
      continue;
    }
    counts_change = counts_change || entry->second.counted() != (place->role != Role::kJoining);
    entry->second.role = place->role;
    entry->second.leader = placement.primary_replica();
    entry->second.frozen = place->role == Role::kPrimary && placement.frozen();
    ++entry;
  }
  entries_.merge(fresh);
  if (counts_change) Count();
  return absl::OkStatus();
}

void PsReplicas::Count() {
  complete_ = ShardCompletion();
  counted_ = 0;
  least_watermark_ = entries_.empty() ? 0 : UINT32_MAX;
  for (auto& [number, entry] : entries_) {
    if (!entry.counted()) continue;
    ++counted_;
    AppliedTable& table = entry.replica.state().table();
    // What its primary retired while the replica was on its way.
    table.RetireComplete(bug_);
    complete_.OnRestored(table);
    least_watermark_ = std::min(least_watermark_, table.watermark());
  }
  if (counted_ == 0) least_watermark_ = 0;
}

PsReplicas::Entry* PsReplicas::Primary(std::uint32_t slice) {
  const auto entry = entries_.find(slice);
  return entry != entries_.end() && entry->second.role == Role::kPrimary ? &entry->second : nullptr;
}
const PsReplicas::Entry* PsReplicas::Primary(std::uint32_t slice) const {
  const auto entry = entries_.find(slice);
  return entry != entries_.end() && entry->second.role == Role::kPrimary ? &entry->second : nullptr;
}

std::vector<std::uint32_t> PsReplicas::primaries() const {
  std::vector<std::uint32_t> numbers;
  numbers.reserve(entries_.size());
  for (const auto& [number, entry] : entries_) {
    if (entry.role == Role::kPrimary) numbers.push_back(number);
  }
  return numbers;
}

bool PsReplicas::initialised() const {
  return std::all_of(entries_.begin(), entries_.end(), [](const auto& entry) {
    return entry.second.role != Role::kPrimary || entry.second.replica.state().initialised();
  });
}

void PsReplicas::OnRestored(std::uint32_t slice) {
  Entry& entry = entries_.at(slice);
  entry.restored = entry.replica.state().version();
  complete_.OnRestored(entry.replica.state().table());
}

Frame PsReplicas::Take(const Frame& frame, bool mine, bool* applied) {
  const FrameHeader& header = frame.header;
  Frame reply = ReplyTo(header, ReplyStatus::kApplied);
  *applied = false;
  const auto answer = [&reply](ReplyStatus status) {
    reply.header.status = status;
    return reply;
  };
  if (header.status == ReplyStatus::kCorrupt) return answer(ReplyStatus::kCorrupt);
  if (!mine) return answer(ReplyStatus::kBehind);
  const auto found = entries_.find(header.slice);
  if (found == entries_.end() || found->second.replica.number() != header.replica) {
    return answer(ReplyStatus::kWrongOwner);
  }
  Entry& entry = found->second;
  if (entry.role == Role::kPrimary) return answer(ReplyStatus::kWrongOwner);
  Replica& replica = entry.replica;
  if (header.kind == FrameKind::kCopy) {
    if (!entry.assembly.has_value()) return answer(ReplyStatus::kApplied);  // a late part
    const auto anew = [&] {
      entry.assembly.emplace(header.slice, slices_[header.slice]);
      return answer(ReplyStatus::kMalformed);
    };
    if (!entry.assembly->Add(frame).ok()) return anew();
    absl::StatusOr<std::optional<ReplicaCopy>> copy = entry.assembly->Take();
    if (!copy.ok()) return anew();
    if (!copy->has_value()) return answer(ReplyStatus::kApplied);
    if (bug_ == PlantedBug::kTableNotReplicated) {
      (*copy)->snapshot.table.clear_epochs();
      (*copy)->snapshot.table.set_watermark(0);
    }
    if (!replica.Import(**copy).ok()) return anew();
    entry.assembly.reset();
    return answer(ReplyStatus::kApplied);
  }
  // Who was the primary before may not have heard of it, and what it did is no part of the history: also where this
  // replica was the primary since, and has other records under these numbers.
  if (header.clock != entry.leader) return answer(ReplyStatus::kWrongOwner);
  reply.header.sequence = replica.sequence();
  if (entry.assembly.has_value() || header.sequence > replica.sequence() + 1) return answer(ReplyStatus::kNotReady);
  if (header.sequence <= replica.sequence()) return answer(ReplyStatus::kApplied);
  if (!replica.Check(frame).ok()) return answer(ReplyStatus::kMalformed);
  const absl::StatusOr<Replica::Done> done = replica.Do(frame);
  if (!done.ok()) return answer(ReplyStatus::kMalformed);
  *applied = header.record == RecordKind::kUpdate;
  if (done->completes_shard) {
    // It may be retired already where the replica counted late, and is not asked about again.
    replica.state().table().Retire(header.update.dataset_epoch, header.update.data_shard, bug_);
    if (entry.counted()) complete_.OnComplete({header.update.dataset_epoch, header.update.data_shard});
  }
  reply.header.sequence = replica.sequence();
  return answer(ReplyStatus::kApplied);
}

void PsReplicas::Confirm(const v1::ShardId& shard, bool inspect, bool settled, v1::DirectReply* reply) {
  v1::ShardBitmap* answer = reply->add_shards();
  *answer->mutable_shard() = shard;
  const ShardKey key{shard.dataset_epoch(), shard.shard()};
  if (!plan_.Contains({key.first, key.second, 0})) return;
  if (!settled) return;  // it will be asked again
  const bool retired = key.first < least_watermark_;
  const bool complete = retired || complete_.Complete(key, counted_);
  answer->set_complete(complete);
  if (inspect && !complete) {
    Bitmap applied(plan_.updates_in_shard(key.first, key.second), true);
    for (const auto& [number, entry] : entries_) {
      if (entry.counted()) applied.And(entry.replica.state().table().Applied(key.first, key.second));
    }
    tables_looked_at_ += counted_;
    answer->set_applied(applied.bytes());
    answer->set_inspected(true);
  }
  if (retired || (!complete && bug_ != PlantedBug::kBitmapFreedEarly)) return;
  for (auto& [number, entry] : entries_) {
    if (entry.counted()) entry.replica.state().table().Retire(key.first, key.second, bug_);
  }
  tables_looked_at_ += counted_;
}

std::uint32_t PsReplicas::Advance(std::uint32_t target) {
  std::uint32_t watermark = target;
  for (auto& [number, entry] : entries_) {
    if (!entry.counted()) continue;
    AppliedTable& table = entry.replica.state().table();
    table.Advance(target);
    watermark = std::min(watermark, table.watermark());
  }
  least_watermark_ = watermark;
  complete_.Forget(watermark);
  return watermark;
}

void PsReplicas::Describe(v1::RegisterPsRequest* request) const {
  // What every slice here agrees on. Without slices there is nothing to disagree with.
  std::uint32_t watermark = counted_ == 0 ? plan_.epochs() : UINT32_MAX;
  std::uint32_t end = 0;
  for (const auto& [number, entry] : entries_) {
    if (!entry.counted()) continue;
    watermark = std::min(watermark, entry.replica.state().table().watermark());
    end = std::max(end, entry.replica.state().table().end_epoch());
  }
  request->set_watermark(watermark);
  for (std::uint32_t epoch = watermark; epoch < end; ++epoch) {
    Bitmap retired(plan_.shards_in_epoch(epoch), true);
    for (const auto& [number, entry] : entries_) {
      if (entry.counted()) retired.And(entry.replica.state().table().Retired(epoch));
    }
    v1::EpochLedger* ledger = request->add_ledger();
    ledger->set_dataset_epoch(epoch);
    ledger->set_retired(retired.bytes());
  }
}

void PsReplicas::Describe(v1::PsStats* stats) const {
  for (const auto& [number, entry] : entries_) {
    const SliceState& state = entry.replica.state();
    if (entry.role != Role::kPrimary) {
      stats->set_standby_slices(stats->standby_slices() + 1);
      continue;
    }
    stats->set_slices(stats->slices() + 1);
    stats->set_parameter_bytes(stats->parameter_bytes() + state.slice().bytes());
    stats->set_applied(stats->applied() + state.version());
    stats->set_restored(stats->restored() + entry.restored);
    stats->set_skipped(std::max(stats->skipped(), state.skipped()));
  }
}

void PsReplicas::Describe(v1::LedgerReply* reply) const {
  for (const auto& [number, entry] : entries_) {
    if (entry.role != Role::kPrimary) continue;
    const SliceState& state = entry.replica.state();
    v1::SliceLedger* ledger = reply->add_slices();
    ledger->set_slice(number);
    ledger->set_version(state.version());
    ledger->set_skipped(state.skipped());
    state.table().Export(ledger);
  }
}

}  // namespace downpour::core
