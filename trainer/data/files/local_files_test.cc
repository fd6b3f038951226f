#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/data/files/files.h"

namespace downpour::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LocalFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/files-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& content) const {
    const std::string path = folder_ + "/" + name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << content;
    return path;
  }

  std::string folder_;
};

TEST_F(LocalFilesTest, ListsWhatIsBelowSortedWithoutHiddenNames) {
  const std::string b = Write("b", "12");
  const std::string a = Write("a/deep/file", "1");
  Write(".hidden/file", "");
  Write("a/.hidden", "");
  const auto files = LocalFiles().List(folder_);
  ASSERT_TRUE(files.ok()) << files.status();
  ASSERT_EQ(files->size(), 2U);
  EXPECT_EQ((*files)[0].path, a);
  EXPECT_EQ((*files)[1].path, b);
  EXPECT_EQ((*files)[1].bytes, 2U);
  EXPECT_GT((*files)[1].modified, 0);
  EXPECT_EQ(LocalFiles().List(b)->size(), 1U) << "a file is its own list";
}

TEST_F(LocalFilesTest, ReadsRangesAndSaysWhereAFileEnds) {
  const auto file = LocalFiles().Open(Write("file", "0123456789"));
  ASSERT_TRUE(file.ok()) << file.status();
  std::vector<std::uint8_t> bytes(3);
  ASSERT_TRUE((*file)->ReadAt(4, absl::MakeSpan(bytes)).ok());
  EXPECT_THAT(bytes, ElementsAre('4', '5', '6'));
  const absl::Status beyond = (*file)->ReadAt(8, absl::MakeSpan(bytes));
  EXPECT_TRUE(absl::IsDataLoss(beyond));
  EXPECT_THAT(std::string(beyond.message()), HasSubstr("ends at byte 10, expected 1 more"));
  EXPECT_EQ(ReadWhole(**file, 10)->size(), 10U);
  EXPECT_TRUE(absl::IsDataLoss(ReadWhole(**file, 9).status()));
}

TEST_F(LocalFilesTest, WhatIsNotThereIsNamed) {
  const std::string path = folder_ + "/none";
  EXPECT_TRUE(absl::IsNotFound(LocalFiles().List(path).status()));
  const absl::Status open = LocalFiles().Open(path).status();
  EXPECT_TRUE(absl::IsNotFound(open));
  EXPECT_THAT(std::string(open.message()), HasSubstr(path));
  EXPECT_TRUE(absl::IsNotFound(LocalFiles().Open(folder_).status())) << "a directory is no file";
}

}  // namespace
}  // namespace downpour::data
