// Replays one simulated job: simulate --seed N [--trace] [--bug 0..29] [--deadly-shard] [--search] [--steps]
// [--heeds] [--replicas] [--slow-worker] [--no-faults]
#include <cstdio>

#include "CLI/CLI.hpp"
#include "tests/simulation/simulator.h"

int main(int argc, char** argv) {
  downpour::simulation::SimulationOptions options;
  int bug = 0;
  bool no_faults = false;
  CLI::App app{"Runs one job in simulation; the same seed gives the same run."};
  app.add_option("--seed", options.seed, "the seed")->required();
  app.add_flag("--trace", options.trace, "print what happens");
  app.add_flag("--deadly-shard", options.deadly_shard, "a data shard that ends whoever trains on it");
  app.add_flag("--search", options.search, "in mode Sandblaster");
  app.add_flag("--steps", options.steps, "of so many updates instead of epochs");
  app.add_flag("--heeds", options.heeds, "stops early, and reduces its learning rate on a plateau");
  app.add_flag("--replicas", options.replicas, "with standbys, and ps that come and go");
  app.add_flag("--slow-worker", options.slow_worker, "worker-0 takes ten times as long");
  app.add_flag("--no-faults", no_faults, "a perfect network and machines");
  app.add_option("--bug", bug, "a planted bug (trainer/core/planted_bug.h)")->check(CLI::Range(0, 29));
  CLI11_PARSE(app, argc, argv);
  options.faults = !no_faults;
  options.bug = static_cast<downpour::core::PlantedBug>(bug);
  const downpour::simulation::SimulationResult result = downpour::simulation::Simulate(options);
  std::printf(
      "%s: %.1f simulated seconds, %llu events, %d kills, %d pauses, %d zombies, generation %llu, "
      "%llu checkpoints, %llu slices restored, %d changes of the mode, %.1f s in calm\n",
      result.shape.c_str(), result.simulated_seconds, static_cast<unsigned long long>(result.events), result.kills,
      result.pauses, result.zombies, static_cast<unsigned long long>(result.generation),
      static_cast<unsigned long long>(result.checkpoints), static_cast<unsigned long long>(result.slices_restored),
      result.mode_changes, result.calm_seconds);
  for (const std::string& violation : result.violations) std::printf("VIOLATION %s\n", violation.c_str());
  return result.violations.empty() ? 0 : 1;
}
