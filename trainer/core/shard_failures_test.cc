#include "trainer/core/shard_failures.h"

#include "gtest/gtest.h"

namespace downpour::core {
namespace {

constexpr ShardKey kShard{0, 1};
constexpr ShardKey kOther{0, 2};

v1::MemberFailure FailureOf(std::uint32_t start, bool platform = false) {
  v1::MemberFailure failure;
  failure.set_role("worker");
  failure.set_index(4);
  failure.set_process_incarnation(start);
  failure.set_platform(platform);
  failure.set_cause("killed");
  return failure;
}

TEST(ShardFailuresTest, TheThirdIsOneTooManyInWhateverOrderItIsTold) {
  ShardFailures failures;
  EXPECT_TRUE(failures.EndSession({4, 1}, {kShard, kOther}, false).guilty.empty());
  EXPECT_TRUE(failures.Report(FailureOf(1), false).guilty.empty());
  EXPECT_TRUE(failures.Report(FailureOf(1), false).guilty.empty()) << "counted once";
  EXPECT_TRUE(failures.Report(FailureOf(2), true).guilty.empty()) << "its lease has not run out yet";
  EXPECT_TRUE(failures.EndSession({4, 2}, {kShard}, false).guilty.empty());
  EXPECT_TRUE(failures.EndSession({4, 3}, {kShard, kOther}, false).guilty.empty());
  const ShardFailures::Verdict verdict = failures.Report(FailureOf(3), false);
  EXPECT_EQ(verdict.guilty, std::vector<ShardKey>{kShard});

  v1::DataPlan plan;
  plan.set_sample_count(10);
  plan.set_batch_size(2);
  plan.set_updates_per_shard(2);
  plan.set_epochs(1);
  EXPECT_EQ(Describe(verdict, *DataPlan::Create(plan)),
            "data shard 1 of epoch 1 (samples 4 to 7 in the order of that epoch) ended 3 workers that held it; the "
            "last was worker-4: killed");
}

TEST(ShardFailuresTest, WhatAProcessHeldCountsWhenItsNewestSessionEnds) {
  ShardFailures failures;
  for (std::uint32_t start = 1; start <= 3; ++start) {
    EXPECT_TRUE(failures.EndSession({4, start}, {kOther}, /*in_session=*/true).guilty.empty());
    EXPECT_TRUE(failures.Report(FailureOf(start), /*in_session=*/true).guilty.empty());
    const ShardFailures::Verdict verdict = failures.EndSession({4, start}, {kShard}, /*in_session=*/false);
    EXPECT_EQ(verdict.guilty, start < 3 ? std::vector<ShardKey>{} : std::vector<ShardKey>{kShard});
  }
}

TEST(ShardFailuresTest, NeitherThePlatformsNorThoseOfPsNorARetiredShardCount) {
  ShardFailures failures;
  v1::MemberFailure ps = FailureOf(1);
  ps.set_role("ps");
  for (std::uint32_t start = 1; start <= 9; ++start) {
    EXPECT_TRUE(failures.EndSession({4, start}, {kShard}, false).guilty.empty());
    EXPECT_TRUE(failures.Report(ps, false).guilty.empty());
    EXPECT_TRUE(failures.Report(FailureOf(start, /*platform=*/start % 3 != 0), false).guilty.empty());
    if (start == 6) failures.Retire(kShard);
  }
}

}  // namespace
}  // namespace downpour::core
