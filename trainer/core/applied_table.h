#ifndef DOWNPOUR_TRAINER_CORE_APPLIED_TABLE_H_
#define DOWNPOUR_TRAINER_CORE_APPLIED_TABLE_H_

#include <cstdint>
#include <map>

#include "absl/status/statusor.h"
#include "trainer/core/bitmap.h"
#include "trainer/core/data_plan.h"
#include "trainer/core/planted_bug.h"

namespace downpour::core {

// The updates that one slice holds: a bitmap per open data shard, one bit per retired data shard, and a watermark
// below which every dataset epoch is complete. Part of the slice's state. Not thread-safe.
class AppliedTable {
 public:
  AppliedTable() = default;
  explicit AppliedTable(const DataPlan& plan) : plan_(plan) {}
  // What Export wrote. kInvalidArgument: a data shard that the plan has not, or one twice.
  static absl::StatusOr<AppliedTable> FromLedger(const DataPlan& plan, const v1::SliceLedger& ledger);

  const DataPlan& plan() const { return plan_; }

  // `update` must be within the plan for all of these.
  bool Contains(const UpdateId& update) const;
  // True if with it every update of its data shard is here.
  bool Insert(const UpdateId& update);

  // Replaces the shard's bitmap by one bit if every update of it is here. True if it is retired now.
  bool Retire(std::uint32_t dataset_epoch, std::uint32_t shard, PlantedBug bug = PlantedBug::kNone);
  // The same for every data shard that is complete.
  void RetireComplete(PlantedBug bug = PlantedBug::kNone);
  bool IsRetired(std::uint32_t dataset_epoch, std::uint32_t shard) const;
  Bitmap Applied(std::uint32_t dataset_epoch, std::uint32_t shard) const;
  // Every update of the shard is here.
  bool IsComplete(std::uint32_t dataset_epoch, std::uint32_t shard) const;

  // Raises the watermark as far as `target`, but never past an epoch with a shard that is not retired.
  void Advance(std::uint32_t target);
  std::uint32_t watermark() const { return watermark_; }

  void Export(v1::SliceLedger* ledger) const;
  // Bit i: shard i of the epoch is retired.
  Bitmap Retired(std::uint32_t dataset_epoch) const;
  // The first dataset epoch that the table knows nothing of.
  std::uint32_t end_epoch() const;

 private:
  struct Epoch {
    Bitmap retired;
    std::map<std::uint32_t, Bitmap> open;
  };
  Epoch& EpochOf(std::uint32_t dataset_epoch);

  DataPlan plan_;
  std::uint32_t watermark_ = 0;
  std::map<std::uint32_t, Epoch> epochs_;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_APPLIED_TABLE_H_
