#include "trainer/data/index_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "trainer/data/encoding.h"
#include "trainer/data/files/testing/memory_files.h"
#include "trainer/wire/crc32c.h"

namespace downpour::data {
namespace {

using ::testing::HasSubstr;

class IndexFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/index-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    cache_ = folder_ + "/a/cache";
    files_.Put("a", "0123456789", 3);
    files_.Put("b", "01234", 4);
    files_.Put("none", "", 5);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  absl::StatusOr<IndexFile> Open(const std::string& format = "test") {
    return OpenOrBuild(files_, paths_, format, cache_, [this](IndexBuilder& builder) {
      ++built_;
      for (const IndexEntry& entry : entries_) {
        if (absl::Status added = builder.Add(entry); !added.ok()) return added;
      }
      builder.SetNotes("notes");
      return absl::OkStatus();
    });
  }

  void ExpectSound(const absl::StatusOr<IndexFile>& index) const {
    ASSERT_TRUE(index.ok()) << index.status();
    ASSERT_EQ(index->size(), static_cast<std::int64_t>(entries_.size()));
    for (std::int64_t i = 0; i < index->size(); ++i) {
      EXPECT_EQ(index->entry(i), entries_[static_cast<std::size_t>(i)]);
    }
    EXPECT_EQ(index->notes(), "notes");
    EXPECT_EQ(index->files().size(), paths_.size());
  }

