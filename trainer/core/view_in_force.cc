#include "trainer/core/view_in_force.h"

#include <utility>

#include "trainer/core/layout.h"
#include "trainer/core/quorum.h"

namespace downpour::core {

std::set<std::uint32_t> ViewInForce::ps() const {
  std::set<std::uint32_t> ps;
  for (const v1::PsMember& member : view_.ps()) ps.insert(member.index());
  return ps;
}

void ViewInForce::Begin(v1::View view) {
  view_ = std::move(view);
  states_.ForgetAll();
  mode_taken_ = 0;
  TakeUp(/*sessions=*/true);
}

void ViewInForce::GoOn(v1::View next, bool mode) {
  const std::uint32_t epoch = view_.stamp().epoch() + 1;
  next.mutable_stamp()->set_epoch(epoch);
  if (mode) next.set_mode_epoch(epoch);
  SetQuorum(Quorum(), &next);
  view_ = std::move(next);
  TakeUp(/*sessions=*/mode);
}

void ViewInForce::TakeUp(bool sessions) {
  stored_.clear();
  committed_ = view_.quorum_size() != 0 && IsCommittedBy(view_, stored_);
  states_.SetPs(ps());
  states_.ForgetViews(sessions);
}

bool ViewInForce::OnReply(std::uint32_t index, std::uint64_t session, const v1::DirectReply& reply) {
  states_.SetStats(index, reply.stats());
  if (CompareStamps(reply.stamp(), view_.stamp()) != 0) return false;
  states_.Confirm(index, reply);
  stored_.insert(session);
  if (!committed_) {
    committed_ = view_.quorum_size() == 0 ? states_.all_have_view() : IsCommittedBy(view_, stored_);
  }
  return true;
}

void ViewInForce::NoteMode() {
  if (states_.all_have_view() && view_.has_stamp()) mode_taken_ = view_.mode_epoch();
}

std::set<std::uint64_t> ViewInForce::Quorum() const { return committed_ ? PsSessions(view_) : QuorumOf(view_); }

std::set<std::uint64_t> ViewInForce::Told() const {
  std::set<std::uint64_t> told = PsSessions(view_);
  if (!committed_) told.merge(QuorumOf(view_));
  return told;
}

std::set<std::uint64_t> ViewInForce::Before() const {
  const bool open = IsDecidedAlone(view_) ? !states_.all_have_view() : !committed_;
  return open ? QuorumOf(view_) : std::set<std::uint64_t>();
}

void ViewInForce::Tell(std::uint64_t session, v1::DirectRequest* directive) const {
  *directive->mutable_stamp() = view_.stamp();
  if (stored_.count(session) == 0) *directive->mutable_view() = view_;
  directive->set_committed(committed_);
}

}  // namespace downpour::core
