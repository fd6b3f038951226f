// The counter test in simulation: under any schedule of faults every update is applied exactly once to every slice.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/simulation/simulator.h"

namespace downpour::simulation {
namespace {

// How many seeds: DOWNPOUR_SIMULATION_SEEDS, or the given number.
std::uint64_t Seeds(std::uint64_t usual) {
  const char* text = std::getenv("DOWNPOUR_SIMULATION_SEEDS");
  std::uint64_t seeds = 0;
  return text != nullptr && absl::SimpleAtoi(text, &seeds) ? seeds : usual;
}

// What the protocol may be doing when something happens to it.
constexpr const char* kStates[] = {"no coordinator", "gathering", "seeking",   "installing", "initialising",
                                   "restoring",      "training",  "switching", "copying",    "frozen",
                                   "unprotected",    "opening",   "moving",    "writing",    "committing",
                                   "finishing",      "done"};

void Print(const Coverage& coverage) {
  std::printf("%-18s", "");
  for (const char* state : kStates) std::printf(" %14s", state);
  std::printf("\n");
  for (const auto& [fault, states] : coverage) {
    std::printf("%-18s", fault.c_str());
    for (const char* state : kStates) {
      const auto found = states.find(state);
      std::printf(" %14llu", found == states.end() ? 0ull : static_cast<unsigned long long>(found->second));
    }
    std::printf("\n");
  }
}

// What must have happened at least once: most of all in the phases of a cut, and while a checkpoint is loaded.
void ExpectCovered(Coverage coverage) {
  const std::vector<std::string> everywhere = {"restoring", "training", "opening", "moving", "writing", "committing"};
  for (const char* fault :
       {"kill worker", "kill ps", "kill coordinator", "cut off worker", "cut off ps", "cut off coordinator",
        "pause worker", "pause ps", "pause coordinator", "worker leaves", "all at once", "whole job", "clock leaps",
        "one-way cut", "disk error", "disk full", "store away", "machine stops"}) {
    for (const std::string& state : everywhere) EXPECT_GT(coverage[fault][state], 0u) << fault << " while " << state;
  }
  for (const char* fault : {"kill ps", "kill worker", "pause ps", "pause worker", "clock leaps", "one-way cut"}) {
    for (const char* state : {"gathering", "seeking", "finishing", "done"}) {
      EXPECT_GT(coverage[fault][state], 0u) << fault << " while " << state;
    }
  }
  for (const char* fault : {"kill worker", "kill ps", "kill coordinator", "cut off coordinator", "pause ps"}) {
    EXPECT_GT(coverage[fault]["switching"], 0u) << fault;
  }
  for (const std::string& state : everywhere) EXPECT_GT(coverage["mode changes"][state], 0u) << state;
  // Whoever uses the disk then.
  for (const char* state : {"seeking", "restoring", "opening", "writing", "committing"}) {
    EXPECT_GT(coverage["torn write"][state], 0u) << state;
  }
}

// A job in which every invariant is to hold; where one does not, how it is replayed.
SimulationResult Checked(const SimulationOptions& options) {
  SimulationResult result = Simulate(options);
  std::string replay = absl::StrCat("\n  replay: simulate", options.deadly_shard ? " --deadly-shard" : "",
                                    options.search ? " --search" : "", options.steps ? " --steps" : "",
                                    options.heeds ? " --heeds" : "", options.replicas ? " --replicas" : "",
                                    options.faults ? "" : " --no-faults", " --seed ", options.seed, " --trace");
  if (options.failing_tasks != FailingTasks::kNowhere) replay.clear();  // there is no flag for it
  for (const std::string& violation : result.violations) {
    ADD_FAILURE() << "seed " << options.seed << " (" << result.shape << "): " << violation << replay;
  }
  return result;
}

TEST(CounterTest, EveryCounterOfEverySliceIsExact) {
  constexpr std::uint64_t kUsual = 3300;
  const std::uint64_t seeds = Seeds(kUsual);
  std::uint64_t events = 0, kills = 0, pauses = 0, zombies = 0, leaves = 0, duplicates = 0, refused = 0, lost = 0,
                checkpoints = 0, with_checkpoints = 0, restored = 0, partial = 0, mode_changes = 0, lossy = 0,
                flushed = 0, forgotten = 0;
  Coverage coverage;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    SimulationOptions options;
    options.seed = seed;
    const SimulationResult result = Checked(options);
    events += result.events;
    kills += static_cast<std::uint64_t>(result.kills);
    pauses += static_cast<std::uint64_t>(result.pauses);
    zombies += static_cast<std::uint64_t>(result.zombies);
    leaves += static_cast<std::uint64_t>(result.leaves);
    duplicates += result.duplicates;
    refused += result.refused;
    lost += result.generation > 1 ? 1 : 0;
    checkpoints += result.checkpoints;
    with_checkpoints += result.checkpoints > 0 ? 1 : 0;
    restored += result.slices_restored > 0 ? 1 : 0;
    partial += result.partial_updates;
    mode_changes += static_cast<std::uint64_t>(result.mode_changes);
    lossy += result.lossy ? 1 : 0;
    flushed += result.flushed;
    forgotten += result.forgotten;
    for (const auto& [fault, states] : result.coverage) {
      for (const auto& [state, count] : states) coverage[fault][state] += count;
    }
  }
  std::cout << seeds << " seeds: " << events << " events, " << kills << " kills, " << pauses << " pauses, " << zombies
            << " zombies, " << leaves << " leaves, " << duplicates << " duplicates, " << refused << " refused, " << lost
            << " jobs that lost parameters; " << checkpoints << " checkpoints in " << with_checkpoints << " jobs, "
            << restored << " jobs that went on from one, " << partial << " updates on some slices only; "
            << mode_changes << " changes of the mode; " << lossy << " jobs with a codec, " << flushed
            << " pushes with all that was left out, " << forgotten << " residuals gone with a session" << std::endl;
  Print(coverage);
  // The faults that the promise is about did happen.
  EXPECT_GT(duplicates, seeds / 10);
  EXPECT_GT(refused, seeds / 20);
  EXPECT_GT(zombies, seeds / 20);
  EXPECT_GT(leaves, seeds / 20);
  EXPECT_GT(lost, seeds / 20);
  EXPECT_GT(checkpoints, seeds / 2);
  EXPECT_GT(restored, seeds / 3);
  EXPECT_GT(mode_changes, seeds / 4);
  EXPECT_GT(lossy, seeds / 5);
  EXPECT_GT(flushed, lossy);
  EXPECT_GT(forgotten, lossy / 20);
  if (seeds < kUsual) return;
  EXPECT_GE(restored, 2000u) << "jobs that were cut and restored";
  ExpectCovered(coverage);
}

TEST(CounterTest, ARunIsAFunctionOfItsSeed) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SimulationOptions options;
    options.seed = seed;
    const SimulationResult first = Simulate(options);
    const SimulationResult second = Simulate(options);
    EXPECT_EQ(first.events, second.events) << "seed " << seed;
    EXPECT_EQ(first.simulated_seconds, second.simulated_seconds) << "seed " << seed;
    EXPECT_EQ(first.duplicates, second.duplicates) << "seed " << seed;
  }
}

