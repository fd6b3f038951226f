#include "trainer/data/files/testing/memory_files.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace downpour::data {
namespace {

std::vector<std::string> Paths(const absl::StatusOr<std::vector<FileInfo>>& files) {
  std::vector<std::string> paths;
  for (const FileInfo& file : files.value()) paths.push_back(file.path);
  return paths;
}

TEST(MemoryFilesTest, ListsAsADirectoryDoes) {
  MemoryFiles files;
  files.Put("a/c", "12", 7);
  files.Put("a/b/d", "1");
  files.Put("a/.hidden/e", "1");
  files.Put("ab", "1");
  EXPECT_THAT(Paths(files.List("a")), ::testing::ElementsAre("a/b/d", "a/c"));
  EXPECT_THAT(files.List("a/c").value(), ::testing::ElementsAre(FileInfo{"a/c", 2, 7}));
  EXPECT_TRUE(absl::IsNotFound(files.List("c").status()));
  EXPECT_TRUE(absl::IsNotFound(files.Open("a").status()));
}

TEST(MemoryFilesTest, FailsWhenItIsTold) {
  MemoryFiles files;
  files.Put("a", "0123456789");
  const auto file = files.Open("a");
  std::vector<std::uint8_t> bytes(4);
  files.FailReads(2, absl::UnavailableError("gone"), 2);
  EXPECT_TRUE((*file)->ReadAt(0, absl::MakeSpan(bytes)).ok());
  EXPECT_EQ((*file)->ReadAt(0, absl::MakeSpan(bytes)), absl::UnavailableError("a: gone"));
  EXPECT_FALSE((*file)->ReadAt(0, absl::MakeSpan(bytes)).ok());
  EXPECT_TRUE((*file)->ReadAt(6, absl::MakeSpan(bytes)).ok());
  EXPECT_EQ(bytes[0], '6');
  EXPECT_EQ(files.reads(), 4);
  EXPECT_EQ(files.bytes_read(), 16U);
  files.Cut("a", 8);
  EXPECT_EQ((*file)->info().bytes, 10U);
  EXPECT_EQ((*file)->ReadAt(6, absl::MakeSpan(bytes)), absl::DataLossError("a: ends at byte 8, expected 2 more"));
  files.FailOpen("a", absl::PermissionDeniedError("a: no"));
  EXPECT_TRUE(absl::IsPermissionDenied(files.Open("a").status()));
}

}  // namespace
}  // namespace downpour::data
