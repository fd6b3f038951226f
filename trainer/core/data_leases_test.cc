#include "trainer/core/data_leases.h"

#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace downpour::core {
namespace {

constexpr std::uint32_t kPs = 2;
const std::set<std::uint32_t> kAllPs = {0, 1};

DataPlan PlanOf(std::uint32_t shards, std::uint32_t epochs) {
  v1::DataPlan plan;
  plan.set_sample_count(4 * std::uint64_t{shards});
  plan.set_batch_size(1);
  plan.set_updates_per_shard(4);
  plan.set_epochs(epochs);
  return *DataPlan::Create(plan);
}

v1::ShardBitmap AnswerOf(const ShardKey& key, const std::vector<std::uint32_t>& applied) {
  v1::ShardBitmap answer;
  answer.mutable_shard()->set_dataset_epoch(key.first);
  answer.mutable_shard()->set_shard(key.second);
  Bitmap bitmap(4);
  for (const std::uint32_t update : applied) bitmap.Set(update);
  answer.set_applied(bitmap.bytes());
  answer.set_complete(bitmap.All());
  answer.set_inspected(true);
  return answer;
}

class DataLeasesTest : public testing::Test {
 protected:
  std::vector<v1::Lease> Grant(std::uint64_t session, std::uint32_t count) {
    v1::WorkerSyncReply reply;
    leases_.Grant(session, count, numbers_, &reply);
    return {reply.leases().begin(), reply.leases().end()};
  }
  std::vector<v1::Lease> List(std::uint64_t session, const std::set<std::uint64_t>& all_sent = {}) {
    v1::WorkerSyncReply reply;
    leases_.List(session, all_sent, &reply);
    return {reply.leases().begin(), reply.leases().end()};
  }
  std::set<ShardKey> AskedOf(std::uint32_t ps) const {
    v1::DirectRequest directive;
    leases_.Ask(ps, &directive);
    std::set<ShardKey> asked;
    for (const v1::ShardId& id : directive.retire()) asked.insert({id.dataset_epoch(), id.shard()});
    for (const v1::ShardId& id : directive.inspect()) asked.insert({id.dataset_epoch(), id.shard()});
    return asked;
  }
  // Everything that is asked is there.
  void ConfirmAll() {
    for (std::uint32_t ps = 0; ps < kPs; ++ps) {
      for (const ShardKey& key : AskedOf(ps)) leases_.Answer(ps, AnswerOf(key, {0, 1, 2, 3}));
    }
  }

  LeaseNumbers numbers_{1};
  DataLeases leases_{PlanOf(/*shards=*/3, /*epochs=*/3), kAllPs, Ledger{}};
};

TEST_F(DataLeasesTest, GivesEachShardOnceInOrderOfTwoEpochs) {
  const std::vector<v1::Lease> first = Grant(1, 2);
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[1].shard().shard(), 1u);
  const std::vector<v1::Lease> rest = Grant(2, 100);
  ASSERT_EQ(rest.size(), 4u) << "the third epoch is not open yet";
  EXPECT_EQ(rest[0].shard().shard(), 2u);
  EXPECT_EQ(rest[1].shard().dataset_epoch(), 1u);
  EXPECT_EQ(leases_.leased(), 6u);
  EXPECT_EQ(List(1).size(), 2u);
  EXPECT_EQ(List(3).size(), 0u);
}

TEST_F(DataLeasesTest, RetiresOnTheWordOfEveryPsAlone) {
  const v1::Lease lease = Grant(1, 1).at(0);
  EXPECT_TRUE(AskedOf(0).empty());
  EXPECT_EQ(List(1, {lease.lease()}).size(), 1u) << "held until it is retired";
  const ShardKey key{0, 0};
  EXPECT_EQ(AskedOf(0), std::set<ShardKey>{key});
  EXPECT_EQ(leases_.Answer(0, AnswerOf(key, {0, 1, 2, 3})), std::nullopt);
  EXPECT_EQ(leases_.Answer(0, AnswerOf(key, {0, 1, 2, 3})), std::nullopt) << "twice the same";
  EXPECT_TRUE(AskedOf(0).empty());
  EXPECT_EQ(leases_.Answer(1, AnswerOf(key, {0, 1})), std::nullopt);
  EXPECT_EQ(AskedOf(1), std::set<ShardKey>{key});
  EXPECT_EQ(leases_.Answer(1, AnswerOf(key, {0, 1, 2, 3})), key);
  EXPECT_FALSE(leases_.asking());
  EXPECT_TRUE(List(1).empty());
  EXPECT_EQ(leases_.retired_updates(), 4u);
}