// The last epoch ends in the middle, of a data shard and of a step of mode SYNCHRONOUS as well.
TEST(StepsTest, AreSoManyUpdatesUnderAnyFaults) {
  const std::uint64_t seeds = Seeds(600);
  std::uint64_t restored = 0, duplicates = 0;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    SimulationOptions options;
    options.seed = seed;
    options.steps = true;
    const SimulationResult result = Checked(options);
    restored += result.slices_restored > 0 ? 1 : 0;
    duplicates += result.duplicates;
  }
  std::cout << seeds << " jobs of so many updates, " << restored << " went on from a checkpoint, " << duplicates
            << " duplicates" << std::endl;
  EXPECT_GT(restored, seeds / 5);
  EXPECT_GT(duplicates, 0u);
}

// What an operator looks up when a ps is lost: nothing that was acknowledged goes with it, whatever else happens while
// slices are copied, are about to move, or have no standby.
TEST(ReplicasTest, NothingAcknowledgedIsLostUnderAnyFaults) {
  constexpr std::uint64_t kUsual = 2400;
  const std::uint64_t seeds = Seeds(kUsual);
  std::uint64_t failovers = 0, moves = 0, compared = 0, protected_jobs = 0, lost = 0, restored = 0;
  Coverage coverage;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    SimulationOptions options;
    options.seed = seed;
    options.replicas = true;
    const SimulationResult result = Checked(options);
    failovers += result.failovers;
    moves += result.moves;
    compared += result.standbys_compared;
    protected_jobs += result.protected_once ? 1 : 0;
    lost += result.generation > 1 ? 1 : 0;
    restored += result.slices_restored > 0 ? 1 : 0;
    for (const auto& [fault, states] : result.coverage) {
      for (const auto& [state, count] : states) coverage[fault][state] += count;
    }
  }
  std::cout << seeds << " jobs with replicas: " << failovers << " slices taken over, " << moves << " moved, "
            << compared << " standbys compared at the end, " << protected_jobs
            << " jobs with a standby of every slice, " << lost << " that lost parameters all the same, " << restored
            << " that went on from a checkpoint" << std::endl;
  Print(coverage);
  EXPECT_GT(failovers, seeds / 4);
  EXPECT_GT(moves, 2 * seeds);
  EXPECT_GT(compared, seeds);
  EXPECT_GT(protected_jobs, seeds / 2);
  if (seeds < kUsual) return;
  for (const char* fault : {"kill worker", "kill ps", "kill coordinator", "cut off worker", "cut off ps",
                            "cut off coordinator", "pause worker", "pause ps", "pause coordinator", "worker leaves",
                            "all at once", "clock leaps", "one-way cut", "ps scaled", "ps drained"}) {
    for (const char* state : {"copying", "frozen", "unprotected", "opening", "moving", "writing", "committing"}) {
      EXPECT_GT(coverage[fault][state], 0u) << fault << " while " << state;
    }
  }
}

