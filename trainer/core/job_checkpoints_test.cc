#include "trainer/core/job_checkpoints.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace downpour::core {
namespace {

class JobCheckpointsTest : public ::testing::Test {
 protected:
  JobCheckpointsTest() {
    config_.set_job_uid("00112233445566778899aabbccddeeff");
    config_.set_job_name("job");
    config_.set_ps_replicas(1);
    config_.mutable_checkpoint()->set_uri("/store/job");
    config_.mutable_checkpoint()->set_interval_seconds(60);
    Restart();
  }
  void Restart() { checkpoints_ = std::make_unique<JobCheckpoints>(config_, 2); }
  void Begin() {
    EXPECT_FALSE(checkpoints_->Seek(now_).status.ok());
    Answer(StoreCall::Kind::kFind, {});
    checkpoints_->BeginHistory(std::nullopt, std::nullopt, now_);
  }
  static FoundCheckpoint Found(const std::string& store, const std::string& name, const std::string& uid,
                               std::uint64_t updates) {
    FoundCheckpoint found{store, name, {}};
    found.manifest.set_job_uid(uid);
    found.manifest.set_updates(updates);
    return found;
  }
  void Answer(StoreCall::Kind kind, StoreReply reply) {
    const std::vector<StoreCall> calls = checkpoints_->TakeStoreCalls();
    ASSERT_EQ(calls.size(), 1u);
    ASSERT_EQ(calls[0].kind, kind);
    last_call_ = calls[0];
    checkpoints_->OnStoreReply(calls[0].call, std::move(reply), now_);
  }
  void Step() {
    JobCheckpoints::Situation situation;
    situation.stamp.set_generation(4);
    situation.sessions = [] { return std::vector<std::uint64_t>(); };
    situation.describe = [](v1::CheckpointManifest* manifest) { manifest->add_evaluated(3); };
    checkpoints_->Step(now_, situation);
  }
  // The open cut, from the store's folder to the manifest.
  void MakeCut(std::uint64_t updates, absl::Status committed = absl::OkStatus()) {
    Step();
    Answer(StoreCall::Kind::kBegin, {});
    v1::CutState state;
    state.set_cut(checkpoints_->cuts().number());
    checkpoints_->cuts().OnPsState(0, state, now_);
    Step();
    state.mutable_files()->set_ps(0);
    checkpoints_->cuts().OnPsState(0, state, now_);
    Step();
    StoreReply reply;
    reply.status = std::move(committed);
    reply.manifest.set_updates(updates);
    reply.bytes = 1000;
    Answer(StoreCall::Kind::kCommit, std::move(reply));
  }
  v1::ProgressReply Report() {
    v1::ProgressReply progress;
    checkpoints_->Report(now_, &progress);
    return progress;
  }

