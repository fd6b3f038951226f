#include "trainer/core/restore.h"

#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace downpour::core {
namespace {

FoundCheckpoint Make(const std::string& name, const std::string& uid) {
  FoundCheckpoint found{"/store", name, {}};
  found.manifest.set_job_uid(uid);
  v1::TensorSpec* tensor = found.manifest.add_tensors();
  tensor->set_name("fc.weight");
  tensor->set_type(v1::FLOAT32);
  tensor->add_shape(4);
  v1::DataPlan* data = found.manifest.mutable_data();
  data->set_sample_count(100);
  data->set_batch_size(5);
  data->set_updates_per_shard(4);
  data->set_epochs(3);
  data->set_seed(7);
  found.manifest.mutable_optimizer()->set_type(v1::SGD);
  return found;
}

v1::TrainingConfig Config(v1::ResumeMode resume) {
  v1::TrainingConfig config;
  config.set_job_uid("mine");
  config.set_batch_size(5);
  config.set_epochs(3);
  config.set_seed(7);
  config.mutable_optimizer()->set_type(v1::SGD);
  config.mutable_checkpoint()->set_resume(resume);
  config.mutable_checkpoint()->set_resume_uri("/elsewhere");
  return config;
}

std::string Chosen(const FoundCheckpoints& found, v1::ResumeMode resume,
                   const std::map<std::string, std::string>& unusable = {}) {
  const auto chosen = ChooseCheckpoint(found, Config(resume), unusable);
  if (!chosen.ok()) return std::string(chosen.status().message());
  return chosen->has_value() ? (*chosen)->name : "none";
}

TEST(ChooseCheckpointTest, AJobThatMadeOneGoesOnFromItsNewestWhateverTheManifestSays) {
  FoundCheckpoints found;
  found.own = {Make("theirs", "other"), Make("newest", "mine"), Make("older", "mine")};
  found.source = {Make("elsewhere", "other")};
  for (const v1::ResumeMode resume : {v1::RESUME_LATEST, v1::RESUME_NEVER, v1::RESUME_FROM}) {
    EXPECT_EQ(Chosen(found, resume), "newest");
    EXPECT_EQ(Chosen(found, resume, {{"/store/newest", "torn"}}), "older");
  }
}

TEST(ChooseCheckpointTest, OtherwiseTheManifestDecides) {
  FoundCheckpoints found;
  found.own = {Make("theirs", "other"), Make("before", "other")};
  found.source = {Make("elsewhere", "another")};
  EXPECT_EQ(Chosen(found, v1::RESUME_LATEST), "theirs");
  EXPECT_EQ(Chosen(found, v1::RESUME_LATEST, {{"/store/theirs", "torn"}}), "before");
  EXPECT_EQ(Chosen(found, v1::RESUME_NEVER), "none");
  EXPECT_EQ(Chosen(found, v1::RESUME_FROM), "elsewhere");
  EXPECT_EQ(Chosen({}, v1::RESUME_LATEST), "none");
  found.skipped = {{"/elsewhere", "cut-9", "torn"}};
  EXPECT_EQ(Chosen(found, v1::RESUME_FROM, {{"/store/elsewhere", "wrong checksum"}}),
            "no usable checkpoint in /elsewhere; /store/elsewhere: wrong checksum; /elsewhere/cut-9: torn");
}

TEST(CheckFitsTest, NamesWhatDiffersOnBothSides) {
  const FoundCheckpoint checkpoint = Make("cut-1", "mine");
  std::vector<v1::TensorSpec> tensors(checkpoint.manifest.tensors().begin(), checkpoint.manifest.tensors().end());
  v1::TrainingConfig config = Config(v1::RESUME_LATEST);
  EXPECT_TRUE(CheckFits(checkpoint, config, tensors, 100).ok());
  EXPECT_EQ(CheckFits(checkpoint, config, tensors, 99).message(),
            "the checkpoint /store/cut-1 does not fit: it was made with 100 training samples, there are 99");
  config.set_seed(8);
  EXPECT_EQ(CheckFits(checkpoint, config, tensors, 100).message(),
            "the checkpoint /store/cut-1 does not fit: it was made with spec.training.seed 7, the job has 8");
  config.set_seed(7);
  config.mutable_dataset()->set_shuffle_block(64);
  EXPECT_EQ(
      CheckFits(checkpoint, config, tensors, 100).message(),
      "the checkpoint /store/cut-1 does not fit: it was made with spec.dataset.shuffle Full, the job has Blocks of "
      "64");
  config.clear_dataset();
  config.mutable_optimizer()->set_type(v1::ADAM);
  EXPECT_EQ(
      CheckFits(checkpoint, config, tensors, 100).message(),
      "the checkpoint /store/cut-1 does not fit: it was made with the optimizer SGD, spec.update.optimizer is Adam");
  config.mutable_optimizer()->set_type(v1::SGD);
  config.mutable_optimizer()->set_learning_rate(0.5);
  config.set_batch_size(50);
  config.set_epochs(30);
  EXPECT_TRUE(CheckFits(checkpoint, config, tensors, 100).ok()) << "may be another from then on";
  tensors[0].set_shape(0, 5);
  const std::string message(CheckFits(checkpoint, config, tensors, 100).message());
  EXPECT_NE(message.find("fc.weight [4]"), std::string::npos) << message;
  EXPECT_NE(message.find("[5]"), std::string::npos) << message;
}

TEST(ResumedPlanTest, ChangesTheBatchSizeBehindWhatWasBegun) {
  v1::CheckpointManifest manifest = Make("cut-1", "mine").manifest;
  manifest.mutable_end()->set_dataset_epoch(1);
  manifest.mutable_end()->set_shard(2);
  v1::TrainingConfig config = Config(v1::RESUME_LATEST);
  EXPECT_EQ(ResumedPlan(manifest, config)->proto().changes_size(), 0);
  config.set_batch_size(10);
  config.set_epochs(8);
  DataPlan plan = *ResumedPlan(manifest, config);
  EXPECT_EQ(plan.epochs(), 8u);
  EXPECT_EQ(plan.samples_in_update({1, 1, 0}), 5u);
  EXPECT_EQ(plan.samples_in_update({1, 2, 0}), 10u);
  // Everything of the epoch was begun: from the next one on.
  manifest.mutable_end()->set_shard(5);
  plan = *ResumedPlan(manifest, config);
  EXPECT_EQ(plan.samples_in_update({1, 4, 0}), 5u);
  EXPECT_EQ(plan.samples_in_update({2, 0, 0}), 10u);
  config.set_accumulate(3);
  plan = *ResumedPlan(manifest, config);
  EXPECT_EQ(plan.samples_in_update({1, 4, 0}), 5u);
  EXPECT_EQ(plan.samples_in_update({2, 0, 0}), 30u);
  config.clear_accumulate();
  // Nothing was begun at all.
  manifest.clear_end();
  EXPECT_EQ(ResumedPlan(manifest, config)->samples_in_update({0, 0, 0}), 10u);
}

TEST(BeginWithTest, TheViewNamesTheCheckpointAndGoesOnWithItsPlan) {
  FoundCheckpoint found = Make("cut-1", "mine");
  found.manifest.set_updates(30);
  found.manifest.set_watermark(1);
  found.manifest.mutable_end()->set_dataset_epoch(1);
  v1::View view;
  *view.mutable_tensors() = found.manifest.tensors();
  *view.mutable_data() = found.manifest.data();
  const v1::View before = view;
  v1::TrainingConfig config = Config(v1::RESUME_LATEST);
  config.set_seed(8);
  EXPECT_EQ(BeginWith(found, config, &view).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(view.SerializeAsString(), before.SerializeAsString());
  config.set_seed(7);
  config.set_batch_size(10);
  const absl::StatusOr<Ledger> ledger = BeginWith(found, config, &view);
  ASSERT_TRUE(ledger.ok()) << ledger.status();
  EXPECT_EQ(ledger->watermark, 1u);
  EXPECT_EQ(view.restore().store(), "/store");
  EXPECT_EQ(view.restore().checkpoint(), "cut-1");
  EXPECT_EQ(view.restore().updates(), 30u);
  EXPECT_EQ(DataPlan::Create(view.data())->samples_in_update({1, 0, 0}), 10u);
}

}  // namespace
}  // namespace downpour::core