// Of the jobs with faults only the ends are calm. Here all is, while slices go to ps that come and from ps that leave.
TEST(StallsTest, NobodyStandsStillWhereNothingIsBroken) {
  const std::uint64_t seeds = Seeds(600);
  std::uint64_t moves = 0;
  double seconds = 0, calm = 0;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    SimulationOptions options;
    options.seed = seed;
    options.faults = false;
    options.replicas = true;
    const SimulationResult result = Checked(options);
    moves += result.moves;
    seconds += result.simulated_seconds;
    calm += result.calm_seconds;
  }
  std::cout << seeds << " jobs without faults, " << moves << " slices moved, " << calm << " of " << seconds
            << " simulated seconds in calm" << std::endl;
  EXPECT_GT(moves, seeds / 2);
  EXPECT_GT(calm, seconds / 2);
}

// What follows from evaluations is decided once, and what is done of a job that stops early is exact.
TEST(HeedingTest, WhatIsDecidedStaysUnderAnyFaults) {
  const std::uint64_t seeds = Seeds(900);
  std::uint64_t stopped = 0, reduced = 0, restored = 0;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    SimulationOptions options;
    options.seed = seed;
    options.heeds = true;
    const SimulationResult result = Checked(options);
    stopped += result.stopped_early ? 1 : 0;
    reduced += result.reduced ? 1 : 0;
    restored += result.slices_restored > 0 ? 1 : 0;
  }
  std::cout << seeds << " jobs that heed their evaluations: " << stopped << " stopped early, " << reduced
            << " reduced their learning rate, " << restored << " went on from a checkpoint" << std::endl;
  EXPECT_GT(stopped, seeds / 4);
  EXPECT_GT(reduced, seeds / 5);
  EXPECT_GT(restored, seeds / 5);
}

// Every portion of the gradient once, at the right point, and every command once: otherwise a search would not come to
// the end that it has without faults, to the bit.
TEST(SearchTest, EndsTheSameUnderAnyFaults) {
  const std::uint64_t seeds = Seeds(600);
  std::uint64_t iterations = 0, restored = 0, kills = 0, checkpoints = 0;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    SimulationOptions options;
    options.seed = seed;
    options.search = true;
    const SimulationResult result = Checked(options);
    iterations += result.iterations;
    restored += result.slices_restored > 0 ? 1 : 0;
    kills += static_cast<std::uint64_t>(result.kills);
    checkpoints += result.checkpoints;
  }
  std::cout << seeds << " searches, " << iterations << " iterations, " << kills << " kills, " << checkpoints
            << " checkpoints, " << restored << " went on from one" << std::endl;
  EXPECT_GT(iterations, 5 * seeds);
  EXPECT_GT(restored, seeds / 4);
}

