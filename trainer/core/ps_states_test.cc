#include "trainer/core/ps_states.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace downpour::core {
namespace {

TEST(LeastTest, IsTheLeastAfterEveryChange) {
  std::mt19937 random(1);
  for (const std::size_t count : {1u, 2u, 7u}) {
    Least<std::uint64_t> least(count);
    std::vector<std::uint64_t> values(count);
    for (int i = 0; i < 1000; ++i) {
      EXPECT_EQ(least.least(), *std::min_element(values.begin(), values.end()));
      const std::size_t index = random() % count;
      values[index] = random() % 5;
      least.Set(index, values[index]);
      EXPECT_EQ(least.of(index), values[index]);
    }
  }
}

TEST(PsStatesTest, AllHaveWhatEachHasConfirmed) {
  PsStates states(2);
  v1::DirectReply reply;
  reply.set_members_version(5);
  reply.set_initialised(true);
  reply.set_watermark(3);
  states.Confirm(0, reply);
  EXPECT_TRUE(states.has_view(0));
  EXPECT_FALSE(states.all_have_view());
  EXPECT_FALSE(states.all_initialised());
  EXPECT_EQ(states.least_members_version(), 0u);
  reply.set_members_version(4);
  states.Confirm(1, reply);
  EXPECT_TRUE(states.all_have_view());
  EXPECT_TRUE(states.all_initialised());
  EXPECT_EQ(states.least_members_version(), 4u);
  EXPECT_EQ(states.least_watermark(), 3u);
  states.Forget(0);
  EXPECT_FALSE(states.all_have_view());
  EXPECT_TRUE(states.initialised(1));
  states.ForgetAll();
  EXPECT_FALSE(states.initialised(1));
}

}  // namespace
}  // namespace downpour::core
