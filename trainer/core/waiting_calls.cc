#include "trainer/core/waiting_calls.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

namespace downpour::core {

std::optional<WaitingCalls::Decision> WaitingCalls::DecisionOn(std::uint64_t session, const UpdateId& update) const {
  const auto found = sessions_.find(session);
  if (found == sessions_.end() || found->second.decided != update) return std::nullopt;
  return found->second.decision;
}

bool WaitingCalls::HoldPushes(Call& call, std::vector<Call>* superseded) {
  const FrameHeader& first = call.frames.front().header;
  Session& session = sessions_[first.session];
  if (session.pushed.has_value() && session.pushed != first.update) {
    std::vector<Call> earlier = TakePushes(session);
    superseded->insert(superseded->end(), std::make_move_iterator(earlier.begin()),
                       std::make_move_iterator(earlier.end()));
  }
  std::size_t bytes = 0;
  for (const Frame& frame : call.frames) bytes += frame.payload.size();
  if (pushed_bytes_ + bytes > pushed_bytes_limit_) return false;
  session.pushed = first.update;
  session.pushed_bytes += bytes;
  pushed_bytes_ += bytes;
  session.pushes.push_back(std::move(call));
  return true;
}

std::vector<WaitingCalls::Call> WaitingCalls::Decide(std::uint64_t session, const UpdateId& update,
                                                     const Decision& decision) {
  Session& of = sessions_[session];
  of.decided = update;
  of.decision = decision;
  if (of.pushed != update) return {};
  return TakePushes(of);
}

std::vector<WaitingCalls::Call> WaitingCalls::TakePushes(Session& session) {
  pushed_bytes_ -= std::exchange(session.pushed_bytes, 0);
  session.pushed.reset();
  return std::exchange(session.pushes, {});
}

std::vector<WaitingCalls::Call> WaitingCalls::HoldPulls(Call call) {
  Session& session = sessions_[call.frames.front().header.session];
  std::set<std::uint32_t> slices;
  for (const Frame& frame : call.frames) slices.insert(frame.header.slice);
  std::vector<Call> given_up;
  waiting_pulls_ -= std::erase_if(session.pulls, [&](Call& held) {
    const bool again = std::any_of(held.frames.begin(), held.frames.end(),
                                   [&slices](const Frame& frame) { return slices.count(frame.header.slice) != 0; });
    if (again) given_up.push_back(std::move(held));
    return again;
  });
  session.pulls.push_back(std::move(call));
  ++waiting_pulls_;
  return given_up;
}

std::vector<WaitingCalls::Call> WaitingCalls::TakePulls(absl::FunctionRef<bool(const std::vector<Frame>&)> over) {
  std::vector<Call> taken;
  if (waiting_pulls_ == 0) return taken;
  for (auto& [number, session] : sessions_) {
    waiting_pulls_ -= std::erase_if(session.pulls, [&](Call& call) {
      const bool is_over = over(call.frames);
      if (is_over) taken.push_back(std::move(call));
      return is_over;
    });
  }
  return taken;
}

void WaitingCalls::TakeAll(Session& session, std::vector<Call>* calls) {
  for (Call& call : TakePushes(session)) calls->push_back(std::move(call));
  waiting_pulls_ -= session.pulls.size();
  for (Call& call : std::exchange(session.pulls, {})) calls->push_back(std::move(call));
}

std::vector<WaitingCalls::Call> WaitingCalls::End(std::uint64_t session) {
  std::vector<Call> calls;
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return calls;
  TakeAll(found->second, &calls);
  sessions_.erase(found);
  return calls;
}

std::vector<WaitingCalls::Call> WaitingCalls::EndAll() {
  std::vector<Call> calls;
  for (auto& [number, session] : sessions_) TakeAll(session, &calls);
  sessions_.clear();
  return calls;
}

}  // namespace downpour::core
