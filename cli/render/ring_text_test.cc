#include "cli/render/ring_text.h"

#include "gtest/gtest.h"

namespace downpour::cli {
namespace {

TEST(RingTextTest, SaysWhoIsInItAndWhatAStepIs) {
  v1::RingProgress ring;
  ring.set_members(2);
  ring.set_wanted(3);
  ring.set_updates_per_step(4);
  EXPECT_EQ(RingText(ring), "2 of 3 workers, not formed");
  ring.set_formed(true);
  EXPECT_EQ(RingText(ring), "2 of 3 workers, 4 updates a step");
  ring.set_members(1);
  ring.set_wanted(1);
  ring.set_updates_per_step(1);
  EXPECT_EQ(RingText(ring), "1 of 1 worker, 1 update a step");
  ring.set_updates_per_step(0);
  EXPECT_EQ(RingText(ring), "1 of 1 worker");
}

}  // namespace
}  // namespace downpour::cli
