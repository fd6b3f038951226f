#include "trainer/core/ps_registry.h"

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "trainer/core/layout.h"

namespace downpour::core {
namespace {

v1::View ViewOf(std::uint64_t generation, std::uint32_t incarnation = 1) {
  v1::View view;
  view.mutable_stamp()->set_generation(generation);
  view.mutable_stamp()->set_incarnation(incarnation);
  for (std::uint32_t index = 0; index < 2; ++index) {
    v1::PsMember* member = view.add_ps();
    member->set_index(index);
    member->set_session(100 + index);
    member->set_process_incarnation(1);
    view.add_layout()->set_primary(index);
  }
  return view;
}

v1::RegisterPsRequest RequestOf(std::uint32_t index, const v1::View& view,
                                const std::vector<std::uint64_t>& sessions = {}) {
  v1::RegisterPsRequest request;
  request.mutable_self()->set_index(index);
  request.mutable_self()->set_session(100 + index);
  request.mutable_self()->set_process_incarnation(1);
  if (view.has_stamp()) *request.mutable_view() = view;
  for (const std::uint64_t session : sessions) request.add_sessions(session);
  return request;
}

DataPlan PlanOf(std::uint32_t shards) {
  v1::DataPlan plan;
  plan.set_sample_count(shards);
  plan.set_batch_size(1);
  plan.set_updates_per_shard(1);
  plan.set_epochs(5);
  return *DataPlan::Create(plan);
}

void AddLedger(v1::RegisterPsRequest& request, std::uint32_t epoch, const std::set<std::uint32_t>& retired) {
  Bitmap bitmap(4);
  for (const std::uint32_t shard : retired) bitmap.Set(shard);
  request.add_ledger()->set_dataset_epoch(epoch);
  request.mutable_ledger()->rbegin()->set_retired(bitmap.bytes());
}

TEST(PsRegistryTest, WaitsForEveryPsAndKnowsThemBySessionAndStart) {
  PsRegistry registry(2);
  EXPECT_EQ(registry.missing(), (std::vector<std::uint32_t>{0, 1}));
  v1::RegisterPsRequest request = RequestOf(1, ViewOf(1));
  request.mutable_self()->set_process_incarnation(2);
  registry.Register(request);
  EXPECT_TRUE(registry.Knows(request.self()));
  EXPECT_FALSE(registry.IsZombie(request.self()));
  EXPECT_TRUE(registry.IsZombie(RequestOf(1, {}).self()));
  EXPECT_FALSE(registry.Knows(RequestOf(0, {}).self()));
  EXPECT_EQ(registry.missing(), std::vector<std::uint32_t>{0});
  registry.Register(RequestOf(0, {}));
  EXPECT_TRUE(registry.complete());
  const v1::View view = ViewOf(1);
  EXPECT_EQ(registry.sessions(), PsSessions(view));
  for (const v1::PsMember& member : view.ps()) EXPECT_TRUE(registry.Knows(member));
  EXPECT_EQ(registry.IndicesOf(PsSessions(view)), (std::vector<std::uint32_t>{0, 1}));
}

TEST(PsRegistryTest, TheNewestViewCountsAndAZombieOfItIsDropped) {
  PsRegistry registry(2);
  registry.Register(RequestOf(0, {}));
  registry.Register(RequestOf(1, {}));
  EXPECT_EQ(registry.Newest(), nullptr);
  registry.Register(RequestOf(0, ViewOf(2, 1)));
  registry.Register(RequestOf(1, ViewOf(1, 9)));
  EXPECT_EQ(registry.Newest()->stamp().generation(), 2u);
  EXPECT_FALSE(registry.DropZombies(*registry.Newest()));
  v1::View view = ViewOf(2);
  view.mutable_ps(1)->set_session(300);
  EXPECT_FALSE(registry.Knows(view.ps(1)));
  EXPECT_EQ(registry.IndicesOf(PsSessions(view)), std::vector<std::uint32_t>{0});
  view.mutable_ps(1)->set_process_incarnation(2);
  EXPECT_TRUE(registry.DropZombies(view));
  EXPECT_EQ(registry.missing(), std::vector<std::uint32_t>{1});
}

TEST(PsRegistryTest, ASessionIsEverywhereOnlyIfEachPsHoldsTheHistoryAndTheSession) {
  PsRegistry registry(2);
  registry.Register(RequestOf(0, ViewOf(1), {7, 8}));
  registry.Register(RequestOf(1, ViewOf(1), {7, 9}));
  EXPECT_EQ(registry.SessionsOf(ViewOf(1)), (std::map<std::uint64_t, bool>{{7, true}, {8, false}, {9, false}}));
  EXPECT_EQ(registry.SessionsOf(ViewOf(2)), (std::map<std::uint64_t, bool>{{7, false}, {8, false}, {9, false}}));
}

TEST(PsRegistryTest, TheLedgerIsWhatAllOfThemHold) {
  PsRegistry registry(2);
  v1::RegisterPsRequest first = RequestOf(0, ViewOf(1));
  first.set_watermark(2);
  AddLedger(first, 2, {0, 1});
  AddLedger(first, 3, {});
  v1::RegisterPsRequest second = RequestOf(1, ViewOf(1));
  second.set_watermark(1);
  AddLedger(second, 1, {3});
  AddLedger(second, 2, {1, 2});
  registry.Register(first);
  registry.Register(second);
  const DataPlan plan = PlanOf(4);
  const Ledger ledger = registry.LedgerOf(ViewOf(1), plan);
  EXPECT_EQ(ledger.watermark, 1u);
  ASSERT_EQ(ledger.retired.size(), 3u) << "whatever may be applied in part is named";
  EXPECT_TRUE(ledger.retired.at(1).Test(3));
  EXPECT_EQ(ledger.retired.at(1).Count(), 1u);
  EXPECT_TRUE(ledger.retired.at(2).Test(1));
  EXPECT_EQ(ledger.retired.at(2).Count(), 1u);
  EXPECT_EQ(ledger.retired.at(3).Count(), 0u);

  // One without a slice has no objection, one without the history has nothing.
  v1::View alone = ViewOf(1);
  alone.mutable_layout(1)->set_primary(0);
  second.set_watermark(2);
  second.clear_ledger();
  registry.Register(second);
  EXPECT_EQ(registry.LedgerOf(alone, plan).retired.at(2).Count(), 2u);
  registry.Register(RequestOf(1, {}));
  EXPECT_EQ(registry.LedgerOf(ViewOf(1), plan).watermark, 0u);
}

TEST(PsRegistryTest, AHistoryHasBegunOnceEveryPsHoldsItAndHasLoadedItsCheckpoint) {
  PsRegistry registry(2);
  const v1::View view = ViewOf(3);
  registry.Register(RequestOf(0, view));
  registry.Register(RequestOf(1, ViewOf(2)));
  EXPECT_FALSE(registry.HasBegun(view)) << "ps-1 is still in the one before";
  v1::RegisterPsRequest loading = RequestOf(1, view);
  loading.set_restoring(true);
  loading.set_highest_cut(7);
  registry.Register(loading);
  EXPECT_FALSE(registry.HasBegun(view));
  EXPECT_EQ(registry.HighestCut(), 7u);
  registry.Register(RequestOf(1, view));
  EXPECT_TRUE(registry.HasBegun(view));
}

}  // namespace
}  // namespace downpour::core
