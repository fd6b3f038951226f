#include "trainer/core/staleness_bound.h"

#include <algorithm>
#include <utility>

namespace downpour::core {

StalenessBound::StalenessBound(std::uint32_t bound, const std::vector<std::uint32_t>& slices, PlantedBug bug)
    : bound_(bound), bug_(bug) {
  for (const std::uint32_t slice : slices) slices_[slice];
}

void StalenessBound::AddSlice(std::uint32_t slice) {
  Clocks clocks;
  if (!slices_.empty()) {
    clocks.of = slices_.begin()->second.of;
    for (auto& [session, clock] : clocks.of) {
      for (const auto& [number, other] : slices_) {
        const auto known = other.of.find(session);
        clock = known == other.of.end() ? 0 : std::min(clock, known->second);
      }
    }
  }
  for (const std::uint64_t session : training_) ++clocks.spread[clocks.of[session]];
  slices_.try_emplace(slice, std::move(clocks));
}

void StalenessBound::Clocks::Remove(std::uint64_t clock) {
  const auto found = spread.find(clock);
  if (--found->second == 0) spread.erase(found);
}

void StalenessBound::StopTraining(std::uint64_t session) {
  if (training_.erase(session) == 0) return;
  for (auto& [slice, clocks] : slices_) clocks.Remove(clocks.of.at(session));
}

void StalenessBound::SetTraining(std::uint64_t session, bool training) {
  if (!training) {
    if (bug_ != PlantedBug::kIdleSessionsCount) StopTraining(session);
    return;
  }
  if (!training_.insert(session).second) return;
  for (auto& [slice, clocks] : slices_) {
    std::uint64_t& clock = clocks.of[session];
    if (!clocks.spread.empty()) clock = std::max(clock, clocks.spread.begin()->first);
    ++clocks.spread[clock];
  }
}

void StalenessBound::End(std::uint64_t session) {
  StopTraining(session);
  for (auto& [slice, clocks] : slices_) clocks.of.erase(session);
}

void StalenessBound::SetClock(std::uint32_t slice, std::uint64_t session, std::uint64_t clock) {
  Clocks& clocks = slices_.at(slice);
  std::uint64_t& known = clocks.of[session];
  if (clock <= known) return;  // a late copy
  if (training_.count(session) != 0) {
    clocks.Remove(known);
    ++clocks.spread[clock];
  }
  known = clock;
}

void StalenessBound::SetClock(std::uint64_t session, std::uint64_t clock) {
  for (const auto& [slice, clocks] : slices_) SetClock(slice, session, clock);
}

std::uint64_t StalenessBound::clock(std::uint32_t slice, std::uint64_t session) const {
  const std::map<std::uint64_t, std::uint64_t>& known = slices_.at(slice).of;
  const auto found = known.find(session);
  return found == known.end() ? 0 : found->second;
}

bool StalenessBound::MayBegin(std::uint32_t slice, std::uint64_t session) const {
  if (bug_ == PlantedBug::kStalenessNotBounded) return true;
  const Clocks& clocks = slices_.at(slice);
  return clocks.spread.empty() || clock(slice, session) <= clocks.spread.begin()->first + bound_;
}

}  // namespace downpour::core
