#ifndef DOWNPOUR_TRAINER_CORE_VIEW_IN_FORCE_H_
#define DOWNPOUR_TRAINER_CORE_VIEW_IN_FORCE_H_

#include <cstdint>
#include <set>

#include "downpour/v1/control.pb.h"
#include "trainer/core/ps_states.h"

namespace downpour::core {

// The view of the history at hand: which ps are told of it, which of them have it, and whether it counts. It counts
// once a majority of the ps that decide on it has stored it; these are the ps of the newest view before it that did
// count. The first one of a history counts once every ps has it. Not thread-safe.
class ViewInForce {
 public:
  // Has no stamp before the first history.
  const v1::View& view() const { return view_; }
  // What each of the view's ps has of what it should have.
  const PsStates& states() const { return states_; }
  // Indices of the ps that have a place in it.
  std::set<std::uint32_t> ps() const;
  // It counts, whoever else has not heard of it yet.
  bool committed() const { return committed_; }
  // Every ps has been seen to have the view's mode: that of what is computed for it.
  bool mode_taken() const { return mode_taken_ == view_.mode_epoch(); }

  // ---- another view
  // A history begins with it, or goes on: no ps has any of it.
  void Begin(v1::View view);
  // The history goes on under `next`, under the next epoch. `mode`: what is computed for it is something else from then
  // on, and ps have to be told of the sessions anew.
  void GoOn(v1::View next, bool mode);
  // The same view with something else in it, before any ps was told.
  void Amend(v1::View view) { view_ = std::move(view); }
  // The newest there was, of a history that does not go on: the next one comes after it.
  void Lose(v1::View newest) { view_ = std::move(newest); }

  // ---- what the ps have
  // A reply of the ps with this index and session. False: it is about another view, so nothing of it counts but the
  // statistics.
  bool OnReply(std::uint32_t index, std::uint64_t session, const v1::DirectReply& reply);
  // Takes down that the mode is taken, if every ps has the view and no other one has followed from what they said.
  void NoteMode();

  // ---- who decides, and who is told
  // Sessions of the ps that decide on the next view.
  std::set<std::uint64_t> Quorum() const;
  // Sessions of those that are told: of the view, and until it counts those that decide on it.
  std::set<std::uint64_t> Told() const;
  // Sessions of those that had a place before, as long as another coordinator may go on from there.
  std::set<std::uint64_t> Before() const;
  // Puts into a directive for the ps of this session what it has to know of the view.
  void Tell(std::uint64_t session, v1::DirectRequest* directive) const;

 private:
  void TakeUp(bool sessions);

  v1::View view_;
  PsStates states_;
  std::set<std::uint64_t> stored_;  // sessions of the ps that have it
  bool committed_ = false;
  std::uint32_t mode_taken_ = 0;  // the newest mode epoch that every ps had
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_VIEW_IN_FORCE_H_
