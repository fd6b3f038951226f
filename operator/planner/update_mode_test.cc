#include "operator/planner/update_mode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/planner/fake_world.h"

namespace downpour::planner {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr api::UpdateModeStatus kAsync{api::UpdateMode::kAsync, std::nullopt, std::nullopt};
constexpr api::UpdateModeStatus kOfTwo{api::UpdateMode::kSynchronous, std::nullopt, 2};
constexpr api::UpdateModeStatus kBounded{api::UpdateMode::kBoundedStaleness, 3, std::nullopt};

std::vector<Event> Told(FakeWorld& world, const api::UpdateModeStatus& mode) {
  world.now += 1;
  world.Report(CoordinatorPhase::kTraining, 50);
  world.observed.report->mode = mode;
  std::vector<Event> events = world.Step().events;
  std::erase_if(events, [](const Event& event) { return event.reason != "UpdateModeChanged"; });
  return events;
}

TEST(UpdateModeTest, AModeIsInTheStatusAndAChangeIsToldOnce) {
  FakeWorld world = FakeWorld::Training(1, 2);
  EXPECT_THAT(Told(world, kAsync), IsEmpty()) << "as it began";
  EXPECT_EQ(world.job.status.update, kAsync);
  const std::vector<Event> events = Told(world, kOfTwo);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_FALSE(events[0].warning);
  EXPECT_THAT(events[0].message, HasSubstr("Synchronous with 2 updates a step from update 50 on; before: Async"));
  EXPECT_EQ(world.job.status.update, kOfTwo);
  EXPECT_THAT(Told(world, kOfTwo), IsEmpty());
  EXPECT_THAT(Told(world, kBounded).at(0).message, HasSubstr("BoundedStaleness with at most 3 updates ahead"));
  // While it changes there is none.
  world.observed.report->mode.reset();
  EXPECT_THAT(world.Step().events, IsEmpty());
  EXPECT_EQ(world.job.status.update, kBounded);
}

TEST(UpdateModeTest, WhatIsWantedIsComparedByWhatTheModeIsMadeOf) {
  api::UpdateSpec wanted;
  api::TrainingJobStatus status;
  EXPECT_TRUE(IsInWantedMode(wanted, status)) << "it has not begun";
  status.update = kAsync;
  EXPECT_TRUE(IsInWantedMode(wanted, status));
  wanted.mode = api::UpdateMode::kSynchronous;
  EXPECT_FALSE(IsInWantedMode(wanted, status));
  status.update = kOfTwo;
  EXPECT_TRUE(IsInWantedMode(wanted, status)) << "as many as it is";
  wanted.updates_per_step = 3;
  EXPECT_FALSE(IsInWantedMode(wanted, status));
  wanted = api::UpdateSpec();
  wanted.mode = api::UpdateMode::kBoundedStaleness;
  status.update = kBounded;
  EXPECT_FALSE(IsInWantedMode(wanted, status)) << "absent: 4";
  wanted.staleness = 3;
  EXPECT_TRUE(IsInWantedMode(wanted, status));
}

}  // namespace
}  // namespace downpour::planner
