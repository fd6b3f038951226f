#include "trainer/core/held_leases.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "trainer/core/bitmap.h"

namespace downpour::core {
namespace {

using Update = HeldLeases::Update;
using Updates = std::vector<UpdateId>;

constexpr std::uint32_t kGroups = 4;  // of a data shard
const HeldLeases::Steps kNoSteps;
// In bands of two data shards.
HeldLeases::Steps From(std::uint32_t band, std::uint32_t group) { return {2, {0, band, group}}; }

class HeldLeasesTest : public ::testing::Test {
 protected:
  HeldLeasesTest() {
    v1::DataPlan plan;
    plan.set_sample_count(8 * kGroups);
    plan.set_batch_size(1);
    plan.set_updates_per_shard(kGroups);
    plan.set_epochs(1);
    leases_.Begin(*DataPlan::Create(plan));
  }
  // On the data shard, of which groups are done already.
  static v1::Lease Train(std::uint64_t lease, std::uint32_t shard, const std::vector<std::uint32_t>& done = {}) {
    v1::Lease train;
    train.set_lease(lease);
    train.set_kind(v1::TASK_TRAIN);
    train.mutable_shard()->set_shard(shard);
    Bitmap bitmap(kGroups);
    for (const std::uint32_t group : done) bitmap.Set(group);
    train.set_done(bitmap.bytes());
    return train;
  }
  static v1::Lease Task(std::uint64_t lease) {
    v1::Lease task;
    task.set_lease(lease);
    task.set_kind(v1::TASK_EVALUATE);
    return task;
  }
  bool Hold(const std::vector<v1::Lease>& leases) {
    v1::WorkerSyncReply reply;
    for (const v1::Lease& lease : leases) *reply.add_leases() = lease;
    return leases_.Reconcile(reply);
  }
  std::optional<Update> Next(const HeldLeases::Steps& steps = kNoSteps) {
    all_sent_ = false;
    return leases_.NextUpdate(steps, &all_sent_);
  }
  v1::HeldLease Said(int lease = 0) const {
    v1::WorkerSyncRequest request;
    leases_.Describe(&request);
    return request.held(lease);
  }

