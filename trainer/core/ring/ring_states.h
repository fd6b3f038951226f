#ifndef DOWNPOUR_TRAINER_CORE_RING_RING_STATES_H_
#define DOWNPOUR_TRAINER_CORE_RING_RING_STATES_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "downpour/v1/control.pb.h"
#include "trainer/core/keys.h"
#include "trainer/core/ring/ring_plan.h"
#include "trainer/core/time.h"

namespace downpour::core {

// Whether it is a state of the generation of that view.
bool IsOf(const v1::RingState& state, const v1::View& view);

// What the workers that live told their coordinator last, and what follows from it for the ring of the view at hand.
// Not thread-safe.
class RingStates {
 public:
  // `view`: the one at hand, or one without a stamp; outlives this. `incarnation`: of the coordinator.
  RingStates(const v1::View* view, std::uint32_t incarnation) : view_(*view), incarnation_(incarnation) {}

  // The view is another one now.
  void OnView();
  // And of another history than those before.
  void BeginHistory();
  v1::RingState& Tell(std::uint64_t session, v1::RingState state);
  void Leave(std::uint64_t session) { leaving_.insert(session); }
  void End(std::uint64_t session);

  // A process of the ring is not heard of: it may be cut off, and come back with what it has. Incarnation 0: nobody
  // knows which.
  void Miss(const ProcessKey& process, Time now);
  // A process is there: again, or for the first time. `alone`: nobody else is, so that perhaps nobody could be.
  void Come(const ProcessKey& process, bool alone, Time now);
  // It has ended.
  void Forget(const ProcessKey& process);
  // Until when others may come of those that are missed; in the past: they may not.
  Time MayReturnUntil() const;

  // Sessions by rank.
  const std::vector<std::uint64_t>& ring() const { return ring_; }
  bool InRing(std::uint64_t session) const;
  // By session.
  const std::map<std::uint64_t, v1::RingState>& told() const { return told_; }
  bool AnyLeaves() const { return !leaving_.empty(); }
  bool Leaves(std::uint64_t session) const { return leaving_.count(session) != 0; }

  // Whether every member of the ring is in its group.
  bool IsFormed() const;
  // And waits, with so many updates.
  bool AllWait(std::uint64_t updates) const;
  // Two sessions that wait with as many updates and have not the same bits, though they must; empty: there are none.
  std::vector<std::uint64_t> Different() const;
  // Whether its state is as new as any that was told, but for one step: that may have been taken by one alone.
  bool IsRecent(std::uint64_t session) const;
  // Of the member of the ring that has most; nullptr: none has a state.
  const v1::RingState* Newest() const;
  // That the ring has, whoever is gone by now: what Newest has, or more; 0: nothing is known.
  std::uint64_t LeastUpdates() const;
  // Of a state that is divided: whether those of the ring who stay have all of it, without those who leave.
  bool HaveAllWithoutLeavers() const;
  // Whether those who live, in the ring or not, have all of it between them, as far as they have told.
  bool HaveAll() const;
  // Why the members of the ring have found that it is lost; empty: they have not.
  std::string StateLost() const;
  // Whether its group of the view at hand has failed.
  bool IsBroken(const v1::RingState& state) const;

 private:
  bool Joined(const v1::RingState& state) const;
  // Whether each part of a divided state is held by one of these ranks.
  bool HoldAll(const std::vector<bool>& ranks) const;

  const v1::View& view_;
  const std::uint32_t incarnation_;
  std::vector<std::uint64_t> ring_;
  std::map<std::uint64_t, v1::RingState> told_;
  std::set<std::uint64_t> leaving_;
  std::map<std::uint32_t, std::uint32_t> missing_;  // incarnations by index
  Time missed_ = -absl::InfiniteDuration();         // when the last of them was missed, or one came back
  RingPosition newest_told_;                        // of this generation, by whoever
  std::uint64_t newest_step_ = 0;                   // updates of that step, at most
  // Sessions that took part in that step, or in the one before: whatever they told last, all else they have.
  std::set<std::uint64_t> took_part_;
  // The newest of this generation and this coordinator, by the epoch of the view that formed it.
  std::map<std::uint32_t, std::vector<std::uint64_t>> rings_by_epoch_;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_RING_RING_STATES_H_
