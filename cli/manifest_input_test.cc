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

}  // namespace
}  // namespace downpour::cli