TEST_F(DataLeasesTest, AfterItsHolderIsGoneAShardIsFencedAndInspectedFirst) {
  const std::uint64_t sent = Grant(1, 2).at(1).lease();
  List(1, {sent});
  EXPECT_EQ(leases_.EndSession(1, /*members_version=*/5), std::vector<ShardKey>({{0, 0}}))
      << "what was sent in full was not being worked on";
  EXPECT_EQ(leases_.leased(), 0u);
  leases_.Confirm(4);
  EXPECT_FALSE(leases_.asking()) << "some ps may still take its updates";
  EXPECT_EQ(Grant(2, 1).at(0).shard().shard(), 2u);
  leases_.Confirm(5);
  EXPECT_EQ(AskedOf(1), (std::set<ShardKey>{{0, 0}, {0, 1}}));
  leases_.Answer(0, AnswerOf({0, 0}, {0, 1}));
  leases_.Answer(1, AnswerOf({0, 0}, {1, 2}));
  const v1::Lease again = Grant(3, 1).at(0);
  EXPECT_EQ(again.shard().shard(), 0u);
  const Bitmap done = Bitmap::FromBytes(4, again.done());
  EXPECT_EQ(done.Count(), 1u);
  EXPECT_TRUE(done.Test(1)) << "what every ps has";
}

TEST_F(DataLeasesTest, ALateAnswerMayRetireWhatIsFenced) {
  const v1::Lease lease = Grant(1, 1).at(0);
  List(1, {lease.lease()});
  leases_.EndSession(1, 5);
  for (std::uint32_t ps = 0; ps < kPs; ++ps) leases_.Answer(ps, AnswerOf({0, 0}, {0, 1, 2, 3}));
  leases_.Confirm(5);
  EXPECT_FALSE(leases_.asking());
  EXPECT_EQ(leases_.retired_updates(), 4u);
}

TEST_F(DataLeasesTest, TheWatermarkPassesWholeEpochs) {
  for (std::uint32_t epoch = 0; epoch < 3; ++epoch) {
    EXPECT_EQ(leases_.watermark(), epoch);
    std::set<std::uint64_t> sent;
    for (const v1::Lease& lease : Grant(1, 3)) {
      EXPECT_FALSE(leases_.Advance());
      sent.insert(lease.lease());
    }
    List(1, sent);
    ConfirmAll();
    EXPECT_TRUE(leases_.Advance());
    EXPECT_EQ(leases_.retired_updates(), 12u * (epoch + 1));
  }
  EXPECT_TRUE(Grant(1, 1).empty());
}

// Three data shards an epoch, three epochs.
TEST_F(DataLeasesTest, NothingIsGivenOutBehindTheEndAndAllBeforeIt) {
  EXPECT_EQ(leases_.begun_end(), ShardKey(0, 0));
  EXPECT_EQ(Grant(1, 4).size(), 4u);
  EXPECT_EQ(leases_.begun_end(), ShardKey(1, 1));
  leases_.SetEnd({1, 2});
  EXPECT_EQ(leases_.updates(), 20u);
  leases_.EndSession(1, 5);
  leases_.Confirm(5);
  for (std::uint32_t ps = 0; ps < kPs; ++ps) {
    for (const ShardKey& key : AskedOf(ps)) leases_.Answer(ps, AnswerOf(key, {}));
  }
  std::set<std::uint64_t> sent;
  for (const v1::Lease& lease : Grant(2, 9)) sent.insert(lease.lease());
  EXPECT_EQ(sent.size(), 5u) << "what was given back, and the one that was free before the end";
  EXPECT_FALSE(leases_.done());
  List(2, sent);
  ConfirmAll();
  EXPECT_FALSE(leases_.done()) << "its first epoch is not counted yet";
  EXPECT_TRUE(leases_.Advance());
  EXPECT_TRUE(leases_.done());
  EXPECT_FALSE(leases_.Advance()) << "the second epoch is not whole";
  EXPECT_EQ(leases_.retired_updates(), 20u);
  EXPECT_TRUE(Grant(2, 1).empty());
}

