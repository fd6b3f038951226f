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
  StalenessChecks(World* world, std::uint32_t bound, std::uint32_t slices)
      : world_(world), bound_(bound), slices_(slices) {}

  // The ps knows by now who trains: these do and those do not, or are over.
  void OnTraining(const HistoryKey& history, std::uint32_t ps, const std::set<std::uint64_t>& training,
                  const std::set<std::uint64_t>& others);
  // A push was applied, or had been applied before.
  void OnUpdate(const HistoryKey& history, const core::FrameHeader& push);
  void OnBegin(const Process& worker);

 private:
  struct History {
    std::map<std::uint32_t, std::set<std::uint64_t>> training;  // by ps
    std::map<std::uint64_t, std::uint64_t> begun;               // by session: the clock at the first update
    std::map<std::uint64_t, std::map<std::uint32_t, std::uint64_t>> clocks;  // by session, by slice
    bool TrainsEverywhere(std::uint64_t session) const;
  };

  World* world_;
  std::uint32_t bound_, slices_;
  std::map<HistoryKey, History> histories_;
};

}  // namespace downpour::simulation

#endif  // DOWNPOUR_TESTS_SIMULATION_STALENESS_CHECKS_H_
