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
    Least<std::uint64_t> least;
    std::vector<std::uint64_t> values(count);
    for (std::uint32_t index = 0; index < count; ++index) least.Set(index, 0);
    for (int i = 0; i < 1000; ++i) {
      EXPECT_EQ(least.least(), *std::min_element(values.begin(), values.end()));
      const auto index = static_cast<std::uint32_t>(random() % count);
      values[index] = random() % 5;
      least.Set(index, values[index]);
      EXPECT_EQ(least.of(index), values[index]);
    }
  }
}

TEST(PsStatesTest, AllHaveWhatEachHasConfirmed) {
  PsStates states;
  states.SetPs({0, 1});
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

TEST(PsStatesTest, OnlyThoseWithAPlaceCount) {
  PsStates states;
  EXPECT_FALSE(states.all_have_view());
  states.SetPs({0, 2});
  v1::DirectReply reply;
  reply.set_members_version(5);
  reply.set_committed(true);
  states.Confirm(0, reply);
  states.Confirm(1, reply);  // was given up
  EXPECT_FALSE(states.all_have_view());
  EXPECT_FALSE(states.has_view(1));
  states.SetPs({0, 3});
  EXPECT_EQ(states.least_members_version(), 0u) << "of the one that came";
  states.SetPs({0});
  EXPECT_TRUE(states.all_have_view());
  EXPECT_EQ(states.least_members_version(), 5u);
  EXPECT_TRUE(states.committed(0));
  states.ForgetViews(/*sessions=*/false);
  EXPECT_FALSE(states.all_have_view());
  EXPECT_FALSE(states.committed(0));
  EXPECT_EQ(states.least_members_version(), 5u);
  states.ForgetViews(/*sessions=*/true);
  EXPECT_EQ(states.least_members_version(), 0u);
}

}  // namespace
}  // namespace downpour::core