TEST_F(DataLeasesTest, AnEndMayMoveAndBeTakenBack) {
  EXPECT_EQ(Grant(1, 1).size(), 1u);
  leases_.SetEnd({0, 1});
  EXPECT_FALSE(leases_.HasFree());
  leases_.SetEnd({0, 3});
  EXPECT_EQ(leases_.end(), ShardKey(1, 0)) << "behind the last of an epoch is the beginning of the next";
  EXPECT_EQ(Grant(1, 9).size(), 2u);
  leases_.SetEnd({3, 0});
  EXPECT_EQ(Grant(1, 9).size(), 3u);
}

TEST_F(DataLeasesTest, WhatOthersMayHaveBegunCounts) {
  leases_.AssumeBegun({2, 0});
  Grant(1, 1);
  EXPECT_EQ(leases_.begun_end(), ShardKey(2, 0));
}

TEST_F(DataLeasesTest, AnEarlierCoordinatorMayHaveSeenMoreThanAllPs) {
  DataLeases leases(PlanOf(3, 6), kAllPs, Ledger{.watermark = 1, .retired = {{1, Bitmap(3, true)}, {2, Bitmap(3)}}});
  leases.AssumeLeased();
  EXPECT_EQ(leases.begun_end(), ShardKey(4, 0)) << "its watermark may have been 2";
}

TEST_F(DataLeasesTest, WhatIsHeldBehindTheEndIsNotAdopted) {
  leases_.SetEnd({0, 1});
  v1::HeldLease held;
  held.set_lease(77);
  held.mutable_shard()->set_dataset_epoch(0);
  held.mutable_shard()->set_shard(2);
  leases_.Adopt(held, 1);
  EXPECT_EQ(leases_.leased(), 0u);
}

TEST_F(DataLeasesTest, AHistoryIsTakenUpWhereItsLedgerSays) {
  Bitmap retired(3);
  retired.Set(2);
  DataLeases leases(PlanOf(3, 3), kAllPs, Ledger{.watermark = 1, .retired = {{1, retired}}});
  EXPECT_EQ(leases.retired_updates(), 16u);
  v1::HeldLease held;
  held.set_lease(77);
  held.mutable_shard()->set_dataset_epoch(1);
  leases.Adopt(held, 1);
  leases.Adopt(held, 2);  // somebody has it
  held.mutable_shard()->set_shard(2);
  leases.Adopt(held, 1);  // retired
  held.mutable_shard()->set_dataset_epoch(0);
  leases.Adopt(held, 1);  // before the watermark
  held.mutable_shard()->set_dataset_epoch(3);
  leases.Adopt(held, 1);  // no such epoch
  EXPECT_EQ(leases.leased(), 1u);
  leases.InspectFree();
  v1::DirectRequest directive;
  leases.Ask(0, &directive);
  ASSERT_EQ(directive.inspect_size(), 1) << "what nobody claimed and is not retired";
  EXPECT_EQ(directive.inspect(0).dataset_epoch(), 1u);
  EXPECT_EQ(directive.inspect(0).shard(), 1u);
  v1::WorkerSyncReply reply;
  leases.Grant(3, 1, numbers_, &reply);
  EXPECT_EQ(reply.leases(0).shard().dataset_epoch(), 2u) << "nothing of it can have been applied";
}

