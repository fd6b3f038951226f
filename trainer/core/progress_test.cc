#include "trainer/core/progress.h"

#include <cstdint>

#include "gtest/gtest.h"

namespace downpour::core {
namespace {

TEST(AwaitedTest, NamesThePsThatAreMissing) {
  PsRegistry registry(3);
  const Membership members(absl::Seconds(3));
  const Tasks tasks;
  v1::RegisterPsRequest request;
  request.mutable_self()->set_index(1);
  registry.Register(request);
  JobCheckpoints checkpoints(v1::TrainingConfig(), 1);
  EXPECT_EQ(Awaited(Phase::kSeeking, registry, members, tasks, checkpoints), "looking for a checkpoint");
  EXPECT_EQ(Awaited(Phase::kGathering, registry, members, tasks, checkpoints), "waiting for ps-0, ps-2 to register");
  EXPECT_EQ(Awaited(Phase::kTraining, registry, members, tasks, checkpoints), "waiting for a worker");
  EXPECT_EQ(Awaited(Phase::kDone, registry, members, tasks, checkpoints), "");
}

TEST(ReportPsTest, NamesThoseThatCameAndWhoIsSilent) {
  constexpr absl::Duration kPatience = absl::Seconds(3);
  PsRegistry registry(3);
  PsStates states;
  states.SetPs({0, 1, 2});
  DirectCalls calls(absl::Milliseconds(5), absl::Milliseconds(500));
  for (const std::uint32_t index : {1u, 2u}) {
    v1::RegisterPsRequest request;
    request.mutable_self()->set_index(index);
    registry.Register(request);
    calls.Hear(index, true, absl::Seconds(index));
  }
  v1::ProgressReply progress;
  ReportPs(registry, states, calls, kPatience, absl::Seconds(5), &progress);
  EXPECT_EQ(progress.ps_expected(), 3u);
  ASSERT_EQ(progress.members_size(), 2);
  EXPECT_EQ(progress.members(0).index(), 1u);
  EXPECT_EQ(progress.members(0).state(), "silent");
  EXPECT_EQ(progress.members(0).silent_milliseconds(), 4000u);
  EXPECT_EQ(progress.members(1).state(), "starting");
}

TEST(ReportUpdatesTest, CountsWhatThePsHaveBeforeItIsRetiredAndNeverMoreThanThereIs) {
  v1::DataPlan plan;
  plan.set_sample_count(10);
  plan.set_batch_size(4);
  plan.set_updates_per_shard(1);
  plan.set_epochs(2);
  const DataLeases leases(*DataPlan::Create(plan), {0}, Ledger{.watermark = 1});
  PsStates states;
  states.SetPs({0});
  v1::PsStats stats;
  stats.set_slices(2);
  stats.set_skipped(1);
  for (const std::uint64_t applied : {2u, 8u, 100u}) {
    stats.set_applied(applied);
    states.SetStats(0, stats);
    v1::ProgressReply progress;
    ReportUpdates(leases, states, /*done=*/applied == 100, &progress);
    EXPECT_EQ(progress.updates_expected(), 6u);
    EXPECT_EQ(progress.updates_applied(), applied == 2 ? 3u : applied == 8 ? 4u : 6u);
    EXPECT_EQ(progress.samples_done(), applied == 2 ? 10u : applied == 8 ? 14u : 20u);
    EXPECT_EQ(progress.warnings_size(), applied == 100 ? 1 : 0);
  }
}

TEST(ReportUpdatesTest, TellsOfBackupExecutions) {
  v1::DataPlan plan;
  plan.set_sample_count(8);
  plan.set_batch_size(1);
  plan.set_updates_per_shard(4);
  plan.set_epochs(1);
  DataLeases leases(*DataPlan::Create(plan), {0}, Ledger{});
  LeaseNumbers numbers(1);
  const auto grant = [&](std::uint64_t session, bool starves) {
    v1::WorkerSyncReply reply;
    leases.GrantInBands(session, /*width=*/2, /*share=*/1, starves, numbers, &reply);
    return reply;
  };
  const v1::WorkerSyncReply first = grant(1, false);
  grant(2, false);
  ASSERT_EQ(first.leases_size(), 1);
  v1::HeldLease held;
  held.set_lease(first.leases(0).lease());
  *held.mutable_shard() = first.leases(0).shard();
  held.set_next(2);
  leases.Report(held, 1);
  grant(3, true);
  v1::ProgressReply progress;
  ReportUpdates(leases, PsStates(), /*done=*/false, &progress);
  EXPECT_EQ(progress.backup_executions(), 1u);
}

}  // namespace
}  // namespace downpour::core
