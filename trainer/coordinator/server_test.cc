#include "trainer/coordinator/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace downpour::coordinator {
namespace {

using testing::HasSubstr;

core::CoordinatorOptions Options() {
  core::CoordinatorOptions options;
  options.config.set_job_uid("0123456789abcdef0123456789abcdef");
  options.config.set_job_name("job");
  options.config.set_ps_replicas(1);
  options.config.mutable_model()->set_name("LeNet");
  options.config.set_epochs(1);
  options.config.set_batch_size(1);
  options.config.set_mode(v1::ASYNC);
  options.config.mutable_optimizer()->set_type(v1::SGD);
  options.config.mutable_optimizer()->set_learning_rate(0.5);
  return options;
}

TEST(CoordinatorServerTest, TakesFiguresToTensorBoard) {
  const std::string folder = absl::StrCat(testing::TempDir(), "coordinator_server_test.", getpid());
  core::CoordinatorOptions options = Options();
  options.config.mutable_tracking()->mutable_tensorboard()->set_directory(folder + "/board/job");
  auto server = CoordinatorServer::Start(options, "127.0.0.1:0", "");
  ASSERT_TRUE(server.ok()) << server.status();
  (*server)->Stop();
  EXPECT_EQ((*server)->Wait(), absl::OkStatus());
  server->reset();  // with what it still had to tell
  std::filesystem::directory_iterator files(folder + "/board/job");
  ASSERT_NE(files, std::filesystem::directory_iterator());
  EXPECT_TRUE(files->path().filename().string().ends_with(".01234567.1")) << files->path();
  std::ifstream file(files->path());
  const std::string events{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(events, HasSubstr("starting, generation 0: waiting for ps-0 to register"));
  EXPECT_THAT(events, HasSubstr("\"learningRate\": 0.5"));
  std::filesystem::remove_all(folder);
}

TEST(CoordinatorServerTest, RefusesATrackerThatNobodyCanReach) {
  unsetenv("MLFLOW_TRACKING_URI");
  core::CoordinatorOptions options = Options();
  options.config.mutable_tracking()->mutable_mlflow()->set_experiment("Default");
  const auto server = CoordinatorServer::Start(options, "127.0.0.1:0", "");
  EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(server.status().message(), HasSubstr("spec.tracking.mlflow.uri"));
}

}  // namespace
}  // namespace downpour::coordinator
