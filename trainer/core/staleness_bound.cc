#include "trainer/core/staleness_bound.h"

#include <algorithm>

namespace downpour::core {

StalenessBound::StalenessBound(std::uint32_t bound, const std::vector<std::uint32_t>& slices, PlantedBug bug)
    : bound_(bound), bug_(bug) {
  for (const std::uint32_t slice : slices) slices_[slice];
}

void StalenessBound::Clocks::Count(const Clock& clock) {
  if (clock.training) ++spread[clock.updates];
}

void StalenessBound::Clocks::Uncount(const Clock& clock) {
  if (!clock.training) return;
  const auto found = spread.find(clock.updates);
  if (--found->second == 0) spread.erase(found);
}

void StalenessBound::SetTraining(std::uint64_t session, bool training) {
  if (!training && bug_ == PlantedBug::kIdleSessionsCount) return;
  for (auto& [slice, clocks] : slices_) {
    Clock& clock = clocks.of[session];
    if (clock.training == training) continue;
    clocks.Uncount(clock);
    if (training && !clocks.spread.empty()) clock.updates = std::max(clock.updates, clocks.spread.begin()->first);
    clock.training = training;
    clocks.Count(clock);
  }
}

void StalenessBound::End(std::uint64_t session) {
  for (auto& [slice, clocks] : slices_) {
    const auto found = clocks.of.find(session);
    if (found == clocks.of.end()) continue;
    clocks.Uncount(found->second);
    clocks.of.erase(found);
  }
}

void StalenessBound::SetClock(std::uint32_t slice, std::uint64_t session, std::uint64_t clock) {
  Clocks& clocks = slices_.at(slice);
  Clock& known = clocks.of[session];
  if (clock <= known.updates) return;  // a late copy
  clocks.Uncount(known);
  known.updates = clock;
  clocks.Count(known);
}

std::uint64_t StalenessBound::clock(std::uint32_t slice, std::uint64_t session) const {
  const std::map<std::uint64_t, Clock>& known = slices_.at(slice).of;
  const auto found = known.find(session);
  return found == known.end() ? 0 : found->second.updates;
}

bool StalenessBound::MayBegin(std::uint32_t slice, std::uint64_t session) const {
  if (bug_ == PlantedBug::kStalenessNotBounded) return true;
  const Clocks& clocks = slices_.at(slice);
  const auto found = clocks.of.find(session);
  if (found == clocks.of.end() || clocks.spread.empty()) return true;
  return found->second.updates <= clocks.spread.begin()->first + bound_;
}

}  // namespace downpour::core
