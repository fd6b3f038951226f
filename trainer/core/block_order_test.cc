#include "trainer/core/block_order.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "trainer/core/data_plan.h"

namespace downpour::core {
namespace {

std::vector<std::uint64_t> OrderOf(const BlockOrder& order, std::uint32_t epoch, std::uint64_t count) {
  std::vector<std::uint64_t> samples(count);
  for (std::uint64_t position = 0; position < count; ++position) samples[position] = order.SampleAt(epoch, position);
  return samples;
}

TEST(BlockOrder, HasEachSampleOnceAndEachWindowItsSamples) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    std::mt19937_64 random(seed);
    const std::uint64_t count = 1 + random() % 900;
    const std::uint64_t block = 1 + random() % 60;
    const std::uint64_t window = 1 + random() % 200;
    const BlockOrder order(seed, count, block, window);
    std::map<std::uint64_t, std::set<std::uint64_t>> samples_of;
    for (std::uint32_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<std::uint64_t> samples = OrderOf(order, epoch, count);
      std::map<std::uint64_t, std::set<std::uint64_t>> here;
      for (std::uint64_t position = 0; position < count; ++position) {
        here[order.WindowAt(epoch, position)].insert(samples[position]);
      }
      if (epoch == 0) samples_of = here;
      ASSERT_EQ(here, samples_of) << "seed " << seed << ", epoch " << epoch;
      std::sort(samples.begin(), samples.end());
      for (std::uint64_t sample = 0; sample < count; ++sample) {
        ASSERT_EQ(samples[sample], sample) << "seed " << seed << ", epoch " << epoch;
      }
    }
    for (const auto& [number, samples] : samples_of) {
      std::set<std::uint64_t> blocks;
      for (const std::uint64_t sample : samples) blocks.insert(sample / block);
      ASSERT_LE(blocks.size(), (window + block - 2) / block + 1) << "seed " << seed << ", window " << number;
    }
  }
}

TEST(BlockOrder, SeedAndEpochChangeIt) {
  std::set<std::vector<std::uint64_t>> orders;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    for (std::uint32_t epoch = 0; epoch < 10; ++epoch) {
      orders.insert(OrderOf(BlockOrder(seed, 1000, 20, 80), epoch, 1000));
    }
  }
  EXPECT_EQ(orders.size(), 100u);
  // A window is where it was, and a sample in its place of the window, as often as chance has it.
  const BlockOrder order(1, 1000, 20, 80);
  int windows = 0;
  int samples = 0;
  for (std::uint32_t epoch = 1; epoch <= 50; ++epoch) {
    for (std::uint64_t position = 0; position < 960; ++position) {
      windows += order.WindowAt(epoch, position) == order.WindowAt(0, position) ? 1 : 0;
      samples += order.SampleAt(epoch, position) == order.SampleAt(0, position) ? 1 : 0;
    }
  }
  EXPECT_LT(windows, 2 * 50 * 960 / 12);
  EXPECT_LT(samples, 2 * 50);
}

TEST(BlockOrder, StaysInBoundsForLargeCounts) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 2000; ++i) {
    const std::uint64_t count = 2 + random() % (std::uint64_t{1} << 48);
    const BlockOrder order(random(), count, 1 + random() % (std::uint64_t{1} << 30),
                           1 + random() % (std::uint64_t{1} << 40));
    EXPECT_LT(order.SampleAt(3, random() % count), count);
  }
}

TEST(BlockOrder, ADataShardReadsFewBlocksAndTheSameWindowInEveryEpoch) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    std::mt19937_64 random(seed);
    v1::DataPlan proto;
    proto.set_sample_count(1 + random() % 20000);
    proto.set_batch_size(static_cast<std::uint32_t>(1 + random() % 40));
    proto.set_updates_per_shard(static_cast<std::uint32_t>(1 + random() % 9));
    proto.set_epochs(3);
    proto.set_seed(seed);
    const std::uint64_t of_shard = std::uint64_t{proto.batch_size()} * proto.updates_per_shard();
    const std::uint64_t block = 1 + random() % 200;
    proto.set_shuffle_block(block);
    proto.set_shuffle_window(WindowFor(block, of_shard));
    ASSERT_EQ(proto.shuffle_window() % of_shard, 0u);
    const DataPlan plan = *DataPlan::Create(proto);
    ASSERT_TRUE(plan.has_windows());
    std::map<std::uint64_t, std::set<std::int64_t>> windows;  // their samples
    for (std::uint32_t epoch = 0; epoch < 3; ++epoch) {
      std::map<std::uint64_t, std::set<std::int64_t>> here;
      for (std::uint32_t shard = 0; shard < plan.shards_in_epoch(epoch); ++shard) {
        std::set<std::int64_t> blocks;
        for (std::uint32_t group = 0; group < plan.updates_in_shard(epoch, shard); ++group) {
          for (const std::int64_t sample : plan.SampleIndices({epoch, shard, group})) {
            ASSERT_TRUE(here[plan.WindowOf(epoch, shard)].insert(sample).second);
            blocks.insert(sample / static_cast<std::int64_t>(block));
          }
        }
        ASSERT_LE(blocks.size(), std::max<std::uint64_t>(5, of_shard / block + 2)) << "seed " << seed;
      }
      if (epoch == 0) windows = here;
      ASSERT_EQ(here, windows) << "seed " << seed << ", epoch " << epoch;
    }
  }
}

}  // namespace
}  // namespace downpour::core
