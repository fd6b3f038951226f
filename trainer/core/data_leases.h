#ifndef DOWNPOUR_TRAINER_CORE_DATA_LEASES_H_
#define DOWNPOUR_TRAINER_CORE_DATA_LEASES_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "downpour/v1/control.pb.h"
#include "trainer/core/bitmap.h"
#include "trainer/core/data_affinity.h"
#include "trainer/core/data_plan.h"
#include "trainer/core/keys.h"
#include "trainer/core/ledger.h"
#include "trainer/core/planted_bug.h"

namespace downpour::core {

// Who trains on which data shard, in one history. A data shard is
//
//   free        anybody may have it;
//   leased      to one session, and in the modes SYNCHRONOUS and SANDBLASTER to a second one if it is late: whichever
//               pushes an update of it first is heard. When a worker says that all is sent, the ps are asked;
//   fencing     its session is over, but some ps may not know that yet;
//   inspecting  nobody can push updates of it: the ps are asked which ones they have, then it is free or retired;
//   retired     every ps has all of it, on its own word.
//
// Not thread-safe.
class DataLeases {
 public:
  DataLeases(const DataPlan& plan, std::set<std::uint32_t> ps, const Ledger& ledger,
             PlantedBug bug = PlantedBug::kNone);

  const DataPlan& plan() const { return plan_; }
  std::uint32_t watermark() const { return watermark_; }
  std::uint64_t leased() const { return leased_; }  // data shards
  // That every ps has, in epochs before the watermark and in retired data shards of later ones.
  std::uint64_t retired_updates() const { return plan_.updates_before(watermark_) + retired_updates_; }

  // ---- of sessions
  // Keeps what a worker had of the coordinator before, unless somebody else has it. `worker`: its index.
  void Adopt(const v1::HeldLease& held, std::uint64_t session, std::uint32_t worker = DataAffinity::kNobody);
  // Nobody else will adopt anything: what is free may be applied in part, and is asked for before it is leased.
  void InspectFree();
  // Lists the leases of `session` and asks the ps about those that are all sent. How many it still works on.
  std::uint32_t List(std::uint64_t session, const std::set<std::uint64_t>& all_sent, v1::WorkerSyncReply* reply);
  // Some are being inspected. What is free by then may come after them.
  bool inspecting() const { return inspecting_ != 0; }
  // None of this dataset epoch and of later ones is given out, until it is told otherwise.
  void SetEndOfGrants(std::uint32_t dataset_epoch) { end_of_grants_ = dataset_epoch; }
  // The training ends before this data shard of the plan, which is none before begun_end(): an earlier end is undone by
  // a later one. Where it is in the middle of an epoch, the watermark stays at that.
  void SetEnd(const ShardKey& end);
  // Of the training: that, or the plan's.
  const ShardKey& end() const { return end_; }
  // All before it is done.
  bool done() const;
  // Updates that are to be done.
  std::uint64_t updates() const { return plan_.updates_before(end_.first, end_.second); }
  // Behind every data shard that anybody may have begun.
  const ShardKey& begun_end() const { return begun_end_; }
  // Others may have, before this one: a checkpoint holds some of it.
  void AssumeBegun(const ShardKey& end) { begun_end_ = std::max(begun_end_, end); }
  // All that an earlier coordinator can have leased, of which the ledger is.
  void AssumeLeased();
  // Whether Grant has one to give.
  bool HasFree();
  bool Holds(std::uint64_t session) const { return held_.count(session) != 0; }
  // Whether any other one holds some.
  bool OthersHold(std::uint64_t session) const { return held_.size() > held_.count(session); }
  // What a worker that holds it has done.
  void Report(const v1::HeldLease& held, std::uint64_t session);
  // Leases it `count` more, or as many as there are: of an epoch in their order or, where the plan has windows, those
  // first that the worker with this index has in its cache.
  void Grant(std::uint64_t session, std::uint32_t count, LeaseNumbers& numbers, v1::WorkerSyncReply* reply,
             std::uint32_t worker = DataAffinity::kNobody);
  // Mode SYNCHRONOUS, see StepId: leases it at most `share` in each of the next bands of `width`; one that starves
  // takes over what nobody has of the first band, and what somebody there is late with.
  void GrantInBands(std::uint64_t session, std::uint32_t width, std::uint32_t share, bool starves,
                    LeaseNumbers& numbers, v1::WorkerSyncReply* reply);
  // Mode SANDBLASTER, of a session that has nothing to do: once nothing is free, it is leased the data shard as well
  // that another one has done least of.
  void GrantOneOfTheLast(std::uint64_t session, LeaseNumbers& numbers, v1::WorkerSyncReply* reply);
  // The mode is another one from now on: nobody holds what somebody else holds too, and what was said to be sent in
  // full may not have been heard.
  void BeginMode();
  // It asks for nothing.
  void NoSpare(std::uint64_t session) { spares_.erase(session); }
  // Second leases so far.
  std::uint64_t backups() const { return backups_; }
  // Its leases go to nobody before every ps has confirmed `members_version`, from which on it is no member. Those that
  // it was still working on.
  std::vector<ShardKey> EndSession(std::uint64_t session, std::uint64_t members_version);