TEST_F(DataLeasesTest, SaysWhetherSomethingIsInspected) {
  ASSERT_EQ(Grant(1, 1).size(), 1u);
  EXPECT_FALSE(leases_.inspecting());
  leases_.InspectFree();
  EXPECT_TRUE(leases_.inspecting());
  for (std::uint32_t ps = 0; ps < kPs; ++ps) {
    EXPECT_TRUE(leases_.inspecting());
    for (const ShardKey& key : AskedOf(ps))
      leases_.Answer(
          ps, AnswerOf(key, key.second == 1 ? std::vector<std::uint32_t>{} : std::vector<std::uint32_t>{0, 1, 2, 3}));
  }
  EXPECT_FALSE(leases_.inspecting()) << "one is free again, and one was there";
}

// Four data shards an epoch in bands of two.
class BandsTest : public ::testing::Test {
 protected:
  std::vector<std::uint32_t> Grant(std::uint64_t session, bool starves = false) {
    v1::WorkerSyncReply reply;
    leases_.GrantInBands(session, /*width=*/2, /*share=*/1, starves, numbers_, &reply);
    std::vector<std::uint32_t> shards;
    for (const v1::Lease& lease : reply.leases()) {
      shards.push_back(lease.shard().dataset_epoch() * 4 + lease.shard().shard());
      newest_ = lease;
    }
    return shards;
  }
  void Report(std::uint64_t session, std::uint32_t shard, std::uint32_t next) {
    v1::HeldLease held;
    held.mutable_shard()->set_shard(shard);
    held.set_next(next);
    leases_.Report(held, session);
  }

  LeaseNumbers numbers_{1};
  v1::Lease newest_;
  DataLeases leases_{PlanOf(/*shards=*/4, /*epochs=*/3), kAllPs, Ledger{}};
};

TEST_F(BandsTest, EachWorkerHasItsShareOfEachBand) {
  EXPECT_EQ(Grant(1), (std::vector<std::uint32_t>{0, 2, 4}));
  EXPECT_EQ(Grant(1), (std::vector<std::uint32_t>{}));
  EXPECT_EQ(Grant(2), (std::vector<std::uint32_t>{1, 3, 5}));
  EXPECT_EQ(Grant(3), (std::vector<std::uint32_t>{})) << "the band behind these is not near yet";
}

TEST_F(BandsTest, WhatNobodyHasOfTheFirstBandGoesToWhoStarves) {
  ASSERT_EQ(Grant(1), (std::vector<std::uint32_t>{0, 2, 4}));
  EXPECT_EQ(Grant(1, /*starves=*/true), (std::vector<std::uint32_t>{1}));
}

TEST_F(BandsTest, WhoIsLateGetsABackupOnceHalfOfTheBandWaits) {
  Grant(1);
  Grant(2);
  EXPECT_TRUE(Grant(3, true).empty()) << "nobody is late yet";
  Report(1, 0, 2);
  EXPECT_TRUE(Grant(1, true).empty()) << "a spare worker is there";
  EXPECT_EQ(Grant(3, true), std::vector<std::uint32_t>{1});
  EXPECT_EQ(leases_.backups(), 1u);
  EXPECT_TRUE(Grant(4, true).empty()) << "there is one already";
  Report(3, 1, 1);

  // What is known to be done goes with the lease; who is left goes on alone, with the same lease.
  const std::uint64_t backup = newest_.lease();
  EXPECT_EQ(leases_.EndSession(2, 1).size(), 3u);
  v1::WorkerSyncReply reply;
  EXPECT_EQ(leases_.List(3, {}, &reply), 1u);
  ASSERT_EQ(reply.leases_size(), 1);
  EXPECT_EQ(reply.leases(0).lease(), backup);
  EXPECT_EQ(reply.leases(0).done(), std::string(1, '\x01'));
  EXPECT_FALSE(leases_.Holds(2));
}

