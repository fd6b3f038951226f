#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "trainer/data/files/file_window.h"
#include "trainer/data/files/new_file.h"
#include "trainer/data/files/open_files.h"
#include "trainer/data/files/testing/memory_files.h"

namespace downpour::data {
namespace {

using ::testing::HasSubstr;

TEST(OpenFilesTest, KeepsTheLastFewOpen) {
  MemoryFiles files;
  for (const char* const path : {"a", "b", "c"}) files.Put(path, "1");
  const OpenFiles open(files, {{"a", 1, 1}, {"b", 1, 1}, {"c", 1, 1}}, 2);
  const auto a = open.Open(0);
  ASSERT_TRUE(a.ok()) << a.status();
  ASSERT_TRUE(open.Open(1).ok());
  EXPECT_EQ(open.Open(0)->get(), a->get());
  ASSERT_TRUE(open.Open(2).ok());  // in place of b
  for (const char* const path : {"a", "b", "c"}) files.Remove(path);
  EXPECT_TRUE(open.Open(0).ok());
  EXPECT_TRUE(open.Open(2).ok());
  EXPECT_TRUE(absl::IsNotFound(open.Open(1).status()));
}

TEST(OpenFilesTest, AnotherFileThanBeforeIsRefused) {
  MemoryFiles files;
  files.Put("a", "12", 1);
  EXPECT_TRUE(absl::IsDataLoss(OpenFiles(files, {{"a", 1, 1}}).Open(0).status()));
  EXPECT_TRUE(absl::IsDataLoss(OpenFiles(files, {{"a", 2, 2}}).Open(0).status()));
  EXPECT_TRUE(OpenFiles(files, {{"a", 2, 1}}).Open(0).ok());
}

TEST(FileWindowTest, GoesThroughAFile) {
  std::string content(3'000'000, 'x');
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 7 + i / 251);
  MemoryFiles files;
  files.Put("a", content);
  const auto file = files.Open("a");
  FileWindow window(**file);
  std::string all;
  while (!window.at_end() || !window.text().empty()) {
    if (window.text().size() < 5 && !window.at_end()) {
      ASSERT_TRUE(window.More().ok());
      continue;
    }
    EXPECT_EQ(window.offset(), all.size());
    const std::size_t take = std::min<std::size_t>(window.text().size(), 1 + all.size() % 700'001);
    all += std::string(window.text().substr(0, take));
    window.Consume(take);
  }
  EXPECT_TRUE(all == content);
}

TEST(FileWindowTest, GrowsByDoubling) {
  MemoryFiles files;
  files.Put("a", std::string(std::size_t{40} << 20, 'x'));
  const auto file = files.Open("a");
  FileWindow window(**file);
  while (!window.at_end()) ASSERT_TRUE(window.More().ok());
  EXPECT_EQ(window.text().size(), std::size_t{40} << 20);
  EXPECT_LE(files.reads(), 7);
  files.FailReads(1, absl::UnavailableError("gone"));
  FileWindow failing(**file);
  EXPECT_FALSE(failing.More().ok());
  EXPECT_TRUE(failing.text().empty());
  EXPECT_FALSE(failing.at_end());
}

class NewFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/new-file-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::ptrdiff_t Files() const { return std::distance(std::filesystem::directory_iterator(folder_), {}); }

  std::string folder_;
};

constexpr std::uint8_t kByte[] = {'x'};

TEST_F(NewFileTest, IsThereWhenItIsWhole) {
  const std::string path = folder_ + "/a";
  {
    const auto file = NewFile::Create(path);
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE((*file)->WriteAt(2, kByte).ok());
    EXPECT_FALSE(std::filesystem::exists(path));
    ASSERT_TRUE((*file)->Commit().ok());
  }
  EXPECT_EQ(std::filesystem::file_size(path), 3U);
  EXPECT_EQ(Files(), 1);
}

TEST_F(NewFileTest, LeavesNothingWithoutCommit) {
  const std::string path = folder_ + "/a";
  std::ofstream(path) << "old";
  ASSERT_TRUE((*NewFile::Create(path))->WriteAt(0, kByte).ok());
  EXPECT_EQ(Files(), 1);
  EXPECT_EQ(std::filesystem::file_size(path), 3U);
}

TEST_F(NewFileTest, AnonymousFilesHaveNoName) {
  const auto file = NewFile::CreateAnonymous();
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->WriteAt(0, kByte).ok());
  ASSERT_TRUE((*file)->Commit().ok());
  struct stat found {};
  ASSERT_EQ(fstat((*file)->descriptor(), &found), 0);
  EXPECT_EQ(found.st_nlink, 0U);
  EXPECT_EQ(found.st_size, 1);
}

TEST_F(NewFileTest, ErrorsNameTheFile) {
  const absl::Status status = NewFile::Create(folder_ + "/none/a").status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr(folder_ + "/none/a: cannot be created: No such file"));
  std::filesystem::create_directories(folder_ + "/b/c");
  const auto file = NewFile::Create(folder_ + "/b");
  EXPECT_THAT(std::string((*file)->Commit().message()), HasSubstr(folder_ + "/b: cannot be renamed: Is a directory"));
}

}  // namespace
}  // namespace downpour::data