TEST(SearchTest, ASlowWorkerGetsFewerPortions) {
  std::uint64_t slow = 0, others = 0, count = 0, jobs = 0;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SimulationOptions options;
    options.seed = seed;
    options.faults = false;
    options.search = true;
    options.slow_worker = true;
    const SimulationResult result = Simulate(options);
    EXPECT_TRUE(result.violations.empty()) << "seed " << seed << ": " << result.violations.front();
    if (result.computed.size() < 2) continue;
    ++jobs;
    for (const auto& [worker, updates] : result.computed) {
      (worker == 0 ? slow : others) += updates;
      count += worker == 0 ? 0 : 1;
    }
  }
  std::cout << "the slow workers computed " << slow << " updates, " << count << " others " << others << std::endl;
  EXPECT_LT(slow * count, others * jobs / 2) << "a slow worker has as many as half of what another has";
}

TEST(DeadlyShardTest, FailsTheJobWithItsNameAndNothingElseDoes) {
  int deaths = 0, exact = 0, kills = 0;
  const std::uint64_t seeds = Seeds(200);
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    SimulationOptions options;
    options.seed = seed;
    options.deadly_shard = true;
    const SimulationResult result = Checked(options);
    EXPECT_NE(result.failure.find(result.deadly_shard), std::string::npos)
        << "seed " << seed << ": " << result.deadly_shard << " ended workers, but: " << result.failure;
    EXPECT_GE(result.deaths_by_shard, 3) << "seed " << seed;
    deaths += result.deaths_by_shard;
    kills += result.kills - result.deaths_by_shard;
    exact += result.deaths_by_shard == 3 ? 1 : 0;
  }
  std::cout << seeds << " jobs with a deadly data shard: " << deaths << " workers ended by it, " << exact
            << " jobs failed at the third, " << kills << " other kills\n";
  // More only where a coordinator forgot, or nobody could hold the shard against the dead.
  EXPECT_GT(exact, static_cast<int>(seeds) / 3);
}

TEST(DeadlyShardTest, TakesThreeWorkersWhereNothingElseFails) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    SimulationOptions options;
    options.seed = seed;
    options.faults = false;
    options.deadly_shard = true;
    // One more may be leased the shard before the third death is told, in mode Synchronous two.
    const int deaths = Simulate(options).deaths_by_shard;
    EXPECT_TRUE(deaths >= 3 && deaths <= 5) << "seed " << seed << ": " << deaths;
  }
}

TEST(FailingTasksTest, OneWorkerThatCanIsFoundUnderAnyFaults) {
  int failed = 0;
  const std::uint64_t seeds = Seeds(300);
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    SimulationOptions options;
    options.seed = seed;
    options.failing_tasks = FailingTasks::kEverywhereButAtOne;
    const SimulationResult result = Checked(options);
    failed += result.failed_tasks;
  }
  std::cout << seeds << " jobs, " << failed << " tasks failed\n";
  EXPECT_GT(failed, static_cast<int>(seeds));
}

TEST(FailingTasksTest, WhereNoneCanTheJobEndsAndSaysWhy) {
  const std::uint64_t seeds = Seeds(300) / 5;  // each job tries for a minute
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    SimulationOptions options;
    options.seed = seed;
    options.failing_tasks = FailingTasks::kEverywhere;
    const SimulationResult result = Checked(options);
    EXPECT_EQ(result.failure.find("the model could not be written in "), 0u)
        << "seed " << seed << ": " << result.failure;
  }
}

struct Planted {
  core::PlantedBug bug;
  const char* name;
  std::uint64_t within = 0;  // seeds: about thirteen times as many as it takes on average, so that luck does not decide
  bool search = false;       // in mode SANDBLASTER
  bool heeds = false;        // evaluations
  bool replicas = false;
  bool faults = true;
};

class PlantedBugTest : public testing::TestWithParam<Planted> {};

