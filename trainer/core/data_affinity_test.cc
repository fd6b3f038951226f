#include "trainer/core/data_affinity.h"

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "gtest/gtest.h"

namespace downpour::core {
namespace {

constexpr std::uint32_t kNobody = DataAffinity::kNobody;

TEST(DataAffinity, FirstItsOwnThenWhatNobodyHadThenTheLast) {
  DataAffinity affinity;
  EXPECT_EQ(affinity.Choose(0, 1), std::nullopt);
  // Windows of two data shards: 10 of {0, 1}, 11 of {2, 3}, 12 of {4, 5}.
  for (std::uint32_t shard = 0; shard < 6; ++shard) affinity.AddFree(0, shard, 10 + shard / 2);
  affinity.SetHolder(11, 1);
  affinity.SetHolder(12, 2);
  EXPECT_EQ(affinity.Choose(0, 1), 2u);
  EXPECT_EQ(affinity.Choose(0, 2), 4u);
  EXPECT_EQ(affinity.Choose(0, 3), 0u) << "of a window that nobody had";
  affinity.RemoveFree(0, 2, 11);
  affinity.RemoveFree(0, 2, 11);
  EXPECT_EQ(affinity.Choose(0, 1), 3u);
  affinity.RemoveFree(0, 0, 10);
  affinity.RemoveFree(0, 1, 10);
  EXPECT_EQ(affinity.Choose(0, 3), 5u) << "of those that others come to last";
  EXPECT_EQ(affinity.Choose(0, kNobody), 5u);
  affinity.AddFree(0, 2, 11);
  EXPECT_EQ(affinity.Choose(0, 1), 2u) << "it is free again";
  affinity.SetHolder(11, kNobody);
  EXPECT_EQ(affinity.HolderOf(11), 1u);
  affinity.DropEpoch(0);
  EXPECT_EQ(affinity.Choose(0, 1), std::nullopt);
  affinity.AddFree(1, 7, 11);
  affinity.AddFree(1, 0, 10);
  EXPECT_EQ(affinity.Choose(1, 1), 7u) << "what it had is known in the next epoch";
}

// Against a model that looks at everything.
TEST(DataAffinity, ChoosesWhatALookAtEverythingChooses) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    DataAffinity affinity;
    std::map<std::uint32_t, std::set<std::uint32_t>> free;
    std::map<std::uint64_t, std::uint32_t> holders;
    const auto window_of = [](std::uint32_t epoch, std::uint32_t shard) { return (shard / 3 + epoch * 5) % 7; };
    for (int step = 0; step < 300; ++step) {
      const auto epoch = static_cast<std::uint32_t>(random() % 2);
      const auto shard = static_cast<std::uint32_t>(random() % 21);
      const auto worker = static_cast<std::uint32_t>(random() % 4);
      switch (random() % 4) {
        case 0:
          affinity.AddFree(epoch, shard, window_of(epoch, shard));
          free[epoch].insert(shard);
          break;
        case 1:
          affinity.RemoveFree(epoch, shard, window_of(epoch, shard));
          free[epoch].erase(shard);
          break;
        case 2:
          affinity.SetHolder(shard % 7, worker);
          holders[shard % 7] = worker;
          break;
        default:
          break;
      }
      std::optional<std::uint32_t> expected;
      for (const std::uint32_t holder : {worker, kNobody}) {
        for (const std::uint32_t one : free[epoch]) {
          const auto held = holders.find(window_of(epoch, one));
          if (!expected.has_value() && (held == holders.end() ? kNobody : held->second) == holder) expected = one;
        }
      }
      if (!expected.has_value() && !free[epoch].empty()) expected = *free[epoch].rbegin();
      ASSERT_EQ(affinity.Choose(epoch, worker), expected) << "seed " << seed << ", step " << step;
    }
  }
}

}  // namespace
}  // namespace downpour::core
