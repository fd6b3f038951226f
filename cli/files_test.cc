#include "cli/files.h"

#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <random>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace downpour::cli {
namespace {

using ::testing::HasSubstr;

class FilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/files-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  std::size_t Entries() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()));
  }

  std::string folder;
};

// While it lives no file may grow beyond the limit: what a full disk does to a write.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

TEST_F(FilesTest, WritesAndReplaces) {
  std::mt19937 random(1);
  const std::string path = folder + "/a";
  for (int i = 0; i < 50; ++i) {
    std::string content(random() % 100000, '\0');
    for (char& byte : content) byte = static_cast<char>(random());
    ASSERT_TRUE(WriteFileDurably(path, content).ok());
    EXPECT_EQ(*ReadFile(path), content);
    EXPECT_EQ(Entries(), 1u) << "nothing else is left";
  }
}

TEST_F(FilesTest, AFailedWriteLeavesTheOldContentAndNothingElse) {
  const std::string path = folder + "/a";
  ASSERT_TRUE(WriteFileDurably(path, "old").ok());
  for (const rlim_t limit : {0, 1, 4095, 99999}) {
    absl::Status status;
    {
      const FileSizeLimit full(limit);
      status = WriteFileDurably(path, std::string(100000, 'x'));
    }
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
    EXPECT_EQ(*ReadFile(path), "old");
    EXPECT_EQ(Entries(), 1u);
  }
}

TEST_F(FilesTest, LinesArriveAtOnceAndAFullDiskIsAnError) {
  const std::string path = folder + "/lines";
  absl::StatusOr<LineFile> file = LineFile::Create(path);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->Append("one").ok());
  EXPECT_EQ(*ReadFile(path), "one\n");
  ASSERT_TRUE(file->Append("two").ok());
  EXPECT_EQ(*ReadFile(path), "one\ntwo\n");
  {
    const FileSizeLimit full(8);
    EXPECT_TRUE(absl::IsResourceExhausted(file->Append("three")));
  }
  EXPECT_TRUE(absl::IsAlreadyExists(LineFile::Create(path).status()));
}

TEST_F(FilesTest, ErrorsSayWhatAndWhere) {
  EXPECT_TRUE(absl::IsNotFound(ReadFile(folder + "/none").status()));
  ASSERT_TRUE(WriteFileDurably(folder + "/file", "x").ok());
  const absl::Status status = MakeDirectories(folder + "/file/below");
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("/file/below"));
  EXPECT_FALSE(MakeDirectories(folder + "/file").ok());
  EXPECT_FALSE(CheckWritable(folder + "/none").ok());
  EXPECT_TRUE(absl::IsResourceExhausted(ReadFile(folder + "/file", 0).status()));
  EXPECT_FALSE(FreeBytes(folder + "/none").ok());
}

TEST_F(FilesTest, CheckWritableLeavesNothing) {
  ASSERT_TRUE(MakeDirectories(folder + "/a/b/c").ok());
  EXPECT_TRUE(MakeDirectories(folder + "/a/b/c").ok());
  EXPECT_TRUE(CheckWritable(folder + "/a/b/c").ok());
  EXPECT_TRUE(std::filesystem::is_empty(folder + "/a/b/c"));
  EXPECT_GT(*FreeBytes(folder), 0u);
}

}  // namespace
}  // namespace downpour::cli