// Three data shards a band of which one worker has two: the one that waits for it is all there is.
TEST_F(BandsTest, WhoHoldsMostOfTheBandMayBeLateAsWell) {
  v1::WorkerSyncReply reply;
  leases_.GrantInBands(1, /*width=*/3, /*share=*/2, false, numbers_, &reply);
  leases_.GrantInBands(2, 3, 2, false, numbers_, &reply);
  Report(2, 2, 1);
  reply.Clear();
  leases_.GrantInBands(2, 3, 2, /*starves=*/true, numbers_, &reply);
  ASSERT_EQ(reply.leases_size(), 1);
  EXPECT_EQ(reply.leases(0).shard().shard(), 0u);
}

TEST_F(BandsTest, BothLeasesEndWithTheShard) {
  Grant(1);
  Grant(2);
  Report(1, 0, 2);
  ASSERT_EQ(Grant(3, true), std::vector<std::uint32_t>{1});
  v1::WorkerSyncReply reply;
  leases_.List(3, {newest_.lease()}, &reply);
  for (std::uint32_t ps = 0; ps < kPs; ++ps) leases_.Answer(ps, AnswerOf({0, 1}, {0, 1, 2, 3}));
  EXPECT_FALSE(leases_.Holds(3));
  v1::WorkerSyncReply other;
  EXPECT_EQ(leases_.List(2, {}, &other), 2u) << "its others";
}

TEST_F(DataLeasesTest, TheLastOfAnEvaluationAreLeasedTwice) {
  const auto last = [this](std::uint64_t session) {
    v1::WorkerSyncReply reply;
    leases_.GrantOneOfTheLast(session, numbers_, &reply);
    std::vector<v1::Lease> granted(reply.leases().begin(), reply.leases().end());
    return granted;
  };
  leases_.SetEndOfGrants(1);
  ASSERT_EQ(Grant(1, 2).size(), 2u);
  EXPECT_TRUE(last(3).empty()) << "one is free";
  ASSERT_EQ(Grant(2, 1).size(), 1u);
  const auto report = [this](std::uint64_t session, std::uint32_t shard, std::uint32_t next) {
    v1::HeldLease held;
    held.mutable_shard()->set_shard(shard);
    held.set_next(next);
    leases_.Report(held, session);
  };
  report(1, 0, 2);
  report(1, 1, 4);
  report(2, 2, 1);
  std::vector<v1::Lease> backup = last(3);
  ASSERT_EQ(backup.size(), 1u);
  EXPECT_EQ(backup[0].shard().shard(), 2u);
  EXPECT_EQ(backup[0].done(), std::string(1, '\x01'));
  EXPECT_TRUE(last(1).empty()) << "its own, and one that there is a second lease of";
  backup = last(4);
  ASSERT_EQ(backup.size(), 1u);
  EXPECT_EQ(backup[0].shard().shard(), 0u);
  EXPECT_TRUE(last(5).empty()) << "what is done but for its confirmation is not late";
  EXPECT_EQ(leases_.backups(), 2u);
  EXPECT_TRUE(leases_.EndSession(1, 1).size() == 2u && leases_.Holds(4));
}

// Windows of two data shards, as many windows as data shards in twelve samples.
DataPlan PlanInWindows(std::uint32_t shards, std::uint32_t epochs, std::uint64_t seed) {
  v1::DataPlan plan = PlanOf(shards, epochs).proto();
  plan.set_seed(seed);
  plan.set_shuffle_block(2);
  plan.set_shuffle_window(8);
  return *DataPlan::Create(plan);
}

