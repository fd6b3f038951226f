#include "trainer/core/ring/ring_states.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "trainer/core/keys.h"
#include "trainer/core/step_id.h"

namespace downpour::core {
namespace {

constexpr std::size_t kRememberedRings = 16;

}  // namespace

bool IsOf(const v1::RingState& state, const v1::View& view) {
  return state.has_took() && state.took().generation() == view.stamp().generation();
}

void RingStates::OnView() {
  ring_.clear();
  for (const v1::RingMember& member : view_.ring()) ring_.push_back(member.session());
  if (view_.stamp().incarnation() != incarnation_) return;
  rings_by_epoch_[view_.ring_epoch()] = ring_;
  if (rings_by_epoch_.size() > kRememberedRings) rings_by_epoch_.erase(rings_by_epoch_.begin());
}

void RingStates::BeginHistory() {
  missing_.clear();
  newest_told_ = RingPosition();
  took_part_.clear();
  rings_by_epoch_.clear();
}

v1::RingState& RingStates::Tell(std::uint64_t session, v1::RingState told) {
  v1::RingState& state = told_[session] = std::move(told);
  if (!IsOf(state, view_)) return state;
  const RingPosition position{true, state.took(), state.updates()};
  if (ComparePositions(position, newest_told_) <= 0) return state;
  newest_told_ = position;
  newest_step_ = std::max<std::uint64_t>(StepWidth(view_), ring_.size());
  took_part_ = {session};
  const auto behind = rings_by_epoch_.upper_bound(state.took().epoch());
  if (state.took().incarnation() == incarnation_ && behind != rings_by_epoch_.begin()) {
    took_part_.insert(std::prev(behind)->second.begin(), std::prev(behind)->second.end());
  }
  return state;
}

void RingStates::End(std::uint64_t session) {
  told_.erase(session);
  leaving_.erase(session);
}

void RingStates::Miss(const ProcessKey& process, Time now) {
  missing_[process.first] = process.second;
  missed_ = now;
}

void RingStates::Come(const ProcessKey& process, bool alone, Time now) {
  if (alone) missed_ = now;
  const auto found = missing_.find(process.first);
  if (found == missing_.end()) return;
  if (found->second == process.second || found->second == 0) missed_ = now;
  missing_.erase(found);
}

void RingStates::Forget(const ProcessKey& process) {
  const auto found = missing_.find(process.first);
  if (found != missing_.end() && found->second <= process.second) missing_.erase(found);
}

Time RingStates::MayReturnUntil() const {
  return missing_.empty() ? -absl::InfiniteDuration() : missed_ + kRingReturns;
}

bool RingStates::InRing(std::uint64_t session) const {
  return std::find(ring_.begin(), ring_.end(), session) != ring_.end();
}

bool RingStates::Joined(const v1::RingState& state) const { return CompareStamps(state.joined(), view_.stamp()) == 0; }

bool RingStates::IsFormed() const {
  return !ring_.empty() && std::all_of(ring_.begin(), ring_.end(), [this](std::uint64_t session) {
    const auto known = told_.find(session);
    return known != told_.end() && known->second.broken().empty() && Joined(known->second);
  });
}

bool RingStates::AllWait(std::uint64_t updates) const {
  return IsFormed() && std::all_of(ring_.begin(), ring_.end(), [&](std::uint64_t session) {
           const v1::RingState& state = told_.at(session);
           return state.waits() && IsOf(state, view_) && state.updates() == updates;
         });
}

std::vector<std::uint64_t> RingStates::Different() const {
  const v1::RingState* first = nullptr;
  std::uint64_t first_session = 0;
  for (const std::uint64_t session : ring_) {
    const auto known = told_.find(session);
    if (known == told_.end() || !known->second.waits() || !known->second.has_digest()) continue;
    const v1::RingState& state = known->second;
    if (!IsOf(state, view_)) continue;
    if (first == nullptr) {
      first = &state;
      first_session = session;
    } else if (state.updates() == first->updates() && CompareStamps(state.took(), first->took()) == 0 &&
               state.digest() != first->digest()) {
      return {first_session, session};
    }
  }
  return {};
}

bool RingStates::IsRecent(std::uint64_t session) const {
  if (took_part_.count(session) != 0) return true;
  const v1::RingState& state = told_.at(session);
  if (!IsOf(state, view_)) return false;
  return ComparePositions({true, state.took(), state.updates()}, newest_told_) >= 0 ||
         state.updates() + newest_step_ >= newest_told_.updates;
}

const v1::RingState* RingStates::Newest() const {
  const v1::RingState* newest = nullptr;
  RingPosition most;
  for (const std::uint64_t session : ring_) {
    const auto known = told_.find(session);
    if (known == told_.end() || !IsOf(known->second, view_)) continue;
    const RingPosition position{true, known->second.took(), known->second.updates()};
    if (newest != nullptr && ComparePositions(position, most) <= 0) continue;
    newest = &known->second;
    most = position;
  }
  return newest;
}

std::uint64_t RingStates::LeastUpdates() const {
  const v1::RingState* const newest = Newest();
  const std::uint64_t updates = newest == nullptr ? 0 : newest->updates();
  const bool took_part =
      std::any_of(ring_.begin(), ring_.end(), [this](std::uint64_t session) { return took_part_.count(session) != 0; });
  return took_part ? std::max(updates, newest_told_.updates - std::min(newest_step_, newest_told_.updates)) : updates;
}

bool RingStates::HaveAllWithoutLeavers() const {
  const std::uint32_t holders = view_.state_holders();
  // By rank, who has its share and nothing that is not settled, and stays.
  std::vector<bool> stays(holders, false);
  for (std::uint32_t rank = 0; rank < std::min<std::size_t>(holders, ring_.size()); ++rank) {
    const auto known = told_.find(ring_[rank]);
    if (known == told_.end() || Leaves(ring_[rank])) continue;
    const v1::RingState& state = known->second;
    stays[rank] = IsOf(state, view_) && state.broken().empty() && Joined(state) && state.shares_size() == 1 &&
                  state.shares(0).rank() == rank && state.shares(0).holders() == holders;
  }
  return HoldAll(stays);
}

bool RingStates::HaveAll() const {
  const std::uint32_t holders = view_.state_holders();
  std::vector<bool> there(holders, false);
  for (const auto& [session, state] : told_) {
    if (!IsRecent(session) || state.shares_size() != 1 || state.shares(0).holders() != holders) continue;
    if (state.shares(0).rank() < holders) there[state.shares(0).rank()] = true;
  }
  return HoldAll(there);
}

bool RingStates::HoldAll(const std::vector<bool>& ranks) const {
  const auto holders = static_cast<std::uint32_t>(ranks.size());
  for (std::uint32_t part = 0; part < holders; ++part) {
    bool held = false;
    for (std::uint32_t copy = 0; copy < CopiesOf(view_.state_copies(), holders); ++copy) {
      held = held || ranks[(part + copy) % holders];
    }
    if (!held) return false;
  }
  return true;
}

std::string RingStates::StateLost() const {
  for (const auto& [session, state] : told_) {
    if (!state.state_lost().empty() && Joined(state)) return state.state_lost();
  }
  return "";
}

bool RingStates::IsBroken(const v1::RingState& state) const { return !state.broken().empty() && Joined(state); }

}  // namespace downpour::core
