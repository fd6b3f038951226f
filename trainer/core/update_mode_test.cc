#include "trainer/core/update_mode.h"

#include "gtest/gtest.h"

namespace downpour::core {
namespace {

v1::TrainingConfig Config(v1::Mode mode, std::uint32_t updates_per_step = 0) {
  v1::TrainingConfig config;
  config.set_mode(mode);
  config.set_staleness(3);
  config.set_updates_per_step(updates_per_step);
  config.set_workers(5);
  config.mutable_optimizer()->set_staleness_aware(mode != v1::SYNCHRONOUS);
  return config;
}

v1::View ViewIn(const v1::TrainingConfig& config) {
  v1::View view;
  SetMode(WantedMode(config, view), &view);
  return view;
}

TEST(UpdateModeTest, AViewIsInTheModeThatItWasSetTo) {
  for (const v1::TrainingConfig& config :
       {Config(v1::ASYNC), Config(v1::BOUNDED_STALENESS), Config(v1::SYNCHRONOUS, 2), Config(v1::SYNCHRONOUS)}) {
    const v1::View view = ViewIn(config);
    EXPECT_EQ(ModeOf(view), WantedMode(config, view)) << config.ShortDebugString();
    EXPECT_EQ(view.mode(), config.mode());
    EXPECT_EQ(view.optimizer().staleness_aware(), config.optimizer().staleness_aware());
  }
  EXPECT_EQ(ViewIn(Config(v1::BOUNDED_STALENESS)).staleness(), 3u);
  EXPECT_EQ(ViewIn(Config(v1::ASYNC)).staleness(), 0u);
  EXPECT_EQ(ViewIn(Config(v1::SYNCHRONOUS, 2)).updates_per_step(), 2u);
}

// As many as there are workers when the mode begins; to scale them changes nothing.
TEST(UpdateModeTest, UpdatesAStepThatAreNotGivenStayAsTheyAre) {
  v1::TrainingConfig config = Config(v1::SYNCHRONOUS);
  v1::View view = ViewIn(config);
  EXPECT_EQ(view.updates_per_step(), 5u);
  config.set_workers(9);
  EXPECT_EQ(WantedMode(config, view).updates_per_step, 5u);
  EXPECT_EQ(WantedMode(config, ViewIn(Config(v1::ASYNC))).updates_per_step, 9u);
  config.set_updates_per_step(7);
  EXPECT_EQ(WantedMode(config, view).updates_per_step, 7u);
}

TEST(UpdateModeTest, AWishIsTakenIntoTheConfigurationAsItIs) {
  v1::TrainingConfig config = Config(v1::ASYNC);
  config.set_warm_start(100);
  v1::WantedMode wanted;
  wanted.set_mode(v1::SYNCHRONOUS);
  wanted.set_updates_per_step(4);
  wanted.set_workers(6);
  SetWantedMode(wanted, &config);
  EXPECT_EQ(WantedMode(config, v1::View()), (UpdateMode{v1::SYNCHRONOUS, 0, 4, false}));
  EXPECT_EQ(config.warm_start(), 0u);
  EXPECT_EQ(config.workers(), 6u);
}

TEST(UpdateModeTest, OnlyModesThatShareASlicesStateFollowOneAnother) {
  const v1::Mode modes[] = {v1::ASYNC, v1::BOUNDED_STALENESS, v1::SYNCHRONOUS};
  for (const v1::Mode from : modes) {
    for (const v1::Mode to : modes) EXPECT_TRUE(CheckSwitch(from, to).ok());
    EXPECT_TRUE(absl::IsFailedPrecondition(CheckSwitch(from, v1::MODE_UNSPECIFIED)));
    EXPECT_TRUE(absl::IsFailedPrecondition(CheckSwitch(v1::MODE_UNSPECIFIED, from)));
  }
  EXPECT_TRUE(CheckSwitch(v1::MODE_UNSPECIFIED, v1::MODE_UNSPECIFIED).ok());
}

}  // namespace
}  // namespace downpour::core
