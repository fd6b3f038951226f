#include "trainer/core/data_plan.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace downpour::core {
namespace {

v1::DataPlan MakeProto(std::uint64_t samples, std::uint32_t batch, std::uint32_t updates_per_shard,
                       std::uint32_t epochs, std::uint64_t seed) {
  v1::DataPlan plan;
  plan.set_sample_count(samples);
  plan.set_batch_size(batch);
  plan.set_updates_per_shard(updates_per_shard);
  plan.set_epochs(epochs);
  plan.set_seed(seed);
  return plan;
}

TEST(PermutedIndex, IsABijectionForEverySeedEpochAndCount) {
  std::mt19937_64 random(1);
  std::vector<std::uint64_t> counts = {1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 255, 256, 257, 1024, 4097};
  for (int i = 0; i < 200; ++i) counts.push_back(1 + random() % 700);
  for (const std::uint64_t count : counts) {
    const std::uint64_t seed = random();
    const auto epoch = static_cast<std::uint32_t>(random() % 5);
    std::vector<bool> seen(count, false);
    for (std::uint64_t position = 0; position < count; ++position) {
      const std::uint64_t index = PermutedIndex(seed, epoch, count, position);
      ASSERT_LT(index, count);
      ASSERT_FALSE(seen[index]) << index << " twice of " << count << ", seed " << seed;
      seen[index] = true;
    }
  }
}

TEST(PermutedIndex, StaysInBoundsForLargeCounts) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 2000; ++i) {
    const std::uint64_t count = 2 + random() % (std::uint64_t{1} << 48);
    EXPECT_LT(PermutedIndex(random(), 3, count, random() % count), count);
  }
}

TEST(PermutedIndex, SeedAndEpochChangeTheOrder) {
  constexpr std::uint64_t kCount = 1000;
  const auto order = [](std::uint64_t seed, std::uint32_t epoch) {
    std::vector<std::uint64_t> result(kCount);
    for (std::uint64_t i = 0; i < kCount; ++i) result[i] = PermutedIndex(seed, epoch, kCount, i);
    return result;
  };
  std::set<std::vector<std::uint64_t>> orders;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    for (std::uint32_t epoch = 0; epoch < 10; ++epoch) orders.insert(order(seed, epoch));
  }
  EXPECT_EQ(orders.size(), 100u);
  // A shuffled order keeps about one element in its place.
  const std::vector<std::uint64_t> shuffled = order(1, 0);
  int fixed = 0;
  for (std::uint64_t i = 0; i < kCount; ++i) fixed += shuffled[i] == i ? 1 : 0;
  EXPECT_LT(fixed, 10);
}

TEST(DataPlan, UpdatesPartitionEveryEpochExactly) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 300; ++round) {
    const std::uint64_t samples = 1 + random() % 500;
    const auto batch = static_cast<std::uint32_t>(1 + random() % 40);
    const auto updates_per_shard = static_cast<std::uint32_t>(1 + random() % 9);
    const absl::StatusOr<DataPlan> created =
        DataPlan::Create(MakeProto(samples, batch, updates_per_shard, 2, random()));
    ASSERT_TRUE(created.ok()) << created.status();
    const DataPlan& plan = *created;
    for (std::uint32_t epoch = 0; epoch < 2; ++epoch) {
      std::vector<int> used(samples, 0);
      std::uint64_t updates = 0;
      std::uint64_t position = 0;
      std::set<std::uint64_t> seeds;
      for (std::uint32_t shard = 0; shard < plan.shards_in_epoch(0); ++shard) {
        const bool last_shard = shard + 1 == plan.shards_in_epoch(0);
        const std::uint32_t groups = plan.updates_in_shard(epoch, shard);
        ASSERT_GE(groups, 1u);
        if (last_shard) {
          ASSERT_LE(groups, updates_per_shard);
        } else {
          ASSERT_EQ(groups, updates_per_shard);
        }
        for (std::uint32_t group = 0; group < groups; ++group) {
          const UpdateId update{epoch, shard, group};
          const bool last = last_shard && group + 1 == groups;
          ASSERT_TRUE(plan.Contains(update));
          ASSERT_EQ(plan.first_position(update), position);
          const std::vector<std::int64_t> indices = plan.SampleIndices(update);
          ASSERT_EQ(indices.size(), plan.samples_in_update(update));
          ASSERT_EQ(indices.size(), last ? samples - position : batch);
          for (const std::int64_t index : indices) ++used.at(static_cast<std::size_t>(index));
          seeds.insert(plan.UpdateSeed(update));
          const std::uint32_t size = 1 + static_cast<std::uint32_t>(position) % 4;
          std::vector<std::int64_t> joined;
          for (std::uint32_t part = 0; part < plan.minibatches_in_update(update, size); ++part) {
            const std::vector<std::int64_t> minibatch = plan.SampleIndices(update, part, size);
            ASSERT_EQ(minibatch.size(), std::min<std::size_t>(size, indices.size() - joined.size()));
            joined.insert(joined.end(), minibatch.begin(), minibatch.end());
          }
          ASSERT_EQ(joined, indices);
          ASSERT_NE(plan.UpdateSeed(update, 1), plan.UpdateSeed(update));
          ASSERT_NE(plan.UpdateSeed(update, 1), plan.UpdateSeed(update, 2));
          position += indices.size();
          ++updates;
        }
        EXPECT_FALSE(plan.Contains({epoch, shard, groups}));
      }
      EXPECT_EQ(updates, plan.updates_in_epoch(epoch));
      EXPECT_EQ(seeds.size(), updates);
      EXPECT_TRUE(std::all_of(used.begin(), used.end(), [](int count) { return count == 1; }));
      EXPECT_EQ(plan.updates_in_shard(epoch, plan.shards_in_epoch(0)), 0u);
      EXPECT_FALSE(plan.Contains({epoch, plan.shards_in_epoch(0), 0}));
    }
    EXPECT_FALSE(plan.Contains({2, 0, 0}));
  }
}

