#include "tests/simulation/staleness_checks.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace downpour::simulation {

bool StalenessChecks::State::TrainsEverywhere(std::uint64_t session) const {
  return std::all_of(training.begin(), training.end(),
                     [session](const auto& of_ps) { return of_ps.second.count(session) != 0; });
}

void StalenessChecks::OnTraining(const Era& era, std::uint32_t ps, const std::set<std::uint64_t>& training,
                                 const std::set<std::uint64_t>& others) {
  State& state = eras_[era];
  for (const std::uint64_t session : others) {
    state.training[ps].erase(session);
    state.begun.erase(session);
  }
  state.training[ps].insert(training.begin(), training.end());
}

void StalenessChecks::OnUpdate(const Era& era, const core::FrameHeader& push) {
  std::uint64_t& clock = eras_[era].clocks[push.session][push.slice];
  clock = std::max(clock, push.clock);
}

void StalenessChecks::OnBegin(const Process& worker) {
  const std::uint64_t session = worker.worker->session();
  const std::uint64_t clock = worker.worker->clock();
  const auto found = eras_.find({{worker.job_uid, worker.worker->generation()}, worker.worker->epoch()});
  if (found == eras_.end()) return;  // of another mode
  State& state = found->second;
  if (!state.TrainsEverywhere(session)) return;  // it has been replaced
  state.begun.emplace(session, clock);
  for (const auto& [other, begun_at] : state.begun) {
    if (!state.TrainsEverywhere(other)) continue;
    for (std::uint32_t slice = 0; slice < slices_; ++slice) {
      const std::uint64_t slowest = std::max(begun_at, state.clocks[other][slice]);
      if (clock <= slowest + state.bound) continue;
      return world_->Violation(absl::StrCat(worker.name(), " begins an update at clock ", clock, ", session ", other,
                                            " is at ", slowest, " on slice ", slice, ", the bound is ", state.bound));
    }
  }
}

}  // namespace downpour::simulation
