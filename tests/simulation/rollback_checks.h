#ifndef DOWNPOUR_TESTS_SIMULATION_ROLLBACK_CHECKS_H_
#define DOWNPOUR_TESTS_SIMULATION_ROLLBACK_CHECKS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "downpour/v1/control.pb.h"
#include "tests/simulation/world.h"

namespace downpour::simulation {

// A generation ends, and with it what was acknowledged since a checkpoint, only for a cause: a slice of which neither
// the primary nor the standby lives, or too few ps to decide on a view. What is not known to be gone is awaited.
// A generation with which nothing was applied has nothing to lose.
class RollbackChecks {
 public:
  explicit RollbackChecks(World* world) : world_(world) {}

  // A ps with this session has the view. `lives`: whether the ps with a session is there, and nobody was started for
  // it.
  void OnView(const std::string& job_uid, const v1::View& view, std::uint64_t session,
              const std::function<bool(std::uint64_t)>& lives);

  // A push was.
  void OnApplied(const std::string& job_uid, std::uint64_t generation);

 private:
  using Stamp = std::pair<std::uint32_t, std::uint32_t>;  // incarnation, epoch
  struct Known {
    v1::View view;
    std::set<std::uint64_t> stored;  // by these sessions
  };

  World* const world_;
  std::map<std::string, std::map<std::uint64_t, std::map<Stamp, Known>>> views_;  // by job and generation
  std::set<std::pair<std::string, std::uint64_t>> applied_;                       // with something to lose
};

}  // namespace downpour::simulation

#endif  // DOWNPOUR_TESTS_SIMULATION_ROLLBACK_CHECKS_H_
