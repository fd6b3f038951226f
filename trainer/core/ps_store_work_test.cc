#include "trainer/core/ps_store_work.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "gtest/gtest.h"
#include "trainer/core/testing/ps_messages.h"

namespace downpour::core {
namespace {

using Slices = std::vector<std::uint32_t>;

v1::DirectRequest Order(std::uint64_t sequence, std::optional<std::uint32_t> cut, bool sealed = false,
                        std::uint32_t incarnation = 1) {
  v1::DirectRequest request;
  request.mutable_stamp()->set_incarnation(incarnation);
  request.set_sequence(sequence);
  if (!cut.has_value()) return request;
  request.mutable_cut()->set_cut(*cut);
  request.mutable_cut()->set_checkpoint("cut");
  request.mutable_cut()->set_sealed(sealed);
  return request;
}

// Slices 0 and 1 are here.
class PsStoreWorkTest : public ::testing::Test {
 protected:
  PsStoreWorkTest() {
    EXPECT_TRUE(replicas_.Begin(view_).ok());
    Use({.ps = 4, .has_store = true});
  }
  void Use(const PsStoreWork::Options& options) { work_.emplace(&replicas_, options); }
  void Initialise() {
    for (const std::uint32_t slice : {0u, 1u}) {
      replicas_.Primary(slice)->replica.state().Initialise(WithFloats(Frame(), 3).payload);
    }
  }
  v1::DirectReply Said() const {
    v1::DirectReply reply;
    work_->Describe(/*with_cut=*/true, &reply);
    return reply;
  }
  static SliceSnapshot Snapshot(std::uint32_t slice, float value) {
    SliceSnapshot snapshot;
    snapshot.number = slice;
    snapshot.value = std::make_shared<std::vector<float>>(kElements, value);
    snapshot.optimizer.type = "SGD";
    return snapshot;
  }