  HeldLeases leases_;
  bool all_sent_ = false;
};

TEST_F(HeldLeasesTest, NothingIsDoneWithoutALease) {
  EXPECT_FALSE(Hold({}));
  EXPECT_FALSE(Next().has_value());
  EXPECT_EQ(leases_.NextTask(), nullptr);
  EXPECT_TRUE(leases_.UpdatesAfter(std::nullopt, kNoSteps, 9).empty());
  EXPECT_FALSE(leases_.IsNext({1, {0, 0, 0}}, kNoSteps));
  EXPECT_FALSE(leases_.OnSent({1, {0, 0, 0}}, kNoSteps));
  leases_.OnDone({1, {0, 0, 0}});
  leases_.OnTaskDone(1, {});
  EXPECT_EQ(leases_.size(), 0u);
  EXPECT_TRUE(HeldLeases().UpdatesAfter(std::nullopt, kNoSteps, 9).empty()) << "no history has begun";
}

TEST_F(HeldLeasesTest, UpdatesComeInOrderWithoutThoseThatAreDone) {
  Hold({Train(1, 0, {1}), Train(2, 3)});
  EXPECT_EQ(Next(), (Update{1, {0, 0, 0}}));
  EXPECT_EQ(Next(), (Update{1, {0, 0, 0}})) << "until it is done";
  leases_.OnDone({1, {0, 0, 0}});
  EXPECT_EQ(Next(), (Update{1, {0, 0, 2}}));
  EXPECT_EQ(Said().next(), 2u);
  leases_.OnDone({1, {0, 0, 2}});
  leases_.OnDone({1, {0, 0, 3}});
  EXPECT_EQ(Next(), (Update{2, {0, 3, 0}}));
  EXPECT_TRUE(all_sent_);
  EXPECT_TRUE(Said(0).all_sent());
  EXPECT_FALSE(Said(1).all_sent());
  EXPECT_EQ(Next(), (Update{2, {0, 3, 0}}));
  EXPECT_FALSE(all_sent_) << "said before";
  // Others did what is left.
  Hold({Train(1, 0, {1}), Train(2, 3, {0, 1, 2, 3})});
  EXPECT_FALSE(Next().has_value());
  EXPECT_TRUE(all_sent_);
}

TEST_F(HeldLeasesTest, WhatIsKnownOfALeaseStaysWithIt) {
  EXPECT_FALSE(Hold({Train(1, 0), Task(2)})) << "it is a new one";
  leases_.OnDone({1, {0, 0, 0}});
  EXPECT_TRUE(Hold({Train(1, 0, {1}), Train(3, 5)}));
  EXPECT_EQ(leases_.size(), 2u);
  EXPECT_EQ(Next(), (Update{1, {0, 0, 2}}));
  EXPECT_TRUE(Hold({Train(3, 5), Task(2)}));
  EXPECT_EQ(Next(), (Update{3, {0, 5, 0}}));
  EXPECT_FALSE(Hold({Train(1, 0)}));
  EXPECT_EQ(Next(), (Update{1, {0, 0, 0}})) << "it came back and nothing is known of it";
  EXPECT_FALSE(Hold({Train(4, 1), Task(2)})) << "tasks do not count, nor does another lease";
  leases_.Clear();
  EXPECT_EQ(leases_.size(), 0u);
  EXPECT_TRUE(leases_.plan().has_value());
}

TEST_F(HeldLeasesTest, ADataShardIsSentWithItsLastUpdate) {
  Hold({Train(1, 0, {3})});
  EXPECT_FALSE(leases_.OnSent({1, {0, 0, 1}}, kNoSteps));
  EXPECT_TRUE(leases_.OnSent({1, {0, 0, 2}}, kNoSteps)) << "the last one is done";
  EXPECT_TRUE(Said().all_sent());
  EXPECT_EQ(Said().next(), 0u) << "nothing of it was acknowledged";
  EXPECT_FALSE(leases_.OnSent({1, {0, 0, 2}}, kNoSteps)) << "that was known";
}

TEST_F(HeldLeasesTest, WhatWasDroppedIsSentAgainAndWhatWasLostIsDoneAgain) {
  for (const bool lost : {false, true}) {
    Hold({});
    Hold({Train(1, 0), Task(2)});
    for (std::uint32_t group = 0; group < 3; ++group) leases_.OnDone({1, {0, 0, group}});
    EXPECT_TRUE(leases_.OnSent({1, {0, 0, 3}}, kNoSteps));
    leases_.OnTaskDone(2, {});
    leases_.SendAgain(lost);
    EXPECT_FALSE(Said(0).all_sent());
    EXPECT_EQ(Next(), (Update{1, {0, 0, lost ? 0u : 3u}}));
    EXPECT_TRUE(Said(1).all_sent()) << "a task's result is not lost";
  }
}

TEST_F(HeldLeasesTest, ATaskIsDoneOnceAndItsResultIsTold) {
  Hold({Train(1, 0), Task(5), Task(7)});
  ASSERT_NE(leases_.NextTask(), nullptr);
  EXPECT_EQ(leases_.NextTask()->lease(), 5u);
  v1::TaskResult result;
  result.set_loss(0.5);
  leases_.OnTaskDone(5, result);
  EXPECT_EQ(leases_.NextTask()->lease(), 7u);
  Hold({Train(1, 0), Task(5)});
  EXPECT_EQ(leases_.NextTask(), nullptr);
  v1::WorkerSyncRequest request;
  leases_.Describe(&request);
  ASSERT_EQ(request.held_size(), 2);
  EXPECT_EQ(request.held(1).lease(), 5u);
  EXPECT_EQ(request.held(1).kind(), v1::TASK_EVALUATE);
  EXPECT_TRUE(request.held(1).all_sent());
  ASSERT_EQ(request.results_size(), 1);
  EXPECT_EQ(request.results(0).loss(), 0.5);
}

TEST_F(HeldLeasesTest, DataShardsOfABandAreGoneThroughSideBySide) {
  Hold({Train(1, 2), Train(2, 0), Train(3, 1)});
  EXPECT_EQ(Next(From(0, 0)), (Update{2, {0, 0, 0}})) << "of the first band";
  leases_.OnDone({2, {0, 0, 0}});
  EXPECT_EQ(Next(From(0, 0)), (Update{3, {0, 1, 0}})) << "of the same step, given later";
  leases_.OnDone({3, {0, 1, 0}});
  EXPECT_EQ(Next(From(0, 1)), (Update{2, {0, 0, 1}}));
}

TEST_F(HeldLeasesTest, UpdatesOfStepsThatAreOverAreNotDone) {
  Hold({Train(1, 0), Train(2, 3)});
  EXPECT_EQ(Next(From(0, 2)), (Update{1, {0, 0, 2}}));
  EXPECT_TRUE(leases_.IsNext({1, {0, 0, 2}}, From(0, 2)));
  EXPECT_FALSE(leases_.IsNext({1, {0, 0, 2}}, From(0, 3))) << "others were faster";
  EXPECT_FALSE(leases_.OnSent({1, {0, 0, 2}}, From(0, 2)));
  EXPECT_TRUE(leases_.OnSent({1, {0, 0, 2}}, From(1, 0)));
  EXPECT_EQ(Next(From(1, 1)), (Update{2, {0, 3, 1}}));
  EXPECT_FALSE(Next(From(2, 0)).has_value());
}

TEST_F(HeldLeasesTest, TheUpdatesThatFollowAreKnown) {
  Hold({Train(1, 2, {1}), Task(2), Train(3, 0)});
  EXPECT_EQ(leases_.UpdatesAfter(std::nullopt, kNoSteps, 2), (Updates{{0, 2, 0}, {0, 2, 2}}));
  EXPECT_EQ(leases_.UpdatesAfter(Update{1, {0, 2, 0}}, kNoSteps, 4),
            (Updates{{0, 2, 2}, {0, 2, 3}, {0, 0, 0}, {0, 0, 1}}))
      << "one lease after another";
  EXPECT_EQ(leases_.UpdatesAfter(std::nullopt, From(0, 1), 4), (Updates{{0, 0, 1}, {0, 0, 2}, {0, 0, 3}, {0, 2, 0}}))
      << "step by step";
  EXPECT_TRUE(leases_.UpdatesAfter(std::nullopt, kNoSteps, 0).empty());
}

}  // namespace
}  // namespace downpour::core