// All updates in the plan's order.
std::vector<UpdateId> UpdatesOf(const DataPlan& plan) {
  std::vector<UpdateId> updates;
  for (std::uint32_t epoch = 0; epoch < plan.epochs(); ++epoch) {
    EXPECT_EQ(plan.updates_before(epoch), updates.size());
    for (std::uint32_t shard = 0; shard < plan.shards_in_epoch(epoch); ++shard) {
      EXPECT_EQ(plan.updates_before(epoch, shard), updates.size());
      EXPECT_GE(plan.updates_in_shard(epoch, shard), 1u);
      for (std::uint32_t group = 0; group < plan.updates_in_shard(epoch, shard); ++group) {
        updates.push_back({epoch, shard, group});
        EXPECT_TRUE(plan.Contains(updates.back()));
      }
      EXPECT_FALSE(plan.Contains({epoch, shard, plan.updates_in_shard(epoch, shard)}));
    }
    EXPECT_EQ(plan.updates_before(epoch + 1), updates.size());
    EXPECT_FALSE(plan.Contains({epoch, plan.shards_in_epoch(epoch), 0}));
  }
  EXPECT_FALSE(plan.Contains({plan.epochs(), 0, 0}));
  EXPECT_EQ(plan.updates(), updates.size());
  return updates;
}

TEST(DataPlan, StepsAreTheFirstUpdatesOfThePlan) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 300; ++round) {
    v1::DataPlan proto = MakeProto(1 + random() % 200, static_cast<std::uint32_t>(1 + random() % 20),
                                   static_cast<std::uint32_t>(1 + random() % 9), 6, random());
    DataPlan whole = *DataPlan::Create(proto);
    if (random() % 2 == 0) {
      const auto epoch = static_cast<std::uint32_t>(random() % 4);
      whole = *whole.WithBatchSize(epoch, static_cast<std::uint32_t>(random() % whole.shards_in_epoch(epoch)),
                                   static_cast<std::uint32_t>(1 + random() % 20));
    }
    const std::vector<UpdateId> all = UpdatesOf(whole);
    v1::TrainingConfig config;
    config.set_steps(1 + random() % all.size());
    const absl::StatusOr<DataPlan> plan = DataPlan::CreateEnding(whole.proto(), config);
    ASSERT_TRUE(plan.ok()) << plan.status();
    ASSERT_EQ(plan->updates(), config.steps());
    const std::vector<UpdateId> updates = UpdatesOf(*plan);
    ASSERT_EQ(updates, std::vector<UpdateId>(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(config.steps())));
    std::uint64_t samples = 0;
    for (const UpdateId& update : updates) {
      ASSERT_EQ(plan->SampleIndices(update), whole.SampleIndices(update));
      samples += plan->samples_in_update(update);
    }
    EXPECT_EQ(samples, plan->samples_before(plan->epochs()));
    v1::DataPlan wrong = plan->proto();
    wrong.set_epochs(wrong.epochs() + 1);
    EXPECT_TRUE(absl::IsInvalidArgument(DataPlan::Create(wrong).status()));
  }
}

