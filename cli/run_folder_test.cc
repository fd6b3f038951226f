#include "cli/run_folder.h"

#include <filesystem>
#include <optional>
#include <random>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/api/manifest.h"

namespace downpour::cli {
namespace {

namespace fs = std::filesystem;

class RunFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/runs-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    base = fs::canonical(pattern).string();
  }
  void TearDown() override { fs::remove_all(base); }

  std::string base;
};

TEST_F(RunFolderTest, NumbersGoOnFromTheHighest) {
  const std::string runs = base + "/runs";
  EXPECT_THAT(ListRuns(runs), ::testing::IsEmpty());
  for (const char* expected : {"demo-1", "demo-2"}) {
    const absl::StatusOr<RunFolder> folder = RunFolder::Create("", runs, "demo");
    ASSERT_TRUE(folder.ok()) << folder.status();
    EXPECT_EQ(folder->paths().root, runs + "/" + expected);
    EXPECT_TRUE(fs::is_directory(folder->paths().root + "/logs"));
  }
  fs::create_directories(runs + "/demo-41");
  fs::create_directories(runs + "/demo-x");
  fs::create_directories(runs + "/other-99");
  fs::remove_all(runs + "/demo-1");
  EXPECT_EQ(RunFolder::Create("", runs, "demo")->paths().root, runs + "/demo-42");
  EXPECT_EQ(RunFolder::Create("", runs, "demo-4")->paths().root, runs + "/demo-4-1");
}

TEST_F(RunFolderTest, AChosenFolderMustBeEmpty) {
  const std::string chosen = base + "/a/b";
  {
    absl::StatusOr<RunFolder> folder = RunFolder::Create(chosen, "", "demo");
    ASSERT_TRUE(folder.ok()) << folder.status();
    EXPECT_TRUE(absl::IsAlreadyExists(RunFolder::Create(chosen, "", "demo").status()));
    folder->Discard();
  }
  EXPECT_FALSE(fs::exists(chosen)) << "it was made for the run";
  fs::create_directories(chosen);
  RunFolder::Create(chosen, "", "demo")->Discard();
  EXPECT_TRUE(fs::is_empty(chosen)) << "the user's own folder stays";
  EXPECT_TRUE(RunFolder::Create(chosen, "", "demo").ok());
  ASSERT_TRUE(WriteFileDurably(base + "/file", "x").ok());
  EXPECT_FALSE(RunFolder::Create(base + "/file", "", "demo").ok());
}

TEST_F(RunFolderTest, IsHeldWhileItLives) {
  std::optional<absl::StatusOr<RunFolder>> folder = RunFolder::Create(base + "/run", "", "demo");
  ASSERT_TRUE(folder->ok());
  EXPECT_TRUE(RunIsHeld(base + "/run"));
  EXPECT_FALSE(IsRunFolder(base + "/run"));
  ASSERT_TRUE(WriteFileDurably((*folder)->paths().Job(), "{}").ok());
  EXPECT_TRUE(IsRunFolder(base + "/run"));
  EXPECT_EQ(ListRuns(base), std::vector<std::string>{base + "/run"});
  folder.reset();
  EXPECT_FALSE(RunIsHeld(base + "/run"));
  EXPECT_FALSE(RunIsHeld(base + "/none"));
}

RunState RandomState(unsigned seed) {
  std::mt19937 random(seed);
  RunState state;
  state.job_uid = "uid";
  state.start_time = static_cast<double>(random() % 1000000) / 8;
  state.status.phase = "Running";
  state.status.restarts_total = static_cast<int>(random() % 5);
  for (int i = 0; i < static_cast<int>(random() % 5); ++i) {
    Process process;
    process.role = static_cast<api::Role>(random() % 3);
    process.index = i;
    process.incarnation = 1 + static_cast<int>(random() % 9);
    process.name = ProcessName(process.role, i);
    process.uid = ProcessUid(process.role, i, process.incarnation);
    process.pid = static_cast<int>(random() % 100000);
    process.start_ticks = random();
    process.created_time = static_cast<double>(random() % 1000000) / 8;
    process.log_path = "/logs/\xff\"\n";
    process.stop_requested = random() % 2 == 0;
    if (random() % 2 == 0) {
      process.finished_time = process.created_time + 1;
      process.exit_code = static_cast<int>(random() % 200);
    }
    state.status.incarnations[process.name] = process.incarnation;
    state.processes.push_back(process);
  }
  return state;
}

TEST_F(RunFolderTest, TheStateIsReadBack) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    const RunState state = RandomState(seed);
    const absl::StatusOr<RunState> read = RunStateFromJson(RunStateToJson(state));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->job_uid, state.job_uid);
    EXPECT_EQ(read->start_time, state.start_time);
    EXPECT_EQ(api::StatusToJson(read->status), api::StatusToJson(state.status));
    ASSERT_EQ(read->processes.size(), state.processes.size());
    for (std::size_t i = 0; i < state.processes.size(); ++i) {
      EXPECT_EQ(read->processes[i].uid, state.processes[i].uid);
      EXPECT_EQ(read->processes[i].pid, state.processes[i].pid);
      EXPECT_EQ(read->processes[i].start_ticks, state.processes[i].start_ticks);
      EXPECT_EQ(read->processes[i].created_time, state.processes[i].created_time);
      EXPECT_EQ(read->processes[i].finished_time, state.processes[i].finished_time);
      EXPECT_EQ(read->processes[i].exit_code, state.processes[i].exit_code);
      EXPECT_EQ(read->processes[i].stop_requested, state.processes[i].stop_requested);
    }
  }
}

TEST_F(RunFolderTest, ADamagedStateIsAnErrorAndNeverACrash) {
  const std::string good = RunStateToJson(RandomState(3));
  for (unsigned seed = 0; seed < 500; ++seed) {
    std::mt19937 random(seed);
    std::string damaged = good.substr(0, random() % (good.size() - 1));  // without its newline it is whole
    EXPECT_FALSE(RunStateFromJson(damaged).ok());
    damaged = good;
    damaged[random() % damaged.size()] = static_cast<char>(random());
    const absl::StatusOr<RunState> read = RunStateFromJson(damaged);
    EXPECT_TRUE(read.ok() || !read.status().message().empty());
  }
  EXPECT_FALSE(RunStateFromJson("[]").ok());
}

TEST_F(RunFolderTest, AnAddressHasNoLineEnd) {
  const std::string path = base + "/address";
  EXPECT_TRUE(absl::IsNotFound(ReadAddress(path).status()));
  ASSERT_TRUE(WriteFileDurably(path, "\n").ok());
  EXPECT_TRUE(absl::IsNotFound(ReadAddress(path).status()));
  ASSERT_TRUE(WriteFileDurably(path, "127.0.0.1:99\n").ok());
  EXPECT_EQ(*ReadAddress(path), "127.0.0.1:99");
}

}  // namespace
}  // namespace downpour::cli
