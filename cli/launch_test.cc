#include "cli/launch.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace downpour::cli {
namespace {

using ::testing::HasSubstr;

api::TrainingJob MakeJob() {
  api::TrainingJob job;
  job.metadata.name = "demo";
  job.spec.parameter_server.emplace();
  job.spec.dataset = {"IDX", "/data/fashion"};
  return job;
}

TEST(LaunchTest, UidsAre32HexadecimalDigitsAndDiffer) {
  std::set<std::string> uids;
  for (int i = 0; i < 100; ++i) {
    const std::string uid = MakeJobUid();
    EXPECT_THAT(uid, ::testing::MatchesRegex("[0-9a-f]*"));
    EXPECT_EQ(uid.size(), 32u);
    uids.insert(uid);
  }
  EXPECT_EQ(uids.size(), 100u);
}

TEST(LaunchTest, EachRoleGetsItsArguments) {
  const RunPaths paths{"/run"};
  using Words = std::vector<std::string>;
  constexpr api::Strategy kServers = api::Strategy::kParameterServer;
  EXPECT_EQ(MakeProcessSpec(paths, "/bin", 42, kServers, true, api::Role::kCoordinator, 0, 2).command,
            (Words{"/bin/downpour-server", "coordinator", "--config", "/run/config.json", "--incarnation", "2",
                   "--listen", "127.0.0.1:0", "--address-file", "/run/addresses/coordinator-0", "--metrics-listen",
                   "127.0.0.1:0", "--metrics-address-file", "/run/metrics/coordinator-0", "--parent", "42"}));
  EXPECT_EQ(MakeProcessSpec(paths, "/bin", 42, kServers, true, api::Role::kParameterServer, 1, 1).command,
            (Words{"/bin/downpour-server",
                   "ps",
                   "--config",
                   "/run/config.json",
                   "--incarnation",
                   "1",
                   "--index",
                   "1",
                   "--coordinator",
                   "@/run/addresses/coordinator-0",
                   "--listen",
                   "127.0.0.1:0",
                   "--address-file",
                   "/run/addresses/ps-1",
                   "--local-data",
                   "/run/local",
                   "--metrics-listen",
                   "127.0.0.1:0",
                   "--metrics-address-file",
                   "/run/metrics/ps-1",
                   "--parent",
                   "42"}));
  const ProcessSpec worker = MakeProcessSpec(paths, "/bin", 42, kServers, true, api::Role::kWorker, 2, 3);
  EXPECT_EQ(worker.command,
            (Words{"/bin/downpour-worker", "--config", "/run/config.json", "--incarnation", "3", "--index", "2",
                   "--coordinator", "@/run/addresses/coordinator-0", "--local-data", "/run/local", "--metrics-listen",
                   "127.0.0.1:0", "--metrics-address-file", "/run/metrics/worker-2", "--parent", "42"}));
  EXPECT_EQ(worker.log_path, "/run/logs/worker-2.log");
}

TEST(LaunchTest, WithoutSharedMemoryNobodyIsToldWhereItIs) {
  for (const api::Role role : {api::Role::kCoordinator, api::Role::kParameterServer, api::Role::kWorker}) {
    EXPECT_THAT(MakeProcessSpec({"/run"}, "/bin", 42, api::Strategy::kParameterServer, false, role, 0, 1).command,
                ::testing::Not(::testing::Contains("--local-data")));
  }
}

TEST(LaunchTest, AWorkerOfARingHasAnAddressAndOneForTheOthers) {
  const RunPaths paths{"/run"};
  using Words = std::vector<std::string>;
  constexpr api::Strategy kRing = api::Strategy::kAllReduce;
  EXPECT_EQ(MakeProcessSpec(paths, "/bin", 42, kRing, true, api::Role::kWorker, 2, 3).command,
            (Words{"/bin/downpour-worker",
                   "--config",
                   "/run/config.json",
                   "--incarnation",
                   "3",
                   "--index",
                   "2",
                   "--coordinator",
                   "@/run/addresses/coordinator-0",
                   "--listen",
                   "127.0.0.1:0",
                   "--address-file",
                   "/run/addresses/worker-2",
                   "--ring-listen",
                   "127.0.0.1:0",
                   "--metrics-listen",
                   "127.0.0.1:0",
                   "--metrics-address-file",
                   "/run/metrics/worker-2",
                   "--parent",
                   "42"}));
  EXPECT_EQ(
      MakeProcessSpec(paths, "/bin", 42, kRing, true, api::Role::kCoordinator, 0, 1).command,
      MakeProcessSpec(paths, "/bin", 42, api::Strategy::kParameterServer, true, api::Role::kCoordinator, 0, 1).command);
}

TEST(LaunchTest, EveryFileOfTheDataSetMustBeThereGzippedOrNot) {
  std::string folder = ::testing::TempDir() + "/dataset-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  api::TrainingJob job = MakeJob();
  job.spec.dataset.path = folder + "/none";
  EXPECT_THAT(std::string(CheckDataset(job).message()), HasSubstr("spec.dataset.path: " + folder + "/none"));
  job.spec.dataset.path = folder;
  const std::string names[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz",
                               "t10k-labels-idx1-ubyte"};
  for (const std::string& name : names) {
    const absl::Status status = CheckDataset(job);
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    EXPECT_THAT(std::string(status.message()), HasSubstr(name.substr(0, name.find(".gz"))));
    std::ofstream(folder + "/" + name) << "x";
  }
  EXPECT_TRUE(CheckDataset(job).ok()) << CheckDataset(job);
  std::filesystem::remove(folder + "/" + names[2]);
  std::filesystem::remove(folder + "/" + names[3]);
  EXPECT_TRUE(absl::IsInvalidArgument(CheckDataset(job)));
  job.spec.training.evaluate = false;
  EXPECT_TRUE(CheckDataset(job).ok()) << "what is not read is not asked for: " << CheckDataset(job);
  job.spec.dataset.path = folder + "/" + names[0];
  EXPECT_TRUE(absl::IsInvalidArgument(CheckDataset(job))) << "a file is no directory";
  std::filesystem::remove_all(folder);
}

TEST(LaunchTest, FreeSpaceIsCompared) {
  EXPECT_TRUE(CheckFreeSpace(::testing::TempDir(), 1).ok());
  const absl::Status status = CheckFreeSpace(::testing::TempDir(), std::uint64_t{1} << 62);
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("MiB"));
}

TEST(LaunchTest, MissingProgramsAreNamed) {
  const absl::Status status = CheckBinaries("/nowhere");
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nowhere/downpour-server"));
}

}  // namespace
}  // namespace downpour::cli
