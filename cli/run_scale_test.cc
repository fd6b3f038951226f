#include "cli/run_scale.h"

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include "cli/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/api/manifest.h"

namespace downpour::cli {
namespace {

using ::testing::HasSubstr;

api::TrainingJob MakeJob() {
  const api::ParsedManifest manifest = api::ParseManifest(R"(
apiVersion: training.downpour.dev/v1alpha1
kind: TrainingJob
metadata: {name: demo}
spec:
  parameterServer: {replicas: 2, replicationFactor: 2}
  worker: {replicas: 3}
  model: {name: MLP}
  dataset: {format: IDX, path: /data}
)");
  EXPECT_TRUE(manifest.errors.empty()) << manifest.errors.front().ToString();
  return manifest.job;
}

class RunScaleTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/scale-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    paths_.root = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(paths_.root); }

  RunPaths paths_;
};

TEST_F(RunScaleTest, AJobThatIsScaledIsTheSameOtherwise) {
  api::TrainingJob job = MakeJob();
  job.metadata.uid = "abc";
  const absl::StatusOr<api::TrainingJob> scaled = ScaledJob(job, {4, std::nullopt});
  ASSERT_TRUE(scaled.ok()) << scaled.status();
  api::TrainingJob expected = job;
  expected.spec.parameter_server->replicas = 4;
  expected.metadata.generation = 2;
  EXPECT_EQ(scaled->spec, expected.spec);
  EXPECT_EQ(scaled->metadata, expected.metadata);

  EXPECT_EQ(ScaledJob(job, {std::nullopt, 7})->spec.worker.replicas, 7);
}

TEST_F(RunScaleTest, WhatNoManifestMaySayIsRefusedByItsField) {
  const absl::Status status = ScaledJob(MakeJob(), {1, std::nullopt}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("spec.parameterServer.replic"));
}

TEST_F(RunScaleTest, AWishIsTakenOnce) {
  EXPECT_FALSE(TakeScaleWish(paths_)->has_value());
  ASSERT_TRUE(PutScaleWish(paths_, {4, std::nullopt}).ok());
  ASSERT_TRUE(PutScaleWish(paths_, {std::nullopt, 5}).ok());
  const absl::StatusOr<std::optional<ScaleWish>> wish = TakeScaleWish(paths_);
  ASSERT_TRUE(wish.ok() && wish->has_value()) << wish.status();
  EXPECT_FALSE((*wish)->ps.has_value());
  EXPECT_EQ((*wish)->workers, 5);
  EXPECT_FALSE(TakeScaleWish(paths_)->has_value());
}

TEST_F(RunScaleTest, WhatIsNoWishIsTakenAwayToo) {
  for (const char* text : {"", "{", "[]", R"({"ps": "two"})", R"({"workers": 1.5})"}) {
    ASSERT_TRUE(WriteFileDurably(paths_.Scale(), text).ok());
    const absl::Status status = TakeScaleWish(paths_).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("scale.json")) << text;
    EXPECT_FALSE(TakeScaleWish(paths_)->has_value()) << text;
  }
}

TEST_F(RunScaleTest, AJobWithoutParameterServersGetsNone) {
  api::TrainingJob job = MakeJob();
  job.spec.strategy = api::Strategy::kAllReduce;
  job.spec.update.mode = api::UpdateMode::kSynchronous;
  job.spec.parameter_server.reset();
  const absl::Status status = ScaledJob(job, {2, 4}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_EQ(status.message(),
            "--ps: demo has no parameter servers (spec.strategy is AllReduce), only --workers can change");
  const absl::StatusOr<api::TrainingJob> scaled = ScaledJob(job, {std::nullopt, 4});
  ASSERT_TRUE(scaled.ok()) << scaled.status();
  EXPECT_EQ(scaled->spec.worker.replicas, 4);
  EXPECT_FALSE(scaled->spec.parameter_server.has_value());
}

}  // namespace
}  // namespace downpour::cli
