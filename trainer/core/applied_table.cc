#include "trainer/core/applied_table.h"

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace downpour::core {

absl::StatusOr<AppliedTable> AppliedTable::FromLedger(const DataPlan& plan, const v1::SliceLedger& ledger) {
  AppliedTable table(plan);
  table.watermark_ = ledger.watermark();
  for (const v1::EpochTable& from : ledger.epochs()) {
    if (from.dataset_epoch() < ledger.watermark() || table.epochs_.count(from.dataset_epoch()) != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("table: dataset epoch ", from.dataset_epoch(), " is below the watermark or there twice"));
    }
    Epoch& epoch = table.EpochOf(from.dataset_epoch());
    epoch.retired = Bitmap::FromBytes(plan.shards_in_epoch(from.dataset_epoch()), from.retired());
    for (const v1::ShardTable& open : from.open()) {
      if (open.shard() >= plan.shards_in_epoch(from.dataset_epoch()) || epoch.retired.Test(open.shard()) ||
          epoch.open.count(open.shard()) != 0) {
        return absl::InvalidArgumentError(absl::StrCat("table: data shard ", open.shard(), " of dataset epoch ",
                                                       from.dataset_epoch(),
                                                       " is not in the plan, retired already, or there twice"));
      }
      epoch.open.emplace(open.shard(),
                         Bitmap::FromBytes(plan.updates_in_shard(from.dataset_epoch(), open.shard()), open.applied()));
    }
  }
  return table;
}

AppliedTable::Epoch& AppliedTable::EpochOf(std::uint32_t dataset_epoch) {
  auto [position, inserted] = epochs_.try_emplace(dataset_epoch);
  if (inserted) position->second.retired = Bitmap(plan_.shards_in_epoch(dataset_epoch));
  return position->second;
}

bool AppliedTable::IsRetired(std::uint32_t dataset_epoch, std::uint32_t shard) const {
  if (dataset_epoch < watermark_) return true;
  const auto epoch = epochs_.find(dataset_epoch);
  return epoch != epochs_.end() && epoch->second.retired.Test(shard);
}

bool AppliedTable::Contains(const UpdateId& update) const {
  if (IsRetired(update.dataset_epoch, update.data_shard)) return true;
  const auto epoch = epochs_.find(update.dataset_epoch);
  if (epoch == epochs_.end()) return false;
  const auto shard = epoch->second.open.find(update.data_shard);
  return shard != epoch->second.open.end() && shard->second.Test(update.group);
}

bool AppliedTable::Insert(const UpdateId& update) {
  if (IsRetired(update.dataset_epoch, update.data_shard)) return false;  // it was before
  Epoch& epoch = EpochOf(update.dataset_epoch);
  auto [position, inserted] = epoch.open.try_emplace(update.data_shard);
  if (inserted) position->second = Bitmap(plan_.updates_in_shard(update.dataset_epoch, update.data_shard));
  if (position->second.Test(update.group)) return false;
  position->second.Set(update.group);
  return position->second.All();
}

bool AppliedTable::Retire(std::uint32_t dataset_epoch, std::uint32_t shard, PlantedBug bug) {
  if (IsRetired(dataset_epoch, shard)) return true;
  if (!IsComplete(dataset_epoch, shard)) {
    if (bug == PlantedBug::kBitmapFreedEarly) EpochOf(dataset_epoch).open.erase(shard);
    return false;
  }
  Epoch& epoch = EpochOf(dataset_epoch);
  epoch.open.erase(shard);
  if (bug != PlantedBug::kDeduplicationLostAtRetire) epoch.retired.Set(shard);
  return true;
}

void AppliedTable::RetireComplete(PlantedBug bug) {
  for (auto& [number, epoch] : epochs_) {
    std::vector<std::uint32_t> complete;
    for (const auto& [shard, bitmap] : epoch.open) {
      if (bitmap.All()) complete.push_back(shard);
    }
    for (const std::uint32_t shard : complete) Retire(number, shard, bug);
  }
}

bool AppliedTable::IsComplete(std::uint32_t dataset_epoch, std::uint32_t shard) const {
  if (IsRetired(dataset_epoch, shard)) return true;
  const auto epoch = epochs_.find(dataset_epoch);
  if (epoch == epochs_.end()) return false;
  const auto open = epoch->second.open.find(shard);
  return open != epoch->second.open.end() && open->second.All();
}

Bitmap AppliedTable::Applied(std::uint32_t dataset_epoch, std::uint32_t shard) const {
  const std::uint32_t updates = plan_.updates_in_shard(dataset_epoch, shard);
  if (IsRetired(dataset_epoch, shard)) return Bitmap(updates, true);
  const auto epoch = epochs_.find(dataset_epoch);
  if (epoch == epochs_.end()) return Bitmap(updates);
  const auto open = epoch->second.open.find(shard);
  return open == epoch->second.open.end() ? Bitmap(updates) : open->second;
}

void AppliedTable::Advance(std::uint32_t target) {
  while (watermark_ < target) {
    const auto epoch = epochs_.find(watermark_);
    if (epoch == epochs_.end() || !epoch->second.retired.All()) return;
    epochs_.erase(epoch);
    ++watermark_;
  }
}

Bitmap AppliedTable::Retired(std::uint32_t dataset_epoch) const {
  if (dataset_epoch < watermark_) return Bitmap(plan_.shards_in_epoch(dataset_epoch), true);
  const auto epoch = epochs_.find(dataset_epoch);
  return epoch == epochs_.end() ? Bitmap(plan_.shards_in_epoch(dataset_epoch)) : epoch->second.retired;
}

std::uint32_t AppliedTable::end_epoch() const { return epochs_.empty() ? watermark_ : epochs_.rbegin()->first + 1; }

void AppliedTable::Export(v1::SliceLedger* ledger) const {
  ledger->set_watermark(watermark_);
  for (const auto& [number, epoch] : epochs_) {
    v1::EpochTable* table = ledger->add_epochs();
    table->set_dataset_epoch(number);
    table->set_retired(epoch.retired.bytes());
    for (const auto& [shard, bitmap] : epoch.open) {
      v1::ShardTable* open = table->add_open();
      open->set_shard(shard);
      open->set_applied(bitmap.bytes());
    }
  }
}

}  // namespace downpour::core