  v1::TrainingConfig config_;
  Time now_ = absl::Hours(1);
  std::unique_ptr<JobCheckpoints> checkpoints_;
  StoreCall last_call_;
};

TEST_F(JobCheckpointsTest, WithoutAStoreAHistoryBeginsWithInitialValuesAndNoCutIsMade) {
  config_.clear_checkpoint();
  Restart();
  EXPECT_TRUE(checkpoints_->Seek(now_).status.ok());
  EXPECT_FALSE(checkpoints_->Seek(now_).checkpoint.has_value());
  Step();
  EXPECT_TRUE(checkpoints_->FinalCutEnded());
  EXPECT_TRUE(checkpoints_->TakeStoreCalls().empty());
  EXPECT_FALSE(Report().has_checkpoint());
  checkpoints_->OnRequest("suspend-1");
  EXPECT_EQ(Report().checkpoint().request_state(), v1::REQUEST_FAILED);
}

TEST_F(JobCheckpointsTest, NothingBeginsAnewWhileTheStoreIsAway) {
  EXPECT_EQ(checkpoints_->Seek(now_).status.code(), absl::StatusCode::kUnavailable);
  StoreReply away;
  away.status = absl::UnavailableError("no route to the store");
  for (int i = 0; i < 10; ++i) {
    Answer(StoreCall::Kind::kFind, away);
    EXPECT_EQ(checkpoints_->Seek(now_).status.message(),
              "looking for a checkpoint; tried again after an error: no route to the store");
    EXPECT_TRUE(checkpoints_->TakeStoreCalls().empty()) << "not at once";
    now_ = checkpoints_->next_timer();
    EXPECT_EQ(checkpoints_->Seek(now_).status.code(), absl::StatusCode::kUnavailable);
  }
  StoreReply found;
  found.found.own = {Found("/store/job", "cut-7", config_.job_uid(), 70)};
  found.found.highest_cut = 9;
  Answer(StoreCall::Kind::kFind, found);
  const JobCheckpoints::Beginning beginning = checkpoints_->Seek(now_);
  ASSERT_TRUE(beginning.status.ok());
  EXPECT_EQ(beginning.checkpoint->name, "cut-7");
  checkpoints_->BeginHistory(beginning.checkpoint, std::nullopt, now_);
  EXPECT_EQ(Report().restoration().checkpoint(), "/store/job/cut-7");
  EXPECT_EQ(Report().restoration().updates(), 70u);
  EXPECT_FALSE(Report().restoration().has_lost_updates()) << "nobody knows";
  Step();
  now_ += absl::Minutes(1);
  MakeCut(80);
  EXPECT_EQ(checkpoints_->cuts().checkpoint(), "cut-0000000010-g4-i2-00112233");
  EXPECT_EQ(last_call_.manifest.generation(), 4u);
  EXPECT_EQ(last_call_.in_use, "cut-7") << "must stay while it may be needed";
  EXPECT_EQ(last_call_.manifest.resumed_from(), "/store/job/cut-7");
  EXPECT_EQ(last_call_.manifest.evaluated(0), 3u);
}

TEST_F(JobCheckpointsTest, ARollBackSaysWhatItCost) {
  Begin();
  EXPECT_FALSE(Report().has_restoration());
  Step();
  now_ += absl::Seconds(60);
  MakeCut(100);
  EXPECT_EQ(Report().checkpoint().newest_updates(), 100u);
  EXPECT_EQ(Report().checkpoint().newest_bytes(), 1000u);
  now_ += absl::Seconds(25);
  EXPECT_EQ(Report().checkpoint().newest_age_milliseconds(), 25000u);
  // A ps is lost at update 130.
  EXPECT_FALSE(checkpoints_->Seek(now_).status.ok());
  StoreReply found;
  found.found.own = {Found("/store/job", "cut-0000000001-g4-i2-00112233", config_.job_uid(), 100),
                     Found("/store/job", "cut-0000000000-g3-i2-00112233", config_.job_uid(), 50)};
  found.found.skipped = {{"/store/job", "cut-0000000002-g4-i2-00112233", "torn"},
                         {"/store/job", "cut-0000000000-g4-i2-00112233", "torn too"}};
  Answer(StoreCall::Kind::kFind, found);
  checkpoints_->BeginHistory(checkpoints_->Seek(now_).checkpoint, 130, now_);
  v1::Restoration restoration = Report().restoration();
  EXPECT_EQ(restoration.lost_updates(), 30u);
  EXPECT_EQ(restoration.lost_seconds(), 25.0);
  ASSERT_EQ(restoration.skipped_size(), 1) << "what is older than the one it goes on from is of no interest";
  EXPECT_EQ(restoration.skipped(0), "/store/job/cut-0000000002-g4-i2-00112233: torn");
  // It turns out to be torn: the one before, although the newest was looked for again.
  checkpoints_->OnRestoreError("ps-0.state: wrong checksum");
  EXPECT_FALSE(checkpoints_->Seek(now_).status.ok());
  Answer(StoreCall::Kind::kFind, found);
  checkpoints_->BeginHistory(checkpoints_->Seek(now_).checkpoint, 130, now_);
  restoration = Report().restoration();
  EXPECT_EQ(restoration.checkpoint(), "/store/job/cut-0000000000-g3-i2-00112233");
  EXPECT_EQ(restoration.lost_updates(), 80u);
  EXPECT_THAT(restoration.skipped(),
              testing::ElementsAre("/store/job/cut-0000000001-g4-i2-00112233: ps-0.state: wrong checksum",
                                   "/store/job/cut-0000000002-g4-i2-00112233: torn",
                                   "/store/job/cut-0000000000-g4-i2-00112233: torn too"));
}

TEST_F(JobCheckpointsTest, ANewCoordinatorLooksIntoTheStoreBeforeItNumbersACut) {
  v1::RestoreSource source;
  source.set_store("/store/job");
  source.set_checkpoint("cut-3");
  source.set_updates(3);
  checkpoints_->ResumeHistory(source, now_);
  EXPECT_EQ(Report().restoration().checkpoint(), "/store/job/cut-3");
  EXPECT_EQ(Report().restoration().updates(), 3u) << "who asked before must hear the same";
  Step();
  now_ += absl::Minutes(1);
  StoreReply found;
  found.found.highest_cut = 8;
  Answer(StoreCall::Kind::kFind, found);
  MakeCut(4);
  EXPECT_EQ(last_call_.manifest.cut(), 9u);
  EXPECT_EQ(last_call_.in_use, "cut-3");
}

TEST_F(JobCheckpointsTest, AfterALossACoordinatorThatWasRestartedLooksAgain) {
  checkpoints_->ResumeHistory({}, now_);
  Step();
  Answer(StoreCall::Kind::kFind, {});  // for the number of the next cut
  checkpoints_->OnRequest("now");
  MakeCut(100);
  EXPECT_TRUE(absl::IsUnavailable(checkpoints_->Seek(now_).status)) << "what it found before its own cut is too old";
  StoreReply reply;
  reply.found.own.push_back(Found("/store/job", checkpoints_->cuts().checkpoint(), config_.job_uid(), 100));
  Answer(StoreCall::Kind::kFind, reply);
  const JobCheckpoints::Beginning beginning = checkpoints_->Seek(now_);
  ASSERT_TRUE(beginning.status.ok() && beginning.checkpoint.has_value());
  EXPECT_EQ(beginning.checkpoint->manifest.updates(), 100u);
}

TEST_F(JobCheckpointsTest, AWishIsAnsweredByItsText) {
  Begin();
  checkpoints_->OnRequest("");
  EXPECT_EQ(Report().checkpoint().request_state(), v1::REQUEST_NONE);
  checkpoints_->OnRequest("suspend-1");
  checkpoints_->OnRequest("suspend-1");
  EXPECT_EQ(Report().checkpoint().request_state(), v1::REQUEST_PENDING);
  MakeCut(5);
  EXPECT_EQ(Report().checkpoint().request_state(), v1::REQUEST_DONE);
  checkpoints_->OnRequest("drain-1");
  EXPECT_EQ(Report().checkpoint().request(), "drain-1");
  EXPECT_EQ(Report().checkpoint().request_state(), v1::REQUEST_PENDING);
  MakeCut(6, absl::ResourceExhaustedError("disk full"));
  EXPECT_EQ(Report().checkpoint().request_state(), v1::REQUEST_FAILED);
  EXPECT_EQ(Report().checkpoint().error(), "disk full");
  EXPECT_EQ(Report().checkpoint().newest_updates(), 5u) << "the one before stays the newest";
  EXPECT_FALSE(checkpoints_->FinalCutEnded());
  now_ += absl::Minutes(2);
  MakeCut(7);
  EXPECT_TRUE(checkpoints_->FinalCutEnded());
  EXPECT_EQ(Report().checkpoint().request_state(), v1::REQUEST_DONE);
}

}  // namespace
}  // namespace downpour::core
