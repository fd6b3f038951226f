#include "trainer/core/direct_calls.h"

#include <algorithm>

namespace downpour::core {
namespace {

constexpr int kBrokenCalls = 3;
constexpr absl::Duration kBrokenFor = absl::Milliseconds(60);

}  // namespace

void DirectCalls::Hear(std::uint32_t index, bool new_process, Time now) {
  Ps& ps = ps_[index];
  if (new_process && ps.call.has_value()) {
    under_way_.erase(*ps.call);
    ps.call.reset();
  }
  ps.last_heard = ps.unsettled = ps.settled = now;
  if (new_process) ps.broken = 0;
}

void DirectCalls::ForgetAll() {
  under_way_.clear();
  for (auto& [index, ps] : ps_) {
    ps.call.reset();
    ps.unsettled = ps.settled = absl::ZeroDuration();
  }
}

std::optional<Time> DirectCalls::Due(std::uint32_t index, bool settled) const {
  const auto found = ps_.find(index);
  if (found == ps_.end()) return absl::ZeroDuration();
  const Ps& ps = found->second;
  if (ps.call.has_value()) return std::nullopt;
  return settled ? ps.settled : std::min(ps.settled, ps.unsettled);
}

std::uint64_t DirectCalls::Begin(std::uint32_t index, Time now) {
  const std::uint64_t call = next_call_++;
  ps_[index].call = call;
  ps_[index].settled = now + period_;
  under_way_.emplace(call, index);
  return call;
}

std::optional<std::uint32_t> DirectCalls::End(std::uint64_t call) {
  const auto found = under_way_.find(call);
  if (found == under_way_.end()) return std::nullopt;
  const std::uint32_t index = found->second;
  under_way_.erase(found);
  ps_[index].call.reset();
  return index;
}

void DirectCalls::Answered(std::uint32_t index, Time now) {
  ps_[index].last_heard = now;
  ps_[index].unsettled = now + pace_;
  ps_[index].broken = 0;
}

void DirectCalls::Broken(std::uint32_t index, Time now) {
  Ps& ps = ps_[index];
  if (ps.broken++ == 0) ps.broken_since = now;
}

Time DirectCalls::last_heard(std::uint32_t index) const {
  const auto found = ps_.find(index);
  return found == ps_.end() ? absl::ZeroDuration() : found->second.last_heard;
}

bool DirectCalls::broken(std::uint32_t index, Time now) const {
  const auto found = ps_.find(index);
  return found != ps_.end() && found->second.broken >= kBrokenCalls && now >= found->second.broken_since + kBrokenFor;
}

}  // namespace downpour::core
