#include "tests/simulation/staleness_checks.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace downpour::simulation {

bool StalenessChecks::History::TrainsEverywhere(std::uint64_t session) const {
  return std::all_of(training.begin(), training.end(),
                     [session](const auto& of_ps) { return of_ps.second.count(session) != 0; });
}

void StalenessChecks::OnTraining(const HistoryKey& key, std::uint32_t ps, const std::set<std::uint64_t>& training,
                                 const std::set<std::uint64_t>& others) {
  History& history = histories_[key];
  for (const std::uint64_t session : others) {
    history.training[ps].erase(session);
    history.begun.erase(session);
  }
  history.training[ps].insert(training.begin(), training.end());
}

void StalenessChecks::OnUpdate(const HistoryKey& key, const core::FrameHeader& push) {
  std::uint64_t& clock = histories_[key].clocks[push.session][push.slice];
  clock = std::max(clock, push.clock);
}

void StalenessChecks::OnBegin(const Process& worker) {
  const std::uint64_t session = worker.worker->session();
  const std::uint64_t clock = worker.worker->clock();
  History& history = histories_[{worker.job_uid, worker.worker->generation()}];
  if (!history.TrainsEverywhere(session)) return;  // it has been replaced
  history.begun.emplace(session, clock);
  for (const auto& [other, begun_at] : history.begun) {
    if (!history.TrainsEverywhere(other)) continue;
    for (std::uint32_t slice = 0; slice < slices_; ++slice) {
      const std::uint64_t slowest = std::max(begun_at, history.clocks[other][slice]);
      if (clock <= slowest + bound_) continue;
      return world_->Violation(absl::StrCat(worker.name(), " begins an update at clock ", clock, ", session ", other,
                                            " is at ", slowest, " on slice ", slice, ", the bound is ", bound_));
    }
  }
}

}  // namespace downpour::simulation
