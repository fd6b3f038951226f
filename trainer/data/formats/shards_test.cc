#include "trainer/data/formats/shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "trainer/data/files/testing/memory_files.h"

namespace downpour::data {
namespace {

using ::testing::ElementsAre;

absl::StatusOr<std::vector<std::string>> List(const Files& files, const std::string& path) {
  return ListShards(
      files, path, [](absl::string_view name) { return absl::EndsWith(name, ".tar"); }, "a .tar file");
}

TEST(ShardsTest, RangesAreAsLongAsTheirFirstNumber) {
  EXPECT_THAT(*ExpandRange("a/train-{0008..0011}.tar"),
              ElementsAre("a/train-0008.tar", "a/train-0009.tar", "a/train-0010.tar", "a/train-0011.tar"));
  EXPECT_THAT(*ExpandRange("{8..10}"), ElementsAre("8", "9", "10"));
  EXPECT_THAT(*ExpandRange("x{3..3}y"), ElementsAre("x3y"));
  EXPECT_THAT(*ExpandRange("plain.tar"), ElementsAre("plain.tar"));
}

TEST(ShardsTest, RangesThatAreNoneAreRefused) {
  for (const char* path : {"a{", "a{}", "a{0}", "a{0..}", "a{..9}", "a{0..x}", "a{-1..2}", "a{2..1}", "a{0...2}",
                           "a{0..1", "a{0..1}{0..1}", "a{1,2}", "a{99999999999999999999..1}"}) {
    EXPECT_EQ(ExpandRange(path).status().message(),
              std::string(path) + ": has no range of shards in its braces, expected one as {0000..0009}");
  }
  EXPECT_EQ(ExpandRange("a{0..1000000}").status().message(),
            "a{0..1000000}: is a range of 1000001 shards, expected 1000000 at most");
}

TEST(ShardsTest, ADirectoryIsItsFilesOfTheFormat) {
  MemoryFiles files;
  files.Put("data/b.tar", "");
  files.Put("data/a/c.tar", "");
  files.Put("data/readme", "");
  EXPECT_THAT(*List(files, "data"), ElementsAre("data/a/c.tar", "data/b.tar"));
  EXPECT_THAT(*List(files, "data/readme"), ElementsAre("data/readme")) << "a file is taken by whatever name";
  EXPECT_THAT(*List(files, "data/{1..2}.tar"), ElementsAre("data/1.tar", "data/2.tar"));
}

TEST(ShardsTest, WhatIsThereInsteadIsTold) {
  MemoryFiles files;
  files.Put("data/a.tar.gz", "");
  files.Put("data/readme", "");
  files.Put("hidden/.a.tar", "");
  const absl::Status other = List(files, "data").status();
  EXPECT_TRUE(absl::IsNotFound(other));
  EXPECT_EQ(other.message(), "data: of 2 files, as a.tar.gz, none is a .tar file");
  EXPECT_EQ(List(files, "hidden").status().message(), "hidden: has no file, expected a .tar file");
  EXPECT_TRUE(absl::IsNotFound(List(files, "none").status()));
}

}  // namespace
}  // namespace downpour::data