  // ---- of ps
  // The layout is another one: which ps are asked, and what they said about slices that may be elsewhere by now.
  void SetPs(std::set<std::uint32_t> ps);
  // Every ps has confirmed `members_version`.
  void Confirm(std::uint64_t members_version);
  // Some ps are asked about some data shards.
  bool asking() const { return !asked_.empty(); }
  // Puts what it has not answered yet into a directive for a ps.
  void Ask(std::uint32_t ps, v1::DirectRequest* directive) const;
  // The data shard, if this retired it.
  std::optional<ShardKey> Answer(std::uint32_t ps, const v1::ShardBitmap& answer);
  // Raises the watermark by an epoch if all of it is retired.
  bool Advance();

  // How many data shards the calls so far have looked at.
  std::uint64_t looked_at() const { return looked_at_; }

 private:
  enum class State { kFree, kLeased, kFencing, kInspecting, kRetired };
  struct Shard {
    State state = State::kFree;
    std::uint64_t session = 0;                           // kLeased
    std::uint64_t lease = 0;                             // kLeased
    std::uint64_t backup_session = 0, backup_lease = 0;  // kLeased; 0: none
    std::uint32_t next = 0;                              // updates before it are done, as its workers say
    std::vector<bool> complete;                          // by ps; empty: nowhere
    std::vector<bool> inspected;  // by ps; kInspecting: it is complete there, or counted in `done`
    std::uint32_t incomplete_ps = 0;
    std::uint32_t uninspected_ps = 0;  // kInspecting
    Bitmap done;                       // updates that every ps has
  };
  struct Epoch {
    std::vector<Shard> shards;
    std::set<std::uint32_t> free;
    std::uint32_t retired = 0;
  };

  std::uint32_t ps_count() const { return static_cast<std::uint32_t>(ps_.size()); }
  std::size_t ps_slots() const { return ps_.empty() ? 0 : *ps_.rbegin() + std::size_t{1}; }
  Epoch& EpochOf(std::uint32_t dataset_epoch);
  // Takes it down or up to the data shards that are before the end.
  void FitToEnd(std::uint32_t dataset_epoch, Epoch& epoch);
  std::uint32_t EndOfGrants() const;
  Shard* Find(const ShardKey& key);
  void SetFree(const ShardKey& key);
  void SetNotFree(const ShardKey& key);
  void SetHolder(const ShardKey& key, std::uint32_t worker);
  void Lease(const ShardKey& key, std::uint64_t session, std::uint64_t lease);
  void Release(const ShardKey& key, Shard& shard);
  void Inspect(const ShardKey& key, Shard& shard);
  void Retire(const ShardKey& key, Shard& shard);
  void Add(const ShardKey& key, const Shard& shard, std::uint64_t session, v1::WorkerSyncReply* reply) const;
  // The session has it no more.
  void TakeAway(const ShardKey& key, std::uint64_t session);
  static std::uint64_t LeaseOf(const Shard& shard, std::uint64_t session) {
    return shard.session == session ? shard.lease : shard.backup_lease;
  }
  // The data shard behind the last of the band that `key` is in.
  std::uint32_t EndOfBand(const ShardKey& key, std::uint32_t width);
  bool WorksOn(const Shard& shard, const ShardKey& key, std::uint64_t session) const;
  void GrantBackup(std::uint64_t session, std::uint32_t width, LeaseNumbers& numbers, v1::WorkerSyncReply* reply);
  void LeaseTwice(const ShardKey& key, std::uint64_t session, LeaseNumbers& numbers, v1::WorkerSyncReply* reply);

  DataPlan plan_;
  std::set<std::uint32_t> ps_;  // indices
  PlantedBug bug_;
  std::uint32_t watermark_ = 0;
  std::uint32_t end_of_grants_ = UINT32_MAX;
  ShardKey end_;
  ShardKey begun_end_{0, 0};
  std::uint64_t retired_updates_ = 0;  // of the epochs from the watermark on
  std::uint64_t leased_ = 0;
  std::uint64_t inspecting_ = 0;                            // data shards
  std::map<std::uint32_t, Epoch> epochs_;                   // from the watermark on
  DataAffinity affinity_;                                   // empty but for plans with windows
  std::map<std::uint64_t, std::set<ShardKey>> held_;        // by session
  std::deque<std::pair<std::uint64_t, ShardKey>> fencing_;  // by members version, which only grows
  std::set<ShardKey> asked_;
  ShardKey front_{0, 0};            // no data shard before it is anything but retired
  std::set<std::uint64_t> spares_;  // sessions that starve and have nothing to do with the first band
  std::uint64_t backups_ = 0;
  mutable std::uint64_t looked_at_ = 0;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_DATA_LEASES_H_