  std::string Read() const {
    std::ifstream file(IndexPath(paths_, "test", cache_), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  void Write(const std::string& bytes) const {
    const std::string path = IndexPath(paths_, "test", cache_);
    std::filesystem::remove(path);  // one that is open is never changed
    std::ofstream(path, std::ios::binary) << bytes;
  }

  std::string folder_;
  std::string cache_;
  MemoryFiles files_;
  std::vector<std::string> paths_ = {"none", "a", "none", "b", "none"};
  std::vector<IndexEntry> entries_ = {{1, 0, 4}, {1, 4, 6}, {1, 10, 0}, {3, 0, 5}};
  int built_ = 0;
};

TEST_F(IndexFileTest, IsBuiltOnceAndReused) {
  const auto built = Open();
  ExpectSound(built);
  EXPECT_FALSE(built->reused());
  const auto reused = Open();
  ExpectSound(reused);
  EXPECT_TRUE(reused->reused());
  EXPECT_EQ(built_, 1);
  EXPECT_EQ(reused->first(0), 0);
  EXPECT_EQ(reused->first(1), 0);
  EXPECT_EQ(reused->first(2), 3);
  EXPECT_EQ(reused->first(4), 4);
  EXPECT_EQ(reused->first(5), 4);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(cache_), {}), 1) << "no temporary file is left";
}

TEST_F(IndexFileTest, WithoutADirectoryItIsBuiltEachTime) {
  cache_.clear();
  ExpectSound(Open());
  ExpectSound(Open());
  EXPECT_EQ(built_, 2);
  entries_.clear();
  ExpectSound(Open());
  paths_.clear();
  ExpectSound(Open());
}

TEST_F(IndexFileTest, WhateverIsDifferentMakesANewOne) {
  const auto first = Open();
  ASSERT_TRUE(first.ok()) << first.status();
  int expected = 1;
  const auto expect_built = [&](const char* what) {
    ExpectSound(Open());
    EXPECT_EQ(built_, ++expected) << what;
    ExpectSound(Open());
    EXPECT_EQ(built_, expected) << what;
  };
  files_.Put("b", "01234", 5);
  expect_built("the time");
  files_.Put("b", "012345", 5);
  expect_built("the size");
  files_.Put("b", "x12345", 5);
  expect_built("the content");
  paths_ = {"none", "a", "a", "b"};
  expect_built("the paths");
  ExpectSound(Open("another"));
  EXPECT_EQ(built_, expected + 1);
  EXPECT_EQ(first->entry(3), (IndexEntry{3, 0, 5})) << "what is in use stays";
}

TEST_F(IndexFileTest, FirstAndLast64KiBAreLookedAt) {
  std::string content(300'000, 'x');
  files_.Put("b", content, 5);
  ExpectSound(Open());
  for (const auto& [position, built] : std::vector<std::pair<std::size_t, int>>{
           {0, 2}, {65'535, 3}, {65'536, 3}, {300'000 - 65'537, 3}, {300'000 - 65'536, 4}, {299'999, 5}}) {
    content[position] = 'y';
    files_.Put("b", content, 5);
    ExpectSound(Open());
    EXPECT_EQ(built_, built) << position;
  }
}

// Whatever is done to the file, what is used is right.
TEST_F(IndexFileTest, BrokenOnesAreBuiltAnew) {
  ExpectSound(Open());
  const std::string whole = Read();
  int expected = 1;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string flipped = whole;
    flipped[i] = static_cast<char>(flipped[i] ^ (1 << i % 8));
    for (const std::string& broken : {flipped, whole.substr(0, i)}) {
      Write(broken);
      ExpectSound(Open());
      EXPECT_EQ(built_, ++expected) << i;
    }
  }
  Write(whole + "x");
  ExpectSound(Open());
  EXPECT_EQ(built_, ++expected);
  EXPECT_EQ(Read(), whole);
}

// With right checksums: an entry beyond its file is not used.
TEST_F(IndexFileTest, EntriesBeyondTheirFileAreNotUsed) {
  ExpectSound(Open());
  std::string bytes = Read();
  const auto put = [&bytes](std::size_t at, std::uint64_t number, std::size_t count) {
    bytes.replace(at, count, std::string(reinterpret_cast<const char*>(&number), count));
  };
  put(48 + 8, 11, 8);
  put(32, wire::Crc32c(AsBytes(absl::string_view(bytes).substr(48, 16 * entries_.size()))), 4);
  put(44, wire::Crc32c(AsBytes(absl::string_view(bytes).substr(0, 44))), 4);
  Write(bytes);
  ExpectSound(Open());
  EXPECT_EQ(built_, 2);
}

// docs/formats.md.
TEST_F(IndexFileTest, LayoutIsAsDocumented) {
  paths_ = {"a", "b"};
  entries_ = {{0, 1, 2}, {1, 3, 1}};
  ExpectSound(Open());
  std::string entries;
  std::string description;
  const auto put = [](std::string* to, std::uint64_t number, std::size_t count) {
    to->append(reinterpret_cast<const char*>(&number), count);
  };
  for (const std::uint64_t number : {1, 2, 3, 1}) put(&entries, number, 8);
  put(&description, 4, 4);
  description += "test";
  put(&description, 2, 4);
  put(&description, 1, 4);
  description += "a";
  put(&description, 10, 8);
  put(&description, 3, 8);
  put(&description, wire::Crc32c(AsBytes("0123456789")), 4);
  put(&description, 0, 8);
  put(&description, 1, 4);
  description += "b";
  put(&description, 5, 8);
  put(&description, 4, 8);
  put(&description, wire::Crc32c(AsBytes("01234")), 4);
  put(&description, 1, 8);
  description += "notes";
  std::string header("DPIX\x01\0\x30\0", 8);
  put(&header, 48 + entries.size() + description.size(), 8);
  put(&header, 2, 8);
  put(&header, description.size(), 8);
  put(&header, wire::Crc32c(AsBytes(entries)), 4);
  put(&header, wire::Crc32c(AsBytes(description)), 4);
  put(&header, 0, 4);
  put(&header, wire::Crc32c(AsBytes(header)), 4);
  EXPECT_EQ(Read(), header + entries + description);
}

TEST_F(IndexFileTest, ManyEntriesAreKept) {
  for (std::uint64_t i = 0; i < 200'000; ++i) entries_.push_back({3, i % 5, 1});
  ExpectSound(Open());
  ExpectSound(Open());
  EXPECT_EQ(built_, 1);
}

TEST_F(IndexFileTest, ErrorsArePassedOn) {
  files_.FailReads(2, absl::UnavailableError("gone"));
  EXPECT_EQ(Open().status(), absl::UnavailableError("a: gone"));
  entries_ = {{1, 0, 1}, {0, 0, 0}};
  EXPECT_EQ(Open().status(), absl::InternalError("index of test: a sample in file 0 after one in file 1 of 5"));
  entries_ = {{5, 0, 1}};
  EXPECT_EQ(Open().status(), absl::InternalError("index of test: a sample in file 5 after one in file 0 of 5"));
  entries_ = {{1, 5, 6}};
  EXPECT_EQ(Open().status(), absl::InternalError("a: a sample of 6 bytes at byte 5, but the file has 10 bytes"));
  EXPECT_EQ(
      OpenOrBuild(files_, paths_, "test", cache_, [](IndexBuilder&) { return absl::DataLossError("row"); }).status(),
      absl::DataLossError("row"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(cache_), {}), 0) << "nothing is left of any of them";
  paths_ = {"nowhere"};
  EXPECT_TRUE(absl::IsNotFound(Open().status()));
}

TEST_F(IndexFileTest, ADirectoryThatCannotBeMadeIsNamed) {
  std::ofstream(folder_ + "/file") << "x";
  cache_ = folder_ + "/file/cache";
  const absl::Status status = Open().status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr(cache_ + ": the directory for indices of data sets cannot be"));
}

TEST_F(IndexFileTest, OfThoseThatBeginTogetherOneBuilds) {
  std::atomic<int> built = 0;
  std::vector<std::thread> threads;
  threads.reserve(8);
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([this, &built] {
      const auto index = OpenOrBuild(files_, paths_, "test", cache_, [&built](IndexBuilder& builder) {
        ++built;
        return builder.Add({1, 1, 2});
      });
      EXPECT_TRUE(index.ok()) << index.status();
      EXPECT_EQ(index->size(), 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(built, 1);
}

}  // namespace
}  // namespace downpour::data
