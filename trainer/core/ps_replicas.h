#ifndef DOWNPOUR_TRAINER_CORE_PS_REPLICAS_H_
#define DOWNPOUR_TRAINER_CORE_PS_REPLICAS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "downpour/v1/control.pb.h"
#include "trainer/core/data_plan.h"
#include "trainer/core/frame.h"
#include "trainer/core/planted_bug.h"
#include "trainer/core/replica.h"
#include "trainer/core/replica_copy.h"
#include "trainer/core/shard_completion.h"

namespace downpour::core {

// What a ps holds: its replicas of slices, and what they are to the view. Of the slices that it is the primary or the
// standby of, what their tables say together; a replica that is being copied does not count. Not thread-safe.
class PsReplicas {
 public:
  enum class Role { kPrimary, kStandby, kJoining };
  struct Entry {
    Replica replica;
    Role role = Role::kPrimary;
    bool frozen = false;                   // kPrimary
    std::optional<CopyAssembly> assembly;  // kJoining: until the copy is there
    std::uint64_t leader = 0;              // the replica of the primary
    std::uint64_t restored = 0;            // updates that came with a checkpoint
    bool counted() const { return role != Role::kJoining; }
    bool leads() const { return role == Role::kPrimary; }
  };

  explicit PsReplicas(std::uint32_t ps, PlantedBug bug = PlantedBug::kNone) : ps_(ps), bug_(bug) {}

  // A new history: what its view gives this ps begins with nothing. kInvalidArgument: it is not sound; then nothing
  // has changed.
  absl::Status Begin(const v1::View& view);
  // Another view of it. What goes on under its number stays, all else begins with nothing, and what is not named is
  // dropped. kInvalidArgument: it counts on a replica that is not here; then nothing has changed.
  absl::Status Change(const v1::View& view);

  // Of the whole model.
  std::uint32_t slice_count() const { return static_cast<std::uint32_t>(slices_.size()); }
  const DataPlan& plan() const { return plan_; }
  std::map<std::uint32_t, Entry>& entries() { return entries_; }
  const std::map<std::uint32_t, Entry>& entries() const { return entries_; }
  // Null: it is not here, or another ps is the primary.
  Entry* Primary(std::uint32_t slice);
  const Entry* Primary(std::uint32_t slice) const;
  // In order.
  std::vector<std::uint32_t> primaries() const;
  // Every slice that this ps is the primary of has a value.
  bool initialised() const;

  // A frame from the primary of a slice, `mine`: in this history; what it is answered with, and whether an update was
  // applied.
  Frame Take(const Frame& frame, bool mine, bool* applied);
  // An update with which its data shard is complete on the slice came.
  void OnComplete(const ShardKey& shard) { complete_.OnComplete(shard); }
  // A slice came with a checkpoint.
  void OnRestored(std::uint32_t slice);

  // ---- what the tables say together
  // Whether each has all of the data shard; then it is retired. Appends an answer, which says nothing unless `settled`:
  // somebody who may be the primary soon does not have all of it yet.
  void Confirm(const v1::ShardId& shard, bool inspect, bool settled, v1::DirectReply* reply);
  // Raises their watermarks as far as they go; the least of them.
  std::uint32_t Advance(std::uint32_t watermark);
  void Describe(v1::RegisterPsRequest* request) const;
  void Describe(v1::PsStats* stats) const;
  // Of the slices that this ps is the primary of.
  void Describe(v1::LedgerReply* reply) const;
  // How many tables of slices the calls so far have looked at.
  std::uint64_t tables_looked_at() const { return tables_looked_at_; }

 private:
  absl::StatusOr<Entry> Make(const v1::View& view, std::uint32_t slice, std::uint64_t number, Role role) const;
  // Which role this ps has, with which replica.
  struct Place {
    Role role = Role::kPrimary;
    std::uint64_t number = 0;
  };
  std::optional<Place> PlaceIn(const v1::SlicePlacement& placement) const;
  void Count();

  std::uint32_t ps_;
  PlantedBug bug_;
  std::vector<Slice> slices_;
  DataPlan plan_;
  std::map<std::uint32_t, Entry> entries_;
  std::uint32_t counted_ = 0;  // entries that count
  ShardCompletion complete_;
  std::uint32_t least_watermark_ = 0;
  std::uint64_t tables_looked_at_ = 0;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_PS_REPLICAS_H_
