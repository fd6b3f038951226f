#include "operator/controller/goodput.h"

#include <cstdint>
#include <iterator>
#include <random>
#include <string>

#include "gtest/gtest.h"
#include "operator/planner/conditions.h"

namespace downpour::controller {
namespace {

api::TrainingJobStatus Status(const std::string& phase, std::uint64_t step = 0) {
  api::TrainingJobStatus status;
  status.phase = phase;
  if (step > 0) status.progress.emplace().step = step;
  return status;
}

TEST(GoodputTest, NothingIsKnownBeforeTimeHasPassed) {
  Goodput goodput;
  EXPECT_FALSE(goodput.ratio().has_value());
  goodput.Look(Status("Running"), 1000);
  EXPECT_FALSE(goodput.ratio().has_value());
}

TEST(GoodputTest, StartingAndRecoveringAreNoUse) {
  Goodput goodput;
  goodput.Look(Status("Pending"), 1000);
  goodput.Look(Status("Starting"), 1010);
  EXPECT_EQ(goodput.ratio(), 0);
  goodput.Look(Status("Running", 5), 1020);
  EXPECT_EQ(goodput.ratio(), 0.5);
  goodput.Look(Status("Recovering", 5), 1040);
  EXPECT_EQ(goodput.ratio(), 0.25);
}

TEST(GoodputTest, WhatIsLostDoesNotCount) {
  Goodput goodput;
  goodput.Look(Status("Running", 0), 1000);
  goodput.Look(Status("Running", 100), 1100);
  EXPECT_EQ(goodput.ratio(), 1);
  goodput.Look(Status("Running", 25), 1100);
  EXPECT_EQ(goodput.ratio(), 0.25) << "three quarters of the updates were lost";
}

TEST(GoodputTest, AJobThatIsSuspendedOrOverStandsStill) {
  Goodput goodput;
  goodput.Look(Status("Starting"), 1000);
  goodput.Look(Status("Running", 1), 1001);
  goodput.Look(Status("Starting", 1), 1002);
  ASSERT_EQ(goodput.ratio(), 0.5);
  goodput.Look(Status("Suspended", 1), 2000);
  EXPECT_EQ(goodput.ratio(), 0.5);
  for (const char* type : {planner::kSuccessCriteriaMet, planner::kFailureTarget}) {
    api::TrainingJobStatus over = Status("Finishing", 1);
    over.conditions.push_back({type, true, "", "", 0, 1});
    goodput.Look(over, 3000);
    EXPECT_EQ(goodput.ratio(), 0.5) << type;
  }
}

TEST(GoodputTest, IsAlwaysARatio) {
  const char* phases[] = {"Pending", "Starting", "Running", "Recovering", "Suspended", "Finishing", "Failed"};
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    Goodput goodput;
    double now = 1000;
    for (int i = 0; i < 100; ++i) {
      now += static_cast<double>(random() % 100) - 5;  // a wall clock may go back
      goodput.Look(Status(phases[random() % std::size(phases)], random() % 50), now);
      if (goodput.ratio().has_value()) {
        ASSERT_GE(*goodput.ratio(), 0) << "seed " << seed;
        ASSERT_LE(*goodput.ratio(), 1) << "seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace downpour::controller