TEST(DataPlan, ResumedWithOtherStepsLeavesWhatWasBegunAsItWas) {
  std::mt19937_64 random(12);
  int went_on = 0;
  for (int round = 0; round < 500; ++round) {
    v1::TrainingConfig config;
    config.set_steps(1 + random() % 60);
    const absl::StatusOr<DataPlan> first =
        DataPlan::CreateEnding(MakeProto(1 + random() % 200, static_cast<std::uint32_t>(1 + random() % 20),
                                         static_cast<std::uint32_t>(1 + random() % 9), 1, random()),
                               config);
    ASSERT_TRUE(first.ok()) << first.status();
    // Any data shards were begun, the last ones often.
    std::uint32_t epoch = first->epochs();
    std::uint32_t shard = 0;
    if (random() % 2 == 0) {
      epoch = static_cast<std::uint32_t>(random() % first->epochs());
      shard = static_cast<std::uint32_t>(random() % (first->shards_in_epoch(epoch) + 1));
    }
    const bool whole = shard == first->shards_in_epoch(epoch);
    const std::uint64_t done = whole ? first->updates_before(epoch + 1) : first->updates_before(epoch, shard);
    config.set_batch_size(static_cast<std::uint32_t>(1 + random() % 20));
    config.set_steps(1 + random() % 90);
    const absl::StatusOr<DataPlan> plan = first->Resumed(epoch, shard, config);
    if (config.steps() < done) {
      EXPECT_TRUE(absl::IsFailedPrecondition(plan.status())) << plan.status();
      continue;
    }
    ASSERT_TRUE(plan.ok()) << plan.status() << " of " << first->proto().ShortDebugString();
    ++went_on;
    const std::vector<UpdateId> before = UpdatesOf(*first);
    const std::vector<UpdateId> after = UpdatesOf(*plan);
    ASSERT_EQ(after.size(), config.steps());
    for (std::uint64_t i = 0; i < done; ++i) {
      ASSERT_EQ(after[i], before[i]);
      ASSERT_EQ(plan->SampleIndices(after[i]), first->SampleIndices(before[i]));
      ASSERT_EQ(plan->updates_in_shard(after[i].dataset_epoch, after[i].data_shard),
                first->updates_in_shard(before[i].dataset_epoch, before[i].data_shard));
    }
    // And once more, by epochs.
    v1::TrainingConfig by_epochs = config;
    by_epochs.clear_steps();
    by_epochs.set_epochs(plan->epochs() + 2);
    const absl::StatusOr<DataPlan> longer = plan->Resumed(plan->epochs(), 0, by_epochs);
    ASSERT_TRUE(longer.ok()) << longer.status();
    const std::vector<UpdateId> at_last = UpdatesOf(*longer);
    ASSERT_EQ(std::vector<UpdateId>(at_last.begin(), at_last.begin() + static_cast<std::ptrdiff_t>(after.size())),
              after);
    EXPECT_EQ(longer->samples_in_epoch(plan->epochs()), plan->proto().sample_count());
  }
  EXPECT_GE(went_on, 100);
}