  v1::View view_ = MakeView(7);
  PsReplicas replicas_{0};
  std::optional<PsStoreWork> work_;
};

TEST_F(PsStoreWorkTest, ACutIsGivenOutOnceWhenItIsSealedAndEachSliceOnce) {
  Initialise();
  work_->Take(Order(1, 5));
  EXPECT_FALSE(work_->HasWork(view_)) << "pushes of before it may yet come";
  EXPECT_FALSE(work_->TakeCutToWrite(view_).has_value());
  work_->Take(Order(2, 5, /*sealed=*/true));
  ASSERT_TRUE(work_->HasWork(view_));
  const std::optional<PsStoreWork::CutToWrite> cut = work_->TakeCutToWrite(view_);
  ASSERT_TRUE(cut.has_value());
  EXPECT_EQ(cut->cut, 5u);
  EXPECT_EQ(cut->checkpoint, "cut");
  EXPECT_EQ(cut->tensors.size(), 3u);
  EXPECT_EQ(cut->data.sample_count(), 12u);
  EXPECT_EQ(cut->slices, (Slices{0, 1}));
  EXPECT_FALSE(work_->HasWork(view_));
  EXPECT_FALSE(work_->TakeCutToWrite(view_).has_value());

  EXPECT_EQ((*work_->TakeSnapshot(5, 1)->value)[0], 3);
  EXPECT_EQ(work_->TakeSnapshot(5, 1).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(work_->TakeSnapshot(4, 0).status().code(), absl::StatusCode::kAborted) << "another cut";
  EXPECT_EQ(work_->TakeSnapshot(5, kForeignSlice).status().code(), absl::StatusCode::kAborted);
  v1::PsFiles files;
  files.set_updates(8);
  work_->OnCutWritten(4, absl::UnavailableError("of another cut"));
  EXPECT_EQ(Said().cut().error(), "");
  work_->OnCutWritten(5, files);
  EXPECT_EQ(Said().cut().files().updates(), 8u);
  v1::DirectReply without;
  work_->Describe(/*with_cut=*/false, &without);
  EXPECT_FALSE(without.has_cut());
}

TEST_F(PsStoreWorkTest, ADirectiveThatWasOvertakenNeitherOpensNorClosesACut) {
  work_->Take(Order(5, 2));
  work_->Take(Order(4, std::nullopt));
  ASSERT_NE(work_->open_cut(), nullptr);
  work_->Take(Order(6, std::nullopt));
  EXPECT_EQ(work_->open_cut(), nullptr);
  work_->Take(Order(5, 2));
  EXPECT_EQ(work_->open_cut(), nullptr);
  work_->Take(Order(1, 3, /*sealed=*/false, /*incarnation=*/2));
  ASSERT_NE(work_->open_cut(), nullptr) << "another coordinator counts from the beginning";
  EXPECT_EQ(work_->open_cut()->cut(), 3u);
  work_->Take(Order(2, 4, /*sealed=*/false, /*incarnation=*/2));
  EXPECT_EQ(work_->open_cut()->cut(), 4u) << "in the place of the one before";
  work_->CloseCut();
  EXPECT_EQ(work_->open_cut(), nullptr);
  EXPECT_FALSE(Said().has_cut());
}

TEST_F(PsStoreWorkTest, ACutThatCannotBeWrittenSaysWhy) {
  Use({.ps = 4});
  work_->Take(Order(1, 1, /*sealed=*/true));
  EXPECT_EQ(Said().cut().error(), "ps-4 has no store");
  EXPECT_FALSE(work_->HasWork(view_));

  // The number of a cut is used up by those ordered, and by pushes.
  Use({.ps = 4, .has_store = true});
  work_->Take(Order(1, 3));
  EXPECT_EQ(Said().cut().error(), "");
  EXPECT_EQ(work_->highest_cut(), 3u);
  EXPECT_EQ(work_->applied_cut(), 0u);
  work_->OnPush(6);
  work_->OnPush(5);
  EXPECT_EQ(work_->highest_cut(), 6u);
  EXPECT_EQ(work_->applied_cut(), 6u);
  work_->Take(Order(2, 6));
  EXPECT_EQ(Said().cut().error(), "ps-4 has seen cut 6");
  work_->Take(Order(3, 7));
  EXPECT_EQ(Said().cut().error(), "");
}

TEST_F(PsStoreWorkTest, ACheckpointIsGivenOutOnceInAHistory) {
  EXPECT_FALSE(work_->HasWork(view_));
  EXPECT_FALSE(work_->TakeRestore(view_).has_value());
  view_.mutable_restore()->set_checkpoint("cut-1");
  for (int history = 0; history < 2; ++history) {
    ASSERT_TRUE(work_->HasWork(view_));
    const std::optional<PsStoreWork::Restore> restore = work_->TakeRestore(view_);
    ASSERT_TRUE(restore.has_value());
    EXPECT_EQ(restore->generation, 7u);
    EXPECT_EQ(restore->source.checkpoint(), "cut-1");
    EXPECT_EQ(restore->slices, (Slices{0, 1}));
    EXPECT_FALSE(work_->HasWork(view_));
    EXPECT_FALSE(work_->TakeRestore(view_).has_value());
    work_->Begin();
  }
}

TEST_F(PsStoreWorkTest, SlicesOfACheckpointAreTakenOnceAndIfTheyFit) {
  EXPECT_EQ(work_->OnSliceRestored(view_, 6, Snapshot(0, 2)).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(work_->OnSliceRestored(view_, 7, Snapshot(kForeignSlice, 2)).code(), absl::StatusCode::kAborted);
  SliceSnapshot narrow = Snapshot(0, 2);
  narrow.value = std::make_shared<std::vector<float>>(kElements - 1);
  EXPECT_EQ(work_->OnSliceRestored(view_, 7, narrow).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(replicas_.Primary(0)->replica.state().initialised());
  EXPECT_TRUE(work_->OnSliceRestored(view_, 7, Snapshot(0, 2)).ok());
  EXPECT_TRUE(work_->OnSliceRestored(view_, 7, Snapshot(0, 9)).ok()) << "by a try before";
  EXPECT_EQ((*replicas_.Primary(0)->replica.state().value())[0], 2);
  EXPECT_FALSE(replicas_.initialised());
  EXPECT_TRUE(work_->OnSliceRestored(view_, 7, Snapshot(1, 2)).ok());
  EXPECT_TRUE(replicas_.initialised());
}

TEST_F(PsStoreWorkTest, WhatMayComeYetIsWaitedForAndWhatIsDamagedIsAnError) {
  for (const absl::Status& away : {absl::UnavailableError("away"), absl::PermissionDeniedError("away")}) {
    EXPECT_TRUE(RestoreMayComeYet(away));
    work_->OnRestored(away);
    EXPECT_EQ(Said().restore_waits(), "away");
    EXPECT_EQ(Said().restore_error(), "");
  }
  EXPECT_FALSE(RestoreMayComeYet(absl::OkStatus()));
  work_->OnRestored(absl::OkStatus());
  EXPECT_EQ(Said().restore_waits(), "");
  for (const absl::Status& bad :
       {absl::DataLossError("bad"), absl::NotFoundError("bad"), absl::InvalidArgumentError("bad")}) {
    EXPECT_FALSE(RestoreMayComeYet(bad));
    work_->OnRestored(bad);
    EXPECT_EQ(Said().restore_error(), "bad");
    EXPECT_EQ(Said().restore_waits(), "");
    work_->Begin();
    EXPECT_EQ(Said().restore_error(), "") << "of the history before";
  }
}

}  // namespace
}  // namespace downpour::core
