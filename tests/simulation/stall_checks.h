#ifndef DOWNPOUR_TESTS_SIMULATION_STALL_CHECKS_H_
#define DOWNPOUR_TESTS_SIMULATION_STALL_CHECKS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "tests/simulation/process.h"
#include "tests/simulation/world.h"

namespace downpour::simulation {

// Nobody stands still while nothing is broken: every process that the job needs is there and runs, messages arrive, the
// disk works, and so it has been for a grace period. Then a worker comes to an end with what it pulls or pushes within
// a bound, whoever it has to wait for, and the job with whatever it does next.
class StallChecks {
 public:
  // What takes its time though nothing is broken, at the most.
  struct Durations {
    absl::Duration update;                        // to compute one
    absl::Duration cut = absl::ZeroDuration();    // to write one, where pushes wait for it
    absl::Duration pause = absl::ZeroDuration();  // of the job, on purpose
  };
  // `faults`: some may strike.
  StallChecks(World* world, bool faults, const Durations& durations);

  // Something is broken now.
  void OnFault() { broken_at_ = world_->now(); }
  // The job goes on: a push is applied, a task is done, or it has come to another phase.
  void OnProgress() { progress_at_ = world_->now(); }
  // What the worker does now; to be called often. `awaits` says what it waits for.
  void OnWorker(const Process& worker, const std::function<std::string()>& awaits);
  // Likewise the job, while it is not over.
  void OnJob(const std::function<std::string()>& state);
  // Whether nothing was broken for the grace period.
  bool calm() const;

 private:
  struct Standing {
    std::string state;
    std::uint64_t updates = 0;  // that it has done
    Time since = absl::ZeroDuration();
  };
  // Whether who has been so since then stands still. Nothing counts before the grace period is over.
  bool IsLong(Time since, absl::Duration bound) const;

  World* const world_;
  const absl::Duration grace_;
  const Durations durations_;
  Time broken_at_ = absl::ZeroDuration(), progress_at_ = absl::ZeroDuration();
  std::map<std::uint64_t, Standing> workers_;  // by the number of the process
};

}  // namespace downpour::simulation

#endif  // DOWNPOUR_TESTS_SIMULATION_STALL_CHECKS_H_
