#include "trainer/core/applied_table.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <utility>

#include "gtest/gtest.h"

namespace downpour::core {
namespace {

using Random = std::independent_bits_engine<std::mt19937, 32, std::uint32_t>;

DataPlan RandomPlan(Random& random) {
  v1::DataPlan plan;
  plan.set_sample_count(1 + random() % 60);
  plan.set_batch_size(1 + random() % 4);
  plan.set_updates_per_shard(1 + random() % 10);
  plan.set_epochs(1 + random() % 4);
  return *DataPlan::Create(plan);
}

// Every update of the plan, in order.
template <typename Visit>
void ForEachUpdate(const DataPlan& plan, Visit visit) {
  for (std::uint32_t epoch = 0; epoch < plan.epochs(); ++epoch) {
    for (std::uint32_t shard = 0; shard < plan.shards_in_epoch(epoch); ++shard) {
      for (std::uint32_t group = 0; group < plan.updates_in_shard(epoch, shard); ++group) {
        visit(UpdateId{epoch, shard, group});
      }
    }
  }
}

void ExpectSame(const DataPlan& plan, const AppliedTable& table, const std::set<UpdateId>& model) {
  ForEachUpdate(plan, [&](const UpdateId& update) {
    ASSERT_EQ(table.Contains(update), model.count(update) != 0)
        << update.dataset_epoch << "/" << update.data_shard << "/" << update.group;
  });
  for (std::uint32_t epoch = 0; epoch < plan.epochs(); ++epoch) {
    const Bitmap retired = table.Retired(epoch);
    for (std::uint32_t shard = 0; shard < plan.shards_in_epoch(epoch); ++shard) {
      ASSERT_EQ(retired.Test(shard), table.IsRetired(epoch, shard));
      const Bitmap applied = table.Applied(epoch, shard);
      for (std::uint32_t group = 0; group < applied.size(); ++group) {
        ASSERT_EQ(applied.Test(group), model.count({epoch, shard, group}) != 0);
      }
    }
  }
}

TEST(AppliedTable, AgreesWithASetUnderAnyOperations) {
  for (std::uint32_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const DataPlan plan = RandomPlan(random);
    AppliedTable table(plan);
    std::set<UpdateId> model;
    std::set<std::pair<std::uint32_t, std::uint32_t>> retired;
    std::uint32_t watermark = 0;
    // Mostly of few epochs, so that shards fill up.
    for (int operation = 0; operation < 400; ++operation) {
      const std::uint32_t epoch = random() % plan.epochs();
      const std::uint32_t shard = random() % plan.shards_in_epoch(epoch);
      const std::uint32_t count = plan.updates_in_shard(epoch, shard);
      const std::uint32_t choice = random() % 10;
      if (choice < 7) {
        const UpdateId update{epoch, shard, random() % count};
        table.Insert(update);
        model.insert(update);
      } else if (choice < 9) {
        bool complete = true;
        for (std::uint32_t group = 0; group < count; ++group) {
          complete = complete && model.count({epoch, shard, group}) != 0;
        }
        ASSERT_EQ(table.Retire(epoch, shard), complete);
        if (complete) retired.insert({epoch, shard});
        ASSERT_EQ(table.IsRetired(epoch, shard), complete);
      } else {
        const std::uint32_t target = random() % (plan.epochs() + 2);
        table.Advance(target);
        while (watermark < std::min(target, plan.epochs())) {
          bool complete = true;
          for (std::uint32_t i = 0; i < plan.shards_in_epoch(epoch); ++i) {
            complete = complete && retired.count({watermark, i}) != 0;
          }
          if (!complete) break;
          ++watermark;
        }
        ASSERT_EQ(table.watermark(), watermark);
      }
    }
    ExpectSame(plan, table, model);
  }
}

TEST(AppliedTable, RetiringEverythingLosesNothingAndLeavesOnlyTheWatermark) {
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    Random random(seed);
    const DataPlan plan = RandomPlan(random);
    AppliedTable table(plan);
    std::set<UpdateId> model;
    ForEachUpdate(plan, [&](const UpdateId& update) {
      table.Insert(update);
      model.insert(update);
    });
    EXPECT_EQ(table.end_epoch(), plan.epochs());
    for (std::uint32_t epoch = 0; epoch < plan.epochs(); ++epoch) {
      table.Advance(plan.epochs());
      EXPECT_EQ(table.watermark(), epoch) << "not beyond an epoch with an open data shard";
      for (std::uint32_t shard = 0; shard < plan.shards_in_epoch(epoch); ++shard) {
        EXPECT_TRUE(table.Retire(epoch, shard));
        EXPECT_TRUE(table.Retire(epoch, shard)) << "again";
      }
      EXPECT_TRUE(table.Retired(epoch).All());
      ExpectSame(plan, table, model);
      table.Advance(epoch + 1);
      EXPECT_EQ(table.watermark(), epoch + 1);
    }
    ExpectSame(plan, table, model);
    v1::SliceLedger ledger;
    table.Export(&ledger);
    EXPECT_EQ(ledger.watermark(), plan.epochs());
    EXPECT_EQ(ledger.epochs_size(), 0);
    EXPECT_EQ(table.end_epoch(), plan.epochs());
  }
}

TEST(AppliedTable, ExportTellsTheSameAsTheTable) {
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    Random random(seed);
    const DataPlan plan = RandomPlan(random);
    AppliedTable table(plan);
    ForEachUpdate(plan, [&](const UpdateId& update) {
      if (random() % 8 != 0) table.Insert(update);
    });
    for (std::uint32_t epoch = 0; epoch < plan.epochs(); ++epoch) {
      for (std::uint32_t shard = 0; shard < plan.shards_in_epoch(epoch); shard += 2) table.Retire(epoch, shard);
    }
    table.Advance(plan.epochs());
    v1::SliceLedger ledger;
    table.Export(&ledger);
    std::set<UpdateId> exported;
    for (const v1::EpochTable& epoch : ledger.epochs()) {
      const Bitmap retired = Bitmap::FromBytes(plan.shards_in_epoch(epoch.dataset_epoch()), epoch.retired());
      for (std::uint32_t shard = 0; shard < retired.size(); ++shard) {
        for (std::uint32_t group = 0;
             retired.Test(shard) && group < plan.updates_in_shard(epoch.dataset_epoch(), shard); ++group) {
          exported.insert({epoch.dataset_epoch(), shard, group});
        }
      }
      for (const v1::ShardTable& open : epoch.open()) {
        const Bitmap applied =
            Bitmap::FromBytes(plan.updates_in_shard(epoch.dataset_epoch(), open.shard()), open.applied());
        for (std::uint32_t group = 0; group < applied.size(); ++group) {
          if (applied.Test(group)) exported.insert({epoch.dataset_epoch(), open.shard(), group});
        }
      }
    }
    ForEachUpdate(plan, [&](const UpdateId& update) {
      const bool told = update.dataset_epoch < ledger.watermark() || exported.count(update) != 0;
      ASSERT_EQ(told, table.Contains(update));
    });
  }
}

}  // namespace
}  // namespace downpour::core
