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
  spec.dataset.path = "/nowhere";
  EXPECT_TRUE(FindWarnings(spec).empty());
}

}  // namespace
}  // namespace downpour::cli