TEST(DataPlan, ABatchSizeThatChangesLeavesWhatCameBeforeAsItWas) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 300; ++round) {
    const std::uint64_t samples = 1 + random() % 500;
    const auto updates_per_shard = static_cast<std::uint32_t>(1 + random() % 9);
    DataPlan plan = *DataPlan::Create(
        MakeProto(samples, static_cast<std::uint32_t>(1 + random() % 40), updates_per_shard, 6, random()));
    std::uint32_t epoch = 0, shard = 0;
    for (std::uint64_t changes = random() % 5; changes > 0; --changes) {
      epoch = std::min<std::uint32_t>(5, epoch + static_cast<std::uint32_t>(random() % 3));
      shard = static_cast<std::uint32_t>(random() % plan.shards_in_epoch(epoch));
      const auto batch = static_cast<std::uint32_t>(1 + random() % 40);
      const DataPlan before = plan;
      const absl::StatusOr<DataPlan> changed = plan.WithBatchSize(epoch, shard, batch);
      ASSERT_TRUE(changed.ok()) << changed.status();
      plan = *changed;
      EXPECT_EQ(plan.batch_size(), batch);
      EXPECT_EQ(plan.updates_in_shard(epoch, shard),
                std::min<std::uint64_t>(updates_per_shard,
                                        (samples - plan.first_position({epoch, shard, 0}) + batch - 1) / batch));
      for (std::uint32_t earlier = 0; earlier <= epoch; ++earlier) {
        const std::uint32_t end = earlier == epoch ? shard : before.shards_in_epoch(earlier);
        for (std::uint32_t s = 0; s < end; ++s) {
          ASSERT_EQ(plan.updates_in_shard(earlier, s), before.updates_in_shard(earlier, s));
          ASSERT_EQ(plan.SampleIndices({earlier, s, 0}), before.SampleIndices({earlier, s, 0}));
        }
      }
    }
    std::uint64_t total = 0;
    for (std::uint32_t e = 0; e < 6; ++e) {
      EXPECT_EQ(plan.updates_before(e), total);
      std::vector<int> used(samples, 0);
      std::uint64_t updates = 0;
      for (std::uint32_t s = 0; s < plan.shards_in_epoch(e); ++s) {
        ASSERT_GE(plan.updates_in_shard(e, s), 1u);
        for (std::uint32_t group = 0; group < plan.updates_in_shard(e, s); ++group, ++updates) {
          for (const std::int64_t index : plan.SampleIndices({e, s, group})) ++used.at(static_cast<std::size_t>(index));
        }
      }
      EXPECT_TRUE(std::all_of(used.begin(), used.end(), [](int count) { return count == 1; }));
      EXPECT_EQ(plan.updates_in_shard(e, plan.shards_in_epoch(e)), 0u);
      EXPECT_EQ(plan.updates_in_epoch(e), updates);
      total += updates;
    }
    EXPECT_EQ(plan.updates(), total);
    const DataPlan again = *DataPlan::Create(plan.proto());
    EXPECT_EQ(again.updates(), total);
  }
}

TEST(DataPlan, RefusesWhatDoesNotFit) {
  const v1::DataPlan refused[] = {
      MakeProto(0, 1, 1, 1, 0),
      MakeProto(1, 0, 1, 1, 0),
      MakeProto(1, 1, 0, 1, 0),
      MakeProto(1, 1, 1, 0, 0),
      MakeProto((std::uint64_t{1} << 48) + 1, 1, 1 << 20, 1, 0),
      MakeProto(10, 1, (1 << 20) + 1, 1, 0),
      MakeProto(std::uint64_t{1} << 40, 1, 1, 1, 0),  // too many data shards
  };
  for (const v1::DataPlan& plan : refused) {
    EXPECT_EQ(DataPlan::Create(plan).status().code(), absl::StatusCode::kInvalidArgument) << plan.ShortDebugString();
  }
  EXPECT_TRUE(DataPlan::Create(MakeProto(std::uint64_t{1} << 48, 1 << 20, 1 << 20, 1, 0)).ok());
  const auto with_change = [](std::uint32_t epoch, std::uint32_t shard, std::uint32_t batch) {
    v1::DataPlan plan = MakeProto(100, 5, 4, 3, 0);
    for (int i = 0; i < 2; ++i) {
      v1::BatchChange* change = plan.add_changes();
      change->set_dataset_epoch(i == 0 ? 1 : epoch);
      change->set_shard(i == 0 ? 2 : shard);
      change->set_batch_size(i == 0 ? 10 : batch);
    }
    return DataPlan::Create(plan).status().code();
  };
  EXPECT_EQ(with_change(1, 3, 7), absl::StatusCode::kOk);
  EXPECT_EQ(with_change(1, 4, 7), absl::StatusCode::kInvalidArgument) << "no such data shard";
  EXPECT_EQ(with_change(1, 3, 0), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(with_change(1, 2, 7), absl::StatusCode::kInvalidArgument) << "not in order";
  EXPECT_EQ(with_change(0, 1, 7), absl::StatusCode::kInvalidArgument) << "not in order";
  EXPECT_FALSE(DataPlan::Create(MakeProto(100, 5, 4, 3, 0))->WithBatchSize(0, 99, 6).ok());
}

TEST(DefaultUpdatesPerShard, IsBetween1And32AndGivesAbout64Shards) {
  std::mt19937_64 random(4);
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t samples = 1 + random() % 1000000;
    const auto batch = static_cast<std::uint32_t>(1 + random() % 1000);
    const std::uint32_t updates = DefaultUpdatesPerShard(samples, batch);
    ASSERT_GE(updates, 1u);
    ASSERT_LE(updates, 32u);
    const DataPlan plan = *DataPlan::Create(MakeProto(samples, batch, updates, 1, 0));
    if (updates < 32) {
      EXPECT_LE(plan.shards_in_epoch(0), 64u);
    }
  }
}

}  // namespace
}  // namespace downpour::core
