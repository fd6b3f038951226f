#include "cli/model_check.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "cli/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace downpour::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

api::TrainingJob Job(const std::string& model, const std::string& kind) {
  api::TrainingJob job;
  job.spec.parameter_server.emplace();
  job.spec.model.name = model;
  job.spec.dataset = {.format = "Synthetic", .path = ""};
  job.spec.dataset.synthetic.emplace().kind = kind;
  return job;
}

std::string OnlyError(const api::TrainingJob& job) {
  const std::vector<api::FieldError> errors = PlanErrors(job);
  return errors.size() == 1 ? errors[0].ToString() : std::to_string(errors.size()) + " errors";
}

TEST(PlanErrorsTest, AModelHasToFitItsData) {
  EXPECT_THAT(PlanErrors(Job("CifarCNN", "Images")), IsEmpty());
  EXPECT_THAT(OnlyError(Job("CifarCNN", "Text")), HasSubstr("spec.model: CifarCNN cannot take words: i32 [*]"));
  api::TrainingJob job = Job("CifarCNN", "Images");
  job.spec.dataset.synthetic->vocabulary = 7;
  EXPECT_EQ(OnlyError(job), "spec.dataset.synthetic.vocabulary: Images has none, got 7");
}

TEST(PlanErrorsTest, WhatIsNotOnThisMachineIsNoError) {
  api::TrainingJob job = Job("BiLSTM", "Images");
  job.spec.dataset = {.format = "IDX", .path = "/none"};
  EXPECT_THAT(PlanErrors(job), IsEmpty());
}

TEST(PlanErrorsTest, BrokenDataAreFoundAsFarAsTheyAreRead) {
  const std::string path = testing::TempDir() + "/plan_errors.csv";
  std::ofstream(path) << "x,label\n1,0\n2\n";
  api::TrainingJob job = Job("LogReg", "Images");
  job.spec.dataset = {.format = "CSV", .path = path};
  EXPECT_THAT(OnlyError(job), StartsWith("spec.dataset: " + path + ": line 3: found 1 fields, expected 2"));
  EXPECT_THAT(PlanErrors(job, false), IsEmpty());
  std::filesystem::remove(path);
  EXPECT_THAT(PlanErrors(job), IsEmpty()) << "it is not on this machine";
}

TEST(BytesToIndexTest, AreThoseOfFilesThatAreReadFromBeginningToEnd) {
  const std::string folder = testing::TempDir() + "/bytes_to_index";
  std::filesystem::create_directories(folder);
  for (const char* const name : {"/a-0.csv", "/a-1.csv", "/a-2.csv"}) std::ofstream(folder + name) << "x\n1\n";
  api::DatasetSpec dataset{.format = "CSV", .path = folder};
  EXPECT_EQ(BytesToIndex(dataset), 12U);
  dataset.path = folder + "/a-{1..2}.csv";
  EXPECT_EQ(BytesToIndex(dataset), 8U);
  dataset.test_path = folder + "/a-0.csv";
  EXPECT_EQ(BytesToIndex(dataset), 12U);
  dataset.format = "Parquet";
  EXPECT_EQ(BytesToIndex(dataset), 0U);
  dataset.transforms.emplace_back().type = "Tokenize";
  EXPECT_EQ(BytesToIndex(dataset), 12U);
  dataset = {.format = "CSV", .path = "s3://bucket/a.csv"};
  EXPECT_EQ(BytesToIndex(dataset), 0U);
  std::filesystem::remove_all(folder);
}

TEST(PlanErrorsTest, NoPlanKnowsWhatIsInAPlugin) {
  api::TrainingJob job = Job("", "Images");
  EXPECT_FALSE(NeedsTrial(Job("LeNet", "Images").spec.model));
  job.spec.model.plugin = api::PluginSpec{"/none.so", "Net", ""};
  EXPECT_TRUE(NeedsTrial(job.spec.model));
  EXPECT_THAT(PlanErrors(job), IsEmpty());
  job.spec.model.plugin.reset();
  job.spec.model.torch_script = api::TorchScriptSpec{"/none.pt"};
  EXPECT_TRUE(NeedsTrial(job.spec.model));
}

TEST(SplitPathTest, AMessageWithoutAPathIsOfTheField) {
  EXPECT_EQ(SplitPath("spec.model", "spec.model.layers[2]: a: b").ToString(), "spec.model.layers[2]: a: b");
  EXPECT_EQ(SplitPath("spec.model", "out of memory").ToString(), "spec.model: out of memory");
  EXPECT_EQ(SplitPath("spec.dataset", "/data/a.csv: is empty").ToString(), "spec.dataset: /data/a.csv: is empty");
}

class TryModelTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "/try_model_" + testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    absl::StatusOr<SignalWaiter> waiter = SignalWaiter::Create();
    ASSERT_TRUE(waiter.ok()) << waiter.status();
    waiter_.emplace(*std::move(waiter));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // What a worker does that is this script.
  absl::Status Try(const std::string& script) {
    const std::string program = folder_ + "/downpour-worker";
    std::ofstream(program) << "#!/bin/sh\n" << script << "\n";
    EXPECT_EQ(chmod(program.c_str(), 0700), 0);
    return TryModel(folder_, folder_ + "/config.json", folder_ + "/log", 0, SystemClock(), *waiter_);
  }

  std::string folder_;
  std::optional<SignalWaiter> waiter_;
};

TEST_F(TryModelTest, IsAskedForItsConfiguration) {
  EXPECT_TRUE(Try("test \"$*\" = \"check --config " + folder_ + "/config.json\"").ok());
}

TEST_F(TryModelTest, ItsLastLineIsTheReason) {
  const absl::Status refused = Try("echo first; echo 'spec.model.plugin.path: /p.so: is no plug-in' >&2; exit 2");
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.message(), "spec.model.plugin.path: /p.so: is no plug-in");
  const absl::Status failed = Try("echo 'no memory'; exit 1");
  EXPECT_EQ(failed.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(failed.message(), "spec.model: it could not be tried: exit code 1: no memory");
}

TEST_F(TryModelTest, ACrashIsTheModelsFault) {
  const absl::Status crashed = Try("echo 'loads /p.so'; kill -SEGV $$");
  EXPECT_EQ(crashed.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(crashed.message(),
            "spec.model: a worker that only makes it is killed by signal 11 (Segmentation fault); its last line: loads "
            "/p.so");
}

TEST_F(TryModelTest, AProgramThatIsNotThereIsSaid) {
  std::filesystem::remove(folder_ + "/downpour-worker");
  const absl::Status status = TryModel(folder_, "", folder_ + "/log", 0, SystemClock(), *waiter_);
  EXPECT_THAT(std::string(status.message()), HasSubstr(folder_ + "/downpour-worker: cannot be started"));
}

}  // namespace
}  // namespace downpour::cli
