#include "trainer/core/ps_states.h"

#include <vector>

namespace downpour::core {

void PsStates::SetPs(const std::set<std::uint32_t>& ps) {
  std::vector<std::uint32_t> gone;
  for (const auto& [index, stats] : stats_) {
    if (ps.count(index) == 0) gone.push_back(index);
  }
  for (const std::uint32_t index : gone) {
    has_view_.Erase(index);
    initialised_.Erase(index);
    members_version_.Erase(index);
    watermark_.Erase(index);
    committed_.erase(index);
    stats_.erase(index);
  }
  for (const std::uint32_t index : ps) {
    if (stats_.count(index) == 0) Forget(index);
  }
}

void PsStates::Forget(std::uint32_t index) {
  has_view_.Set(index, false);
  initialised_.Set(index, false);
  members_version_.Set(index, 0);
  watermark_.Set(index, 0);
  committed_.erase(index);
  stats_[index].Clear();
}

void PsStates::ForgetAll() {
  for (const auto& [index, stats] : stats_) Forget(index);
}

void PsStates::ForgetViews(bool sessions) {
  for (const auto& [index, stats] : stats_) {
    has_view_.Set(index, false);
    if (sessions) members_version_.Set(index, 0);
  }
  committed_.clear();
}

void PsStates::Confirm(std::uint32_t index, const v1::DirectReply& reply) {
  if (stats_.count(index) == 0) return;
  has_view_.Set(index, true);
  initialised_.Set(index, reply.initialised());
  members_version_.Set(index, reply.members_version());
  watermark_.Set(index, reply.watermark());
  if (reply.committed()) committed_.insert(index);
}

void PsStates::SetStats(std::uint32_t index, const v1::PsStats& stats) {
  const auto entry = stats_.find(index);
  if (entry != stats_.end()) entry->second = stats;
}

const v1::PsStats& PsStates::stats(std::uint32_t index) const {
  const auto entry = stats_.find(index);
  return entry == stats_.end() ? v1::PsStats::default_instance() : entry->second;
}

}  // namespace downpour::core
