#include "trainer/core/job_work.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace downpour::core {
namespace {

constexpr Time kNow = absl::Seconds(10);

v1::Evaluation Evaluation(std::uint32_t epoch, double loss) {
  v1::Evaluation evaluation;
  evaluation.set_dataset_epoch(epoch);
  evaluation.set_loss(loss);
  return evaluation;
}

// Three epochs of four data shards with one update each, on one ps, which has list 1 of the sessions.
class JobWorkTest : public ::testing::Test {
 protected:
  JobWorkTest() {
    config_.set_job_uid("job");
    config_.set_workers(2);
    config_.set_epochs(3);
    data_.set_sample_count(4);
    data_.set_batch_size(1);
    data_.set_updates_per_shard(1);
    data_.set_epochs(3);
    view_.set_mode(v1::ASYNC);
    *view_.mutable_data() = data_;
  }

  void Begin(const Ledger& ledger = {}) {
    work_.Begin(view_, *DataPlan::Create(data_), ledger);
    work_.SetPs({0});
  }
  v1::WorkerSyncRequest Request(std::uint64_t session, std::uint32_t wanted = 1) {
    v1::WorkerSyncRequest request;
    request.set_session(session);
    request.set_sequence(++sequence_);
    request.set_index(static_cast<std::uint32_t>(session));
    request.set_process_incarnation(1);
    request.set_wanted(wanted);
    return request;
  }
  // What the worker has after it called.
  std::vector<v1::Lease> Sync(const v1::WorkerSyncRequest& request, bool training = true) {
    if (members_.Find(request.session()) == nullptr) members_.Add(request.session());
    members_.Hear(request, kNow);
    v1::WorkerSyncReply reply;
    work_.Grant(request, *members_.Find(request.session()), view_, training, kNow, &members_, &reply);
    return {reply.leases().begin(), reply.leases().end()};
  }
  std::vector<v1::Lease> Sync(std::uint64_t session, std::uint32_t wanted = 1) {
    return Sync(Request(session, wanted));
  }
  static ShardKey KeyOf(const v1::Lease& lease) { return {lease.shard().dataset_epoch(), lease.shard().shard()}; }
  static v1::HeldLease Held(const v1::Lease& lease) {
    v1::HeldLease held;
    held.set_lease(lease.lease());
    held.set_kind(lease.kind());
    *held.mutable_shard() = lease.shard();
    held.set_all_sent(true);
    return held;
  }
  // The ps has all of what it is asked about.
  std::vector<ShardKey> Answer() {
    v1::DirectRequest directive;
    work_.Ask(0, /*asks_search=*/false, &directive);
    v1::DirectReply reply;
    const auto complete = [&reply](const v1::ShardId& shard) {
      v1::ShardBitmap& answer = *reply.add_shards();
      *answer.mutable_shard() = shard;
      answer.set_complete(true);
      answer.set_inspected(true);
    };
    for (const v1::ShardId& shard : directive.retire()) complete(shard);
    for (const v1::ShardId& shard : directive.inspect()) complete(shard);
    return work_.Answer(0, reply);
  }
  // One worker does all of one epoch.
  void DoEpoch() {
    for (int i = 0; i < 4; ++i) {
      v1::WorkerSyncRequest request = Request(1);
      for (const v1::Lease& lease : Sync(1)) {
        if (lease.kind() == v1::TASK_TRAIN) *request.add_held() = Held(lease);
      }
      Sync(request, /*training=*/false);
      ASSERT_EQ(Answer().size(), 1u);
    }
    work_.Step(members_.version(), /*cut_opens=*/false);
  }

