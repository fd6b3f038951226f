#ifndef DOWNPOUR_TESTS_SIMULATION_SIMULATOR_H_
#define DOWNPOUR_TESTS_SIMULATION_SIMULATOR_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trainer/core/planted_bug.h"

// A whole job in one thread from one seed: the coordinator, ps and workers of trainer/core, over a network that drops,
// repeats, reorders and delays, on machines that are killed, paused and replaced, sometimes while the old process
// still lives, with checkpoints on a disk that is full, slow, away, torn or stopped. Every update adds one to a counter
// in every slice and a one-hot of its samples to a vector; at the end all of them must be exact.
namespace downpour::simulation {

// At which workers evaluation and export fail, whenever they are tried.
enum class FailingTasks { kNowhere, kEverywhereButAtOne, kEverywhere };

struct SimulationOptions {
  std::uint64_t seed = 1;
  core::PlantedBug bug = core::PlantedBug::kNone;
  bool trace = false;  // print what happens to stdout
  bool faults = true;
  // One data shard ends every worker that begins an update of it; the operator says that this was not the platform.
  bool deadly_shard = false;
  FailingTasks failing_tasks = FailingTasks::kNowhere;
  bool search = false;       // in mode SANDBLASTER
  bool steps = false;        // of so many updates instead of epochs
  bool heeds = false;        // evaluations: it may stop early, and reduce its learning rate
  bool replicas = false;     // slices have standbys, in most jobs; and ps come and go
  bool slow_worker = false;  // worker 0 takes ten times as long as others at most
};

// How often each kind of fault struck while the protocol was in each state.
using Coverage = std::map<std::string, std::map<std::string, std::uint64_t>>;

struct SimulationResult {
  std::vector<std::string> violations;  // empty: every invariant held
  std::string shape;                    // "2 ps, 4 workers, 3 epochs, ..."
  double simulated_seconds = 0;
  std::uint64_t events = 0;
  int kills = 0;
  int pauses = 0;
  int leaves = 0;   // workers that were asked to end
  int zombies = 0;  // processes replaced while they lived
  std::uint64_t generation = 0;
  std::uint64_t duplicates = 0;  // answered DUPLICATE
  std::uint64_t refused = 0;
  int mode_changes = 0;  // of a history that went on
  std::uint64_t checkpoints = 0;
  std::uint64_t slices_restored = 0;
  std::uint64_t partial_updates = 0;  // that a checkpoint holds on some slices only
  bool lossy = false;                 // with a codec that leaves something out
  std::uint64_t flushed = 0;          // pushes with which nothing was left out any more
  std::uint64_t forgotten = 0;        // residuals that may have gone with their session
  Coverage coverage;
  std::string deadly_shard;  // "data shard 3 of epoch 1 "
  int deaths_by_shard = 0;
  int failed_tasks = 0;
  std::map<std::uint32_t, std::uint64_t> computed;  // updates, by worker
  std::uint32_t iterations = 0;                     // in mode SANDBLASTER
  bool stopped_early = false;
  bool reduced = false;                    // the learning rate
  std::uint64_t failovers = 0, moves = 0;  // slices, as coordinators told
  std::uint64_t standbys_compared = 0;     // at the end
  bool protected_once = false;             // every slice had a standby at some time
  double calm_seconds = 0;                 // in which nobody may stand still, see StallChecks
  std::string failure;  // with which a job with a deadly shard or with tasks that fail everywhere failed
};

SimulationResult Simulate(const SimulationOptions& options);

}  // namespace downpour::simulation

#endif  // DOWNPOUR_TESTS_SIMULATION_SIMULATOR_H_