// Workers of other speeds. Whoever asks is given something as long as there is something; of what is given in later
// epochs most is data that the worker had.
TEST(AffinityTest, AWorkerGetsTheWindowsThatItHadAndIsNeverLeftWithout) {
  constexpr std::uint32_t kShards = 40;
  constexpr std::uint32_t kEpochs = 4;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const DataPlan plan = PlanInWindows(kShards, kEpochs, seed);
    DataLeases leases(plan, kAllPs, Ledger{});
    LeaseNumbers numbers(1);
    std::mt19937_64 random(seed);
    std::map<std::uint64_t, std::set<std::uint32_t>> had;  // by window, those that ever had it
    std::set<ShardKey> given;
    std::uint32_t again = 0;
    for (std::uint32_t epoch = 0; epoch < kEpochs; ++epoch) {
      leases.SetEndOfGrants(epoch + 1);
      for (std::uint32_t count = 0; count < kShards; ++count) {
        const auto worker = static_cast<std::uint32_t>(random() % 4);
        v1::WorkerSyncReply reply;
        const std::uint64_t before = leases.looked_at();
        leases.Grant(worker + 1, 1, numbers, &reply, worker);
        ASSERT_EQ(leases.looked_at() - before, 1u);
        ASSERT_EQ(reply.leases_size(), 1) << "seed " << seed;
        const ShardKey key(reply.leases(0).shard().dataset_epoch(), reply.leases(0).shard().shard());
        ASSERT_EQ(key.first, epoch);
        ASSERT_TRUE(given.insert(key).second);
        std::set<std::uint32_t>& workers = had[plan.WindowOf(key.first, key.second)];
        again += epoch > 0 && workers.count(worker) != 0 ? 1 : 0;
        workers.insert(worker);
        for (std::uint32_t ps = 0; ps < kPs; ++ps) leases.Answer(ps, AnswerOf(key, {0, 1, 2, 3}));
      }
      ASSERT_TRUE(leases.Advance());
    }
    // Of four workers chance would be a quarter in the second epoch.
    EXPECT_GE(again, (kEpochs - 1) * kShards * 3 / 4) << "seed " << seed;
  }
}

TEST(AffinityTest, WhatIsFreeAgainAndWhatWasAdoptedAreKnown) {
  const DataPlan plan = PlanInWindows(/*shards=*/4, /*epochs=*/2, /*seed=*/1);
  DataLeases leases(plan, kAllPs, Ledger{});
  LeaseNumbers numbers(10);
  v1::HeldLease held;
  held.set_lease(5);
  held.mutable_shard()->set_shard(2);
  leases.Adopt(held, /*session=*/1, /*worker=*/7);
  const auto grant = [&](std::uint64_t session, std::uint32_t worker) {
    v1::WorkerSyncReply reply;
    leases.Grant(session, 1, numbers, &reply, worker);
    return reply.leases_size() == 0 ? UINT32_MAX : reply.leases(0).shard().shard();
  };
  EXPECT_EQ(grant(2, 8), 0u) << "nobody had its window";
  EXPECT_EQ(grant(3, 9), 3u) << "somebody had both, so what is last";
  leases.EndSession(1, 1);
  leases.Confirm(1);
  for (std::uint32_t ps = 0; ps < kPs; ++ps) leases.Answer(ps, AnswerOf({0, 2}, {0}));
  EXPECT_EQ(grant(2, 8), 1u) << "its own";
  EXPECT_EQ(grant(2, 8), 2u) << "another's, rather than nothing";
}

// What a call looks at is what it is about, however many data shards there are.
TEST_F(DataLeasesTest, ACallLooksAtTheLeasesOfItsSessionAlone) {
  for (const std::uint32_t shards : {1000u, 10000u}) {
    DataLeases leases(PlanOf(shards, 3), kAllPs, Ledger{});
    v1::WorkerSyncReply reply;
    // A worker that is gone for each of half of them; the rest goes to others.
    for (std::uint64_t session = 1; session <= shards; ++session) leases.Grant(session, 2, numbers_, &reply);
    std::uint64_t before = leases.looked_at();
    leases.List(shards / 2, {}, &reply);
    EXPECT_EQ(leases.looked_at() - before, 2u);
    before = leases.looked_at();
    leases.Grant(shards + 1, 2, numbers_, &reply);
    EXPECT_EQ(leases.looked_at() - before, 0u) << "none is free";
    leases.EndSession(shards / 2, 5);
    EXPECT_EQ(leases.looked_at() - before, 2u);
    for (int round = 0; round < 100; ++round) leases.Confirm(4);
    EXPECT_EQ(leases.looked_at() - before, 2u) << "nothing new is confirmed";
    leases.Confirm(5);
    EXPECT_EQ(leases.looked_at() - before, 4u);
  }
}

}  // namespace
}  // namespace downpour::core
