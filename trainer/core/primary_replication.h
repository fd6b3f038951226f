#ifndef DOWNPOUR_TRAINER_CORE_PRIMARY_REPLICATION_H_
#define DOWNPOUR_TRAINER_CORE_PRIMARY_REPLICATION_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "downpour/v1/control.pb.h"
#include "trainer/core/frame.h"
#include "trainer/core/held_replies.h"
#include "trainer/core/live_sessions.h"
#include "trainer/core/ps_replicas.h"
#include "trainer/core/replication.h"
#include "trainer/core/time.h"

namespace downpour::core {

// Primary-backup replication, as a ps does it for the slices that it is the primary of: whatever changes one is a
// record, which goes to the replicas that follow it, and what is said of one waits until its standbys hold it too. Not
// thread-safe.
class PrimaryReplication {
 public:
  using Entry = PsReplicas::Entry;
  using Needs = HeldReplies::Needs;

  // `replicas` are those of the ps; they outlive this, and are given each view first.
  PrimaryReplication(PsReplicas* replicas, const JobUid& uid);

  // ---- what the view says
  // A new history: what waited is refused, and nobody follows.
  void Begin(const v1::View& view, std::vector<DataReply>* replies);
  // Another view of it. `before`: the slices that this ps was the primary of. What waited for those that have gone is
  // denied.
  void Change(const v1::View& view, const std::vector<std::uint32_t>& before, std::vector<DataReply>* replies);
  // Who follows from the records at hand on. Followers that the view has not are waited for until it counts.
  void SetFollowers(const v1::View& view);
  // The view counts: appends the replies that became due.
  void Commit(std::vector<DataReply>* replies);

  // ---- what changes slices; each is done here, and told to whoever follows
  // Whatever Replica::Do fails with; then nothing has changed, and nobody is told.
  absl::StatusOr<Replica::Done> Record(Entry& entry, RecordKind kind, Frame record);
  void SetStepWidth(std::uint32_t width);
  // The session is sent the value of the slice: it is kept for optimizers that look at the value that a gradient was
  // computed with (NeedsPulledValues), if the session is live.
  void KeepPulled(Entry& entry, std::uint64_t session, const LiveSessions& live);
  // Of the session, which is over; 0: of every one. What is frozen stays as it is, whoever has it next.
  void ForgetPulled(std::uint64_t session);
  // Of sessions that ended while the slices were elsewhere, or frozen.
  void ForgetPulledOfOthers(const LiveSessions& live);

  // ---- what is said of them
  // Up to which record of the slice nobody has to wait.
  std::uint64_t released(std::uint32_t slice) const;
  // Appends the reply, now or when the standbys are as far as it needs.
  void Answer(DataReply reply, Needs needs, std::vector<DataReply>* replies);
  // Whoever is being copied to has all that there is: then what the tables say is safe with it too.
  bool JoiningAreSettled(const v1::View& view) const;
  void Describe(const v1::View& view, v1::DirectReply* reply) const;
  void Describe(v1::PsStats* stats) const;

  // ---- to other ps
  // Updates of the slice are kept, and those of all slices take more than `limit` bytes.
  bool LogIsFull(std::uint32_t slice, std::uint64_t limit) const;
  // What is due; copies are of pushes up to the cut. To be called after every other call, and at next_timer().
  std::vector<ReplicationCall> Take(Time now, std::uint32_t cut);
  Time next_timer() const { return replication_.next_timer(); }
  // The answer to one of them: appends the replies that became due.
  void OnReply(std::uint64_t call, const absl::StatusOr<std::vector<Frame>>& reply, Time now,
               std::vector<DataReply>* replies);

 private:
  void SetView(const v1::View& view);

  PsReplicas& replicas_;
  JobUid uid_;
  Replication replication_;
  HeldReplies held_;
  std::uint64_t lag_ = 0;  // records that a standby need not hold yet
  bool keeps_pulled_ = false;
  // Followers that the view has not, until it counts: by slice.
  std::vector<std::pair<std::uint32_t, std::uint64_t>> followers_to_drop_;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_PRIMARY_REPLICATION_H_