  v1::TrainingConfig config_;
  v1::DataPlan data_;
  v1::View view_;
  Membership members_{absl::Seconds(3)};
  JobWork work_{config_, 1};
  std::uint64_t sequence_ = 0;
};

TEST_F(JobWorkTest, DataShardsAreGivenInOrderAndOnlyInTraining) {
  EXPECT_FALSE(work_.begun());
  Begin();
  EXPECT_TRUE(work_.begun());
  EXPECT_TRUE(Sync(Request(1), /*training=*/false).empty());
  const std::vector<v1::Lease> leases = Sync(1, 2);
  ASSERT_EQ(leases.size(), 2u);
  EXPECT_EQ(KeyOf(leases[0]), ShardKey(0, 0));
  EXPECT_EQ(KeyOf(leases[1]), ShardKey(0, 1));
  EXPECT_EQ(Sync(1, 2).size(), 2u) << "it has what it wants";
  EXPECT_EQ(KeyOf(Sync(2, 1)[0]), ShardKey(0, 2));
  EXPECT_EQ(work_.EndSession(1, members_.version()), (std::vector<ShardKey>{{0, 0}, {0, 1}}));
}

TEST_F(JobWorkTest, NothingIsGivenWhileLeasesOfAnEarlierCoordinatorAreAdopted) {
  Begin();
  work_.AdoptUntil(kNow + absl::Seconds(3), view_);
  v1::WorkerSyncRequest request = Request(1);
  v1::HeldLease& held = *request.add_held();
  held.set_lease(77);
  held.set_kind(v1::TASK_TRAIN);
  held.mutable_shard()->set_shard(2);
  work_.Adopt(request);
  const std::vector<v1::Lease> leases = Sync(request);
  ASSERT_EQ(leases.size(), 1u);
  EXPECT_EQ(leases[0].lease(), 77u);
  EXPECT_TRUE(Sync(2).empty());
  EXPECT_FALSE(work_.EndAdoption(kNow, /*all_known=*/false));
  work_.ExtendAdoption(kNow + absl::Seconds(5));
  EXPECT_FALSE(work_.EndAdoption(kNow + absl::Seconds(4), /*all_known=*/false));
  EXPECT_TRUE(work_.EndAdoption(kNow + absl::Seconds(5), /*all_known=*/false));
  EXPECT_FALSE(work_.adopting());
  EXPECT_TRUE(Sync(2).empty()) << "what is free is asked for first";
  EXPECT_FALSE(Answer().empty());
  request = Request(3);
  request.add_held()->set_kind(v1::TASK_TRAIN);
  work_.Adopt(request);
  EXPECT_FALSE(work_.leases().Holds(3)) << "it is too late";
}

TEST_F(JobWorkTest, WhoIsWaitedForIsOnTheListBeforeItIsGivenAnything) {
  view_.set_mode(v1::BOUNDED_STALENESS);
  Begin();
  EXPECT_TRUE(Sync(1).empty());
  EXPECT_TRUE(members_.Find(1)->training);
  EXPECT_EQ(Sync(1).size(), 1u);
}

// It was acknowledged by a ps that was lost since, and ran ahead of its standby.
TEST_F(JobWorkTest, WhatAWorkerReportsThatHasNotHeardOfALossDoesNotCount) {
  view_.set_mode(v1::SYNCHRONOUS);
  view_.set_updates_per_step(4);
  view_.set_lost_epoch(7);
  Begin();
  v1::WorkerSyncRequest request = Request(1);
  const std::vector<v1::Lease> leases = Sync(request);
  ASSERT_FALSE(leases.empty());
  for (const std::uint32_t epoch : {6u, 7u}) {
    request = Request(1);
    request.mutable_view()->set_epoch(epoch);
    v1::HeldLease held = Held(leases.front());
    held.set_all_sent(false);
    held.set_next(1);
    *request.add_held() = held;
    Sync(request);
    const std::vector<v1::Lease> then = Sync(Request(1));
    ASSERT_FALSE(then.empty());
    EXPECT_EQ(!then.front().done().empty() && (then.front().done()[0] & 1) != 0, epoch == 7) << "epoch " << epoch;
  }
}

TEST_F(JobWorkTest, AJobWarmsUpWithOneWorker) {
  config_.set_warm_start(1);
  Begin();
  const std::vector<v1::Lease> leases = Sync(1);
  EXPECT_TRUE(Sync(2).empty());
  v1::WorkerSyncRequest request = Request(1);
  *request.add_held() = Held(leases[0]);
  Sync(request);
  EXPECT_EQ(Answer(), (std::vector<ShardKey>{{0, 0}}));
  EXPECT_EQ(Sync(2).size(), 1u);
}

TEST_F(JobWorkTest, EpochsThatAreDoneAreEvaluatedAndTheLastWithItsExport) {
  config_.set_evaluate(true);
  Begin();
  for (std::uint32_t epoch = 1; epoch <= 3; ++epoch) {
    EXPECT_FALSE(work_.done());
    DoEpoch();
    EXPECT_EQ(work_.leases().watermark(), epoch);
    EXPECT_EQ(work_.tasks().AllDone(epoch), epoch == 3) << "an evaluation is wanted between epochs";
  }
  EXPECT_TRUE(work_.done());
  EXPECT_EQ(work_.NotFinite(), "");
  EXPECT_FALSE(work_.Finish());
  for (const v1::TaskKind kind : {v1::TASK_EXPORT, v1::TASK_EVALUATE}) {
    const std::vector<v1::Lease> leases = Sync(Request(2), /*training=*/false);
    ASSERT_EQ(leases.size(), 1u);
    EXPECT_EQ(leases[0].kind(), kind);
    v1::WorkerSyncRequest request = Request(2);
    v1::TaskResult& result = *request.add_results();
    result.set_lease(leases[0].lease());
    result.set_kind(kind);
    result.set_dataset_epoch(3);
    EXPECT_FALSE(work_.Accept(request, *members_.Find(2), kNow).has_value());
    EXPECT_EQ(work_.Finish(), kind == v1::TASK_EVALUATE);
  }
}

TEST_F(JobWorkTest, TheFirstFailureOfATaskIsTheJobs) {
  Begin();
  for (int i = 0; i < 3; ++i) DoEpoch();
  work_.Finish();
  const std::vector<v1::Lease> leases = Sync(Request(2), /*training=*/false);
  ASSERT_EQ(leases.size(), 1u);
  v1::WorkerSyncRequest request = Request(2);
  v1::TaskResult& result = *request.add_results();
  result.set_lease(leases[0].lease());
  result.set_kind(v1::TASK_EXPORT);
  result.set_dataset_epoch(3);
  result.set_failure(v1::FAILURE_MODEL_NOT_FINITE);
  result.set_error("the model is not finite");
  const std::optional<Tasks::Failure> failure = work_.Accept(request, *members_.Find(2), kNow);
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->kind, v1::FAILURE_MODEL_NOT_FINITE);
}