// The counter test can fail: each defect is caught by one of the first seeds, all of which pass without it. However few
// seeds a sanitizer goes through, all of them are looked at here, unless they are very many: the first that catches the
// defect ends it.
TEST_P(PlantedBugTest, IsCaught) {
  const std::uint64_t within = GetParam().within;
  if (within > 1000 && Seeds(within) < within) GTEST_SKIP() << "it takes more seeds than a sanitizer has time for";
  for (std::uint64_t seed = 1; seed <= within; ++seed) {
    SimulationOptions options;
    options.seed = seed;
    options.bug = GetParam().bug;
    options.search = GetParam().search;
    options.heeds = GetParam().heeds;
    options.replicas = GetParam().replicas;
    options.faults = GetParam().faults;
    const SimulationResult result = Simulate(options);
    if (result.violations.empty()) continue;
    std::cout << GetParam().name << ": first caught by seed " << seed << ": " << result.violations.front() << "\n";
    return;
  }
  FAIL() << "no seed of " << within << " notices it";
}

INSTANTIATE_TEST_SUITE_P(
    Bugs, PlantedBugTest,
    testing::Values(
        Planted{core::PlantedBug::kNoDeduplication, "NoDeduplication", 20},
        Planted{core::PlantedBug::kDeduplicationLostAtRetire, "DeduplicationLostAtRetire", 20},
        Planted{core::PlantedBug::kSessionNotChecked, "SessionNotChecked", 520},
        Planted{core::PlantedBug::kRetiredOnWorkersWord, "RetiredOnWorkersWord", 20},
        Planted{core::PlantedBug::kLatePushNotInSnapshot, "LatePushNotInSnapshot", 40},
        Planted{core::PlantedBug::kJoinerBeginsWithOldCut, "JoinerBeginsWithOldCut", 1485},
        Planted{core::PlantedBug::kGenerationIgnored, "GenerationIgnored", 111},
        Planted{core::PlantedBug::kBitmapFreedEarly, "BitmapFreedEarly", 20},
        Planted{core::PlantedBug::kManifestBeforeData, "ManifestBeforeData", 176},
        Planted{core::PlantedBug::kEndedSessionsKept, "EndedSessionsKept", 185},
        Planted{core::PlantedBug::kStalenessNotBounded, "StalenessNotBounded", 50},
        Planted{core::PlantedBug::kIdleSessionsCount, "IdleSessionsCount", 70},
        Planted{core::PlantedBug::kStepsNotAwaited, "StepsNotAwaited", 45},
        Planted{core::PlantedBug::kValueBeforeNotKept, "ValueBeforeNotKept", 180},
        Planted{core::PlantedBug::kStepSumLost, "StepSumLost", 150},
        Planted{core::PlantedBug::kModeBeforeTaken, "ModeBeforeTaken", 315},
        Planted{core::PlantedBug::kCommandRepeated, "CommandRepeated", 50, true},
        Planted{core::PlantedBug::kCommandWhileCutOpens, "CommandWhileCutOpens", 300, true},
        Planted{core::PlantedBug::kNextPointNotAwaited, "NextPointNotAwaited", 50, true},
        Planted{core::PlantedBug::kEvaluationsForgotten, "EvaluationsForgotten", 100, false, true},
        Planted{core::PlantedBug::kTableNotReplicated, "TableNotReplicated", 20, false, false, true},
        Planted{core::PlantedBug::kDuplicateBeforeStandby, "DuplicateBeforeStandby", 450, false, false, true},
        Planted{core::PlantedBug::kJoiningPromoted, "JoiningPromoted", 800, false, false, true},
        Planted{core::PlantedBug::kFrozenThawed, "FrozenThawed", 3600, false, false, true},
        Planted{core::PlantedBug::kMajoritySkipped, "MajoritySkipped", 1000, false, false, true},
        Planted{core::PlantedBug::kTwoCoordinatorsObeyed, "TwoCoordinatorsObeyed", 40, false, false, true},
        Planted{core::PlantedBug::kVerdictNotToldAgain, "VerdictNotToldAgain", 2000, false, false, true, false},
        // A session has to end in the middle of a push, which few do: one of the first 700 seeds notices it.
        Planted{core::PlantedBug::kResidualNotForgotten, "ResidualNotForgotten", 2500},
        Planted{core::PlantedBug::kResidualLeftBehind, "ResidualLeftBehind", 910}),
    [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace downpour::simulation
