#include "cli/manifest_input.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace downpour::cli {
namespace {

TEST(ManifestInputTest, OverridesAreCutAtTheFirstSign) {
  using Pair = std::pair<std::string, std::string>;
  EXPECT_EQ(*ParseOverride("worker.replicas=3"), Pair("worker.replicas", "3"));
  EXPECT_EQ(*ParseOverride("dataset.path=/a=b"), Pair("dataset.path", "/a=b"));
  EXPECT_EQ(*ParseOverride("output.directory="), Pair("output.directory", ""));
  for (const char* bad : {"", "=", "=3", "worker.replicas"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseOverride(bad).status())) << bad;
  }
}

TEST(ManifestInputTest, AFileThatCannotBeReadIsOneErrorWithoutItsName) {
  const api::ParsedManifest manifest = LoadManifest("/nowhere/job.yaml", {});
  ASSERT_EQ(manifest.errors.size(), 1u);
  EXPECT_THAT(manifest.errors[0].ToString(), ::testing::Not(::testing::HasSubstr("/nowhere/job.yaml")));
  EXPECT_FALSE(manifest.errors[0].message.empty());
}

TEST(ManifestInputTest, AMinibatchLargerThanTheDataSetIsAWarning) {
  api::TrainingJobSpec spec;
  spec.training.batch_size = 256;
  EXPECT_TRUE(FindWarnings(spec, 256).empty());
  const std::vector<api::FieldError> warnings = FindWarnings(spec, 255);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(
      warnings[0].ToString(),
      "spec.training.batchSize: 256 is more than the 255 samples of the data set, so each epoch is a single update "
      "of one worker");
  spec.training.batch_size = 64;
  spec.update.accumulate = 4;
  EXPECT_TRUE(FindWarnings(spec, 256).empty());
  EXPECT_EQ(
      FindWarnings(spec, 255).at(0).ToString(),
      "spec.update.accumulate: 4 minibatches of 64 are more than the 255 samples of the data set, so each epoch is "
      "a single update of one worker");
  spec.update.accumulate = 1;
  spec.update.local_steps = 5;
  spec.update.optimizer.learning_rate = 1;
  ASSERT_EQ(FindWarnings(spec, 256).size(), 1u);
  EXPECT_EQ(FindWarnings(spec, 256)[0].path, "spec.update.localSteps");
  spec.dataset.path = "/nowhere";
  EXPECT_TRUE(FindWarnings(spec).empty());
}

TEST(ManifestInputTest, RemoteDataInAnyOrderAreAWarning) {
  api::TrainingJobSpec spec;
  spec.dataset = {"CSV", "s3://bucket/train.csv"};
  const std::vector<api::FieldError> warnings = FindWarnings(spec);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0].ToString(),
            "spec.dataset.shuffle: Full reads remote data in any order, Blocks reads what lies together");
  spec.dataset.shuffle_blocks = true;
  EXPECT_TRUE(FindWarnings(spec).empty());
}

TEST(ManifestInputTest, LocalStepsOfWhichNextToNothingIsTakenOverAreAWarning) {
  api::TrainingJobSpec spec;
  spec.update.optimizer.learning_rate = 0.01;
  EXPECT_TRUE(FindWarnings(spec, 10000).empty());
  spec.update.local_steps = 8;
  const std::vector<api::FieldError> warnings = FindWarnings(spec, 10000);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(
      warnings[0].ToString(),
      "spec.update.optimizer.learningRate: 0.01 is how much of what 8 local steps change is taken over, usually it "
      "is near 1");
}

}  // namespace
}  // namespace downpour::cli
