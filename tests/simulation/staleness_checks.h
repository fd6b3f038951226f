#ifndef DOWNPOUR_TESTS_SIMULATION_STALENESS_CHECKS_H_
#define DOWNPOUR_TESTS_SIMULATION_STALENESS_CHECKS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "tests/simulation/process.h"
#include "tests/simulation/world.h"
#include "trainer/core/frame.h"

namespace downpour::simulation {

// In mode BOUNDED_STALENESS no worker begins an update more than the bound ahead of any other that every ps has to wait
// for and that has begun one since: by the clocks of the workers, on no slice.
class StalenessChecks {
 public:
  StalenessChecks(World* world, std::uint32_t slices) : world_(world), slices_(slices) {}

  // A history, and the epoch from which on it is in one mode.
  using Era = std::pair<HistoryKey, std::uint32_t>;
  // A ps has taken up the mode.
  void OnMode(const Era& era, std::uint32_t bound) { eras_[era].bound = bound; }
  // The ps knows by now who trains: these do and those do not, or are over.
  void OnTraining(const Era& era, std::uint32_t ps, const std::set<std::uint64_t>& training,
                  const std::set<std::uint64_t>& others);
  // A push was applied, or had been applied before.
  void OnUpdate(const Era& era, const core::FrameHeader& push);
  void OnBegin(const Process& worker);

 private:
  struct State {
    std::uint32_t bound = 0;
    std::map<std::uint32_t, std::set<std::uint64_t>> training;  // by ps
    std::map<std::uint64_t, std::uint64_t> begun;               // by session: the clock at the first update
    std::map<std::uint64_t, std::map<std::uint32_t, std::uint64_t>> clocks;  // by session, by slice
    bool TrainsEverywhere(std::uint64_t session) const;
  };

  World* world_;
  std::uint32_t slices_;
  std::map<Era, State> eras_;
};

}  // namespace downpour::simulation

#endif  // DOWNPOUR_TESTS_SIMULATION_STALENESS_CHECKS_H_