TEST_F(JobWorkTest, EvaluationsOfACheckpointCountBeforeAnybodyHasTheView) {
  config_.set_evaluate(true);
  config_.mutable_early_stopping()->set_metric("Loss");
  config_.mutable_early_stopping()->set_patience(1);
  v1::CheckpointManifest manifest;
  manifest.set_job_uid("job");
  *manifest.mutable_data() = data_;
  manifest.set_watermark(2);
  manifest.mutable_end()->set_dataset_epoch(2);
  manifest.mutable_end()->set_shard(1);
  *manifest.add_evaluations() = Evaluation(1, 0.5);
  *manifest.add_evaluations() = Evaluation(2, 0.6);
  Begin({.watermark = 2});
  EXPECT_FALSE(work_.HasNewEvaluations(view_));
  EXPECT_TRUE(work_.Restore(kNow, manifest, &view_));
  EXPECT_TRUE(work_.adopting()) << "what is not retired may be there in part";
  EXPECT_TRUE(work_.EndAdoption(kNow, /*all_known=*/false)) << "but nobody holds anything";
  ASSERT_TRUE(view_.has_end());
  EXPECT_EQ(work_.leases().end(), ShardKey(2, 1)) << "behind what was begun";
  EXPECT_FALSE(work_.HasNewEvaluations(view_)) << "they are counted";
  EXPECT_FALSE(work_.CountNewEvaluations(&view_));
}

TEST_F(JobWorkTest, EvaluationsDecideNothingUnlessTheyAreHeeded) {
  v1::CheckpointManifest manifest;
  *manifest.mutable_data() = data_;
  manifest.set_watermark(1);
  *manifest.add_evaluations() = Evaluation(1, 0.5);
  Begin({.watermark = 1});
  EXPECT_FALSE(work_.Restore(kNow, manifest, &view_));
  EXPECT_EQ(view_.evaluations_size(), 0);
  EXPECT_EQ(work_.tasks().evaluations().size(), 1u);
}

}  // namespace
}  // namespace downpour::core
