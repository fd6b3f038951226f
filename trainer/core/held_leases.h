#ifndef DOWNPOUR_TRAINER_CORE_HELD_LEASES_H_
#define DOWNPOUR_TRAINER_CORE_HELD_LEASES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "downpour/v1/control.pb.h"
#include "trainer/core/data_plan.h"
#include "trainer/core/frame.h"
#include "trainer/core/step_id.h"

namespace downpour::core {

// The leases of a worker session, on data shards and tasks, and how far it is with each: what it is to do next. It
// knows of no slice but what it is told of the steps that are over. Not thread-safe.
class HeldLeases {
 public:
  // Which updates are over whoever did them, in mode SYNCHRONOUS: those of the steps before `first`.
  struct Steps {
    std::uint32_t width = 0;  // updates of a step; 0: of another mode
    StepId first;
    bool AreOver(const UpdateId& update) const { return width != 0 && StepOf(update, width) < first; }
  };
  struct Update {
    std::uint64_t lease = 0;
    UpdateId update;
    friend bool operator==(const Update&, const Update&) = default;
  };

  // ---- what the coordinator says
  // A history with this plan begins; nothing is held.
  void Begin(DataPlan plan);
  // The session is over.
  void Clear() { leases_.clear(); }
  // All that is held from now on; what is known of leases that stay is kept. Whether one of a data shard stayed.
  bool Reconcile(const v1::WorkerSyncReply& reply);
  // Not known to be sent any more, as pushes that were on their way are dropped; and, if `lost`, not known to be done
  // either.
  void SendAgain(bool lost);
  void Describe(v1::WorkerSyncRequest* request) const;

  // ---- what is to be done next
  // A task without a result; null: there is none.
  const v1::Lease* NextTask() const;
  // The update to go on with; nullopt: there is none. `all_sent` is set where it finds out that another data shard has
  // none left, which the coordinator is to hear soon.
  std::optional<Update> NextUpdate(const Steps& steps, bool* all_sent);
  // Whether the lease is held, and its next update is this one.
  bool IsNext(const Update& update, const Steps& steps) const;
  // The updates that will follow, `most` at most, as far as they are known. `current`: the one under way, which is not
  // one of them.
  std::vector<UpdateId> UpdatesAfter(const std::optional<Update>& current, const Steps& steps, std::size_t most) const;

  // ---- what was done; of leases that are not held any more it is nothing
  // All pushes of it are on their way. Whether its data shard has no update left with that, which was not known before.
  bool OnSent(const Update& update, const Steps& steps);
  // They have been acknowledged.
  void OnDone(const Update& update);
  void OnTaskDone(std::uint64_t lease, v1::TaskResult result);

  std::size_t size() const { return leases_.size(); }
  // nullopt: no history has begun.
  const std::optional<DataPlan>& plan() const { return plan_; }

 private:
  struct Held {
    v1::Lease lease;
    std::uint32_t next = 0;  // the first update not known to be done
    bool all_sent = false;
    std::optional<v1::TaskResult> result;  // of a task that is done
  };
  // The lease's first update from the group `from` on that is neither known to be done nor of a step that is over.
  // Where there is none it has a group that the plan has not.
  UpdateId FirstUpdate(const Held& held, std::uint32_t from, const Steps& steps) const;

  std::optional<DataPlan> plan_;
  std::map<std::uint64_t, Held> leases_;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_HELD_LEASES_H_
