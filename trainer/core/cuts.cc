#include "trainer/core/cuts.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace downpour::core {

void Cuts::NoteNumber(std::uint32_t cut) {
  highest_ = std::max(highest_, cut);
  // Whoever joins must not begin below it either, or a cut opened later would not wait for what it pushes.
  if (phase_ == Phase::kIdle) announced_ = std::max(announced_, cut);
}

void Cuts::StartClock(Time now) {
  if (!due_.has_value()) due_ = now + options_.interval;
}

bool Cuts::Due(Time now) const {
  return phase_ == Phase::kIdle && (wished_ > settled_ || (due_.has_value() && now >= *due_));
}

void Cuts::Enter(Phase phase, Time now) {
  phase_ = phase;
  phase_since_ = now;
}

void Cuts::SetPs(const std::set<std::uint32_t>& ps) {
  states_.clear();
  for (const std::uint32_t index : ps) states_[index];
}

void Cuts::Begin(std::string checkpoint, Time now) {
  number_ = ++highest_;
  covered_ = wished_;
  checkpoint_ = std::move(checkpoint);
  begun_ = now;
  due_ = now + options_.interval;
  store_ready_ = commit_given_out_ = false;
  for (auto& [ps, state] : states_) state.Clear();
  lagging_.clear();
  Enter(Phase::kOpening, now);
}

void Cuts::OnStoreReady() { store_ready_ = true; }

void Cuts::OnStoreError(std::string why, Time now) {
  if (phase_ == Phase::kOpening) Fail(std::move(why), now);
}

void Cuts::OnPsState(std::uint32_t ps, const v1::CutState& state, Time now) {
  if (phase_ == Phase::kIdle || phase_ == Phase::kCommitting || state.cut() != number_) return;
  if (!state.error().empty()) return Fail(state.error(), now);
  if (const auto known = states_.find(ps); known != states_.end()) known->second = state;
}

void Cuts::OnSession(std::uint64_t session, std::uint32_t cut) {
  if (cut >= announced_) lagging_.erase(session);
}

void Cuts::OnSessionEnded(std::uint64_t session, std::uint64_t members_version) {
  if (lagging_.erase(session) != 0) fence_ = std::max(fence_, members_version);
}

void Cuts::End(bool well, Time now) {
  if (covered_ > settled_) {
    settled_ = covered_;
    settled_well_ = well;
  }
  lagging_.clear();
  Enter(Phase::kIdle, now);
}

void Cuts::Fail(std::string why, Time now) {
  error_ = std::move(why);
  ++failed_;
  ++failed_in_a_row_;
  absl::Duration pause = options_.first_retry;
  for (std::uint32_t i = 1; i < failed_in_a_row_ && pause < options_.interval; ++i) pause *= 2;
  due_ = now + std::min(pause, options_.interval);
  End(false, now);
}

void Cuts::Abort(Time now) {
  if (phase_ == Phase::kIdle) return;
  due_ = now;  // it was due
  Enter(Phase::kIdle, now);
  lagging_.clear();
}

void Cuts::OnCommitted(const absl::Status& committed, Time now) {
  if (phase_ != Phase::kCommitting) return;
  if (!committed.ok()) return Fail(std::string(committed.message()), now);
  ++written_;
  failed_in_a_row_ = 0;
  error_.clear();
  End(true, now);
}

void Cuts::Step(Time now, std::uint64_t members_version, std::uint64_t members_confirmed,
                const std::function<std::vector<std::uint64_t>()>& sessions) {
  if (phase_ == Phase::kOpening) {
    const bool known = std::all_of(states_.begin(), states_.end(),
                                   [this](const auto& state) { return state.second.cut() == number_; });
    if (store_ready_ && known) {
      announced_ = number_;
      announced_at_ = now;
      covered_ = wished_;
      for (std::uint64_t session : sessions()) lagging_.insert(session);
      // Sessions that ended before may have pushes under way to a ps that does not refuse them yet.
      fence_ = members_version;
      Enter(Phase::kMoving, now);
    } else if (now - phase_since_ > options_.opening_deadline) {
      return Fail(store_ready_ ? "a ps did not answer" : "the store did not answer", now);
    }
  }
  if (phase_ == Phase::kMoving && lagging_.empty() && members_confirmed >= fence_) Enter(Phase::kWriting, now);
  if (phase_ == Phase::kWriting) {
    const bool written =
        std::all_of(states_.begin(), states_.end(), [](const auto& state) { return state.second.has_files(); });
    if (written) {
      Enter(Phase::kCommitting, now);
    } else if (now - phase_since_ > options_.writing_deadline) {
      return Fail("the ps did not write it in time", now);
    }
  }
  if (phase_ == Phase::kCommitting && now - phase_since_ > options_.writing_deadline) {
    Fail("the store did not answer", now);
  }
}

std::optional<v1::CutOrder> Cuts::order() const {
  if (phase_ == Phase::kIdle) return std::nullopt;
  v1::CutOrder order;
  order.set_cut(number_);
  order.set_checkpoint(checkpoint_);
  order.set_sealed(sealed());
  return order;
}

bool Cuts::Told(std::uint32_t ps) const {
  if (phase_ == Phase::kIdle) return true;
  const auto state = states_.find(ps);
  if (state == states_.end()) return true;
  return state->second.cut() == number_ && (state->second.sealed() || !sealed());
}

std::vector<v1::PsFiles> Cuts::TakeFilesToCommit() {
  commit_given_out_ = true;
  std::vector<v1::PsFiles> files;
  for (const auto& [ps, state] : states_) files.push_back(state.files());
  return files;
}

Time Cuts::next_timer() const {
  switch (phase_) {
    case Phase::kIdle:
      return due_.value_or(absl::InfiniteDuration());
    case Phase::kOpening:
      return phase_since_ + options_.opening_deadline;
    case Phase::kMoving:
      return absl::InfiniteDuration();
    case Phase::kWriting:
    case Phase::kCommitting:
      return phase_since_ + options_.writing_deadline;
  }
  return absl::InfiniteDuration();
}

std::uint64_t Cuts::extra_bytes() const {
  std::uint64_t bytes = 0;
  if (phase_ == Phase::kIdle) return 0;
  for (const auto& [ps, state] : states_) bytes += state.extra_bytes();
  return bytes;
}

}  // namespace downpour::core
