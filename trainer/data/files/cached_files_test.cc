#include "trainer/data/files/cached_files.h"

#include <signal.h>
#include <sys/resource.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/data/files/block_file.h"
#include "trainer/data/files/testing/memory_files.h"
#include "trainer/wire/crc32c.h"

namespace downpour::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::string Pattern(std::size_t bytes, std::uint32_t seed = 1) {
  std::string content(bytes, '\0');
  std::uint32_t state = seed * 2654435761U + 1;
  for (char& byte : content) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<char>(state >> 24);
  }
  return content;
}

absl::StatusOr<std::string> Read(const RandomAccessFile& file, std::uint64_t offset, std::size_t count) {
  std::string bytes(count, '\0');
  const absl::Status status = file.ReadAt(offset, {reinterpret_cast<std::uint8_t*>(bytes.data()), count});
  if (!status.ok()) return status;
  return bytes;
}

class CachedFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/cache-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    options_.directory = folder_ + "/cache";
    options_.block_bytes = 1000;
    options_.capacity_bytes = 1 << 20;
    store_.Put("s3://bucket/a", Pattern(3500));
    Start();
  }
  void TearDown() override {
    cache_.reset();
    std::filesystem::remove_all(folder_);
  }

  // As a new process does.
  void Start() {
    cache_.reset();
    auto cache = CachedFiles::Create(store_, options_);
    ASSERT_TRUE(cache.ok()) << cache.status();
    cache_ = *std::move(cache);
  }

  std::unique_ptr<RandomAccessFile> Open(const std::string& path = "s3://bucket/a") {
    auto file = cache_->Open(path);
    EXPECT_TRUE(file.ok()) << file.status();
    return *std::move(file);
  }

  std::vector<std::string> BlockFiles() const {
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::directory_iterator(options_.directory)) {
      if (absl::EndsWith(entry.path().string(), kBlockSuffix)) paths.push_back(entry.path().string());
    }
    return paths;
  }

  std::string folder_;
  MemoryFiles store_;
  CacheOptions options_;
  std::unique_ptr<CachedFiles> cache_;
};

TEST_F(CachedFilesTest, WhatWasReadIsNotAskedForAgain) {
  const auto file = Open();
  const std::string content = Pattern(3500);
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(*Read(*file, 900, 1200), content.substr(900, 1200));
    EXPECT_EQ(*Read(*file, 3499, 1), content.substr(3499));
  }
  EXPECT_EQ(store_.reads(), 4) << "blocks 0, 1, 2 and 3";
  EXPECT_EQ(store_.bytes_read(), 3500U);
  const CachedFiles::Counters counters = cache_->counters();
  EXPECT_EQ(counters.misses, 4U);
  EXPECT_EQ(counters.hits, 4U);
  EXPECT_EQ(counters.bytes_fetched, 3500U);
  EXPECT_EQ(counters.damaged + counters.not_kept, 0U);
}

TEST_F(CachedFilesTest, EveryRangeIsThatOfTheStore) {
  options_.block_bytes = 150'000;  // three chunks of a checksum
  Start();
  const std::string content = Pattern(400'000, 3);
  store_.Put("s3://bucket/b", content);
  const auto file = Open("s3://bucket/b");
  std::uint32_t state = 17;
  for (int i = 0; i < 300; ++i) {
    state = state * 1664525U + 1013904223U;
    const std::size_t begin = (state >> 8) % content.size();
    state = state * 1664525U + 1013904223U;
    const std::size_t count =
        (state >> 8) % std::min<std::size_t>(content.size() - begin + 1, i % 2 == 0 ? 100 : 200'000);
    ASSERT_EQ(*Read(*file, begin, count), content.substr(begin, count)) << begin << " " << count;
  }
  EXPECT_EQ(store_.reads(), 3);
}

TEST_F(CachedFilesTest, AReadBeyondTheEndIsRefused) {
  const auto file = Open();
  const absl::Status beyond = Read(*file, 3400, 101).status();
  EXPECT_TRUE(absl::IsDataLoss(beyond));
  EXPECT_THAT(std::string(beyond.message()), HasSubstr("s3://bucket/a: ends at byte 3500, expected 1 more"));
  EXPECT_TRUE(absl::IsDataLoss(Read(*file, 4000, 0).status()));
  EXPECT_EQ(*Read(*file, 3500, 0), "");
  EXPECT_EQ(store_.reads(), 0);
}

TEST_F(CachedFilesTest, TheNextProcessHasTheBlocks) {
  EXPECT_TRUE(Read(*Open(), 0, 3500).ok());
  std::ofstream(options_.directory + "/0123-0-3e8.block.tmp") << "half of a block";
  std::ofstream(options_.directory + "/somebody-elses") << "file";
  Start();
  const auto file = Open();
  EXPECT_TRUE(cache_->Holds(file->info(), 3499));
  EXPECT_EQ(*Read(*file, 0, 3500), Pattern(3500));
  EXPECT_EQ(store_.reads(), 4);
  EXPECT_FALSE(std::filesystem::exists(options_.directory + "/0123-0-3e8.block.tmp"));
  EXPECT_TRUE(std::filesystem::exists(options_.directory + "/somebody-elses"));
}

TEST_F(CachedFilesTest, TwoProcessesDoNotShareADirectory) {
  const absl::Status second = CachedFiles::Create(store_, options_).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.message()),
              AllOf(HasSubstr(options_.directory), HasSubstr("expected a directory for each process")));
}

TEST_F(CachedFilesTest, AFileThatWasReplacedIsReadAnew) {
  EXPECT_TRUE(Read(*Open(), 0, 1000).ok());
  store_.Put("s3://bucket/a", Pattern(3500, 2), 2);
  const auto file = Open();
  EXPECT_EQ(*Read(*file, 0, 1000), Pattern(3500).substr(0, 1000)) << "what it was";
  const absl::Status status = Read(*file, 1000, 1).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_EQ(std::string(status.message()), "s3://bucket/a: is another file than it was when it was looked at first");

  const auto listed = cache_->List("s3://bucket/a");
  ASSERT_TRUE(listed.ok()) << listed.status();
  EXPECT_FALSE(cache_->Holds(listed->front(), 0));
  EXPECT_EQ(*Read(*Open(), 0, 3500), Pattern(3500, 2));
}

TEST_F(CachedFilesTest, AFileThatIsHeldNeedsNoStore) {
  EXPECT_TRUE(Read(*Open(), 0, 1000).ok());
  store_.FailOpen("s3://bucket/a", absl::UnavailableError("timeout"));
  const auto file = Open();
  EXPECT_EQ(*Read(*file, 0, 1000), Pattern(3500).substr(0, 1000));
  EXPECT_TRUE(absl::IsUnavailable(Read(*file, 1000, 1).status()));
  store_.FailOpen("s3://bucket/a", absl::OkStatus());
  EXPECT_EQ(*Read(*file, 1000, 1), Pattern(3500).substr(1000, 1));
}

TEST_F(CachedFilesTest, HoldsTellsBlocks) {
  const auto file = Open();
  EXPECT_FALSE(cache_->Holds(file->info(), 1500));
  EXPECT_TRUE(Read(*file, 1999, 1).ok());
  EXPECT_TRUE(cache_->Holds(file->info(), 1000));
  EXPECT_FALSE(cache_->Holds(file->info(), 999));
  EXPECT_FALSE(cache_->Holds(file->info(), 3500)) << "behind the end";
  const auto listed = cache_->List("s3://bucket");
  ASSERT_TRUE(listed.ok()) << listed.status();
  ASSERT_THAT(*listed, SizeIs(1));
  EXPECT_TRUE(cache_->Holds(listed->front(), 1500));
}

TEST_F(CachedFilesTest, WhatWasUsedLongestAgoMakesRoom) {
  options_.capacity_bytes = 3 * 1100;
  Start();
  const auto file = Open();
  for (const std::uint64_t offset : {0, 1000, 2000, 0, 3000}) EXPECT_TRUE(Read(*file, offset, 1).ok());
  EXPECT_TRUE(cache_->Holds(file->info(), 0));
  EXPECT_FALSE(cache_->Holds(file->info(), 1000));
  EXPECT_TRUE(cache_->Holds(file->info(), 2000));
  EXPECT_TRUE(cache_->Holds(file->info(), 3000));
  EXPECT_THAT(BlockFiles(), SizeIs(3));

  options_.capacity_bytes = 1100;
  Start();
  EXPECT_THAT(BlockFiles(), SizeIs(1)) << "a smaller cache than before";
}

TEST_F(CachedFilesTest, WithoutRoomItReadsFromTheStore) {
  options_.capacity_bytes = 100;
  Start();
  const auto file = Open();
  for (int round = 0; round < 2; ++round) EXPECT_EQ(*Read(*file, 0, 1000), Pattern(3500).substr(0, 1000));
  EXPECT_EQ(store_.reads(), 2);
  EXPECT_EQ(cache_->counters().not_kept, 2U);
  EXPECT_THAT(BlockFiles(), SizeIs(0));
}

TEST_F(CachedFilesTest, ADiskThatIsFullIsNoError) {
  const auto file = Open();
  EXPECT_TRUE(Read(*file, 0, 1).ok());
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit small{500, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto bytes = Read(*file, 1000, 1000);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, handler);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(*bytes, Pattern(3500).substr(1000, 1000));
  EXPECT_EQ(cache_->counters().not_kept, 1U);
  EXPECT_THAT(BlockFiles(), SizeIs(0)) << "no half of it, and the oldest made room";
  EXPECT_TRUE(Read(*file, 1000, 1000).ok());
  EXPECT_TRUE(cache_->Holds(file->info(), 1000)) << "there is room again";
}

TEST_F(CachedFilesTest, ADirectoryThatWasRemovedIsNoError) {
  const auto file = Open();
  EXPECT_TRUE(Read(*file, 0, 1).ok());
  std::filesystem::remove_all(options_.directory);
  EXPECT_EQ(*Read(*file, 0, 1000), Pattern(3500).substr(0, 1000));
  EXPECT_EQ(*Read(*file, 1000, 1000), Pattern(3500).substr(1000, 1000));
  EXPECT_EQ(store_.reads(), 3);
}

TEST_F(CachedFilesTest, DamageIsReadFromTheStoreAgain) {
  const std::string content = Pattern(3500);
  const auto file = Open();
  EXPECT_TRUE(Read(*file, 0, 1000).ok());
  ASSERT_THAT(BlockFiles(), SizeIs(1));
  const std::string path = BlockFiles().front();
  std::ifstream stream(path);
  const std::string whole{std::istreambuf_iterator<char>(stream), {}};
  std::uint64_t damaged = 0;
  for (std::size_t place = 0; place < whole.size(); place += 7) {
    std::string bytes = whole;
    bytes[place] = static_cast<char>(bytes[place] ^ 1);
    std::ofstream(path) << bytes;
    ASSERT_EQ(*Read(*file, 0, 1000), content.substr(0, 1000)) << place;
    ASSERT_EQ(cache_->counters().damaged, ++damaged) << place;
    ASSERT_EQ(*Read(*file, 0, 1000), content.substr(0, 1000)) << place;
    ASSERT_EQ(cache_->counters().damaged, damaged) << "it was written anew";
  }
  for (const std::size_t size : {std::size_t{0}, std::size_t{30}, std::size_t{60}, whole.size() - 1}) {
    std::ofstream(path) << whole.substr(0, size);
    ASSERT_EQ(*Read(*file, 0, 1000), content.substr(0, 1000)) << size;
    ASSERT_EQ(cache_->counters().damaged, ++damaged) << size;
  }
}

TEST_F(CachedFilesTest, ABlockOfAnotherFileIsNotTaken) {
  store_.Put("s3://bucket/b", Pattern(3500, 2));
  EXPECT_TRUE(Read(*Open(), 0, 1000).ok());
  const std::string path = BlockFiles().front();
  const auto other = Open("s3://bucket/b");
  EXPECT_TRUE(Read(*other, 0, 1000).ok());
  for (const std::string& found : BlockFiles()) {
    if (found != path) std::filesystem::copy_file(path, found, std::filesystem::copy_options::overwrite_existing);
  }
  EXPECT_EQ(*Read(*other, 0, 1000), Pattern(3500, 2).substr(0, 1000));
  EXPECT_EQ(cache_->counters().damaged, 1U);
}

TEST_F(CachedFilesTest, WhatTheStoreRefusesIsHandedOn) {
  const auto file = Open();
  for (const absl::Status& refusal : {absl::PermissionDeniedError("403"), absl::NotFoundError("404"),
                                      absl::DataLossError("short"), absl::UnavailableError("503")}) {
    store_.FailReads(1, refusal);
    EXPECT_EQ(Read(*file, 0, 1000).status().code(), refusal.code());
  }
  EXPECT_FALSE(cache_->Holds(file->info(), 0));
  EXPECT_TRUE(absl::IsNotFound(cache_->Open("s3://bucket/none").status()));
  EXPECT_TRUE(absl::IsNotFound(cache_->List("s3://bucket/none").status()));
}

TEST_F(CachedFilesTest, AShortReadIsNotKept) {
  const auto file = Open();
  store_.Cut("s3://bucket/a", 1200);
  const absl::Status status = Read(*file, 1000, 10).status();
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("ends at byte 1200"));
  EXPECT_FALSE(cache_->Holds(file->info(), 1000));
  EXPECT_EQ(*Read(*file, 0, 1000), Pattern(3500).substr(0, 1000));
}

// A store that answers when it is told to, and before that lets time pass.
class SlowFiles final : public Files {
 public:
  explicit SlowFiles(const Files& files) : files_(files) {}
  absl::StatusOr<std::vector<FileInfo>> List(const std::string& path) const override { return files_.List(path); }
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> Open(const std::string& path) const override {
    auto file = files_.Open(path);
    if (!file.ok()) return file.status();
    return std::make_unique<File>(*this, *std::move(file));
  }

  // Before each answer.
  std::function<absl::Status()> before = [] { return absl::OkStatus(); };

 private:
  class File final : public RandomAccessFile {
   public:
    File(const SlowFiles& files, std::unique_ptr<RandomAccessFile> file) : files_(files), file_(std::move(file)) {}
    const FileInfo& info() const override { return file_->info(); }
    absl::Status ReadAt(std::uint64_t offset, absl::Span<std::uint8_t> bytes) const override {
      if (absl::Status status = files_.before(); !status.ok()) return status;
      return file_->ReadAt(offset, bytes);
    }

   private:
    const SlowFiles& files_;
    const std::unique_ptr<RandomAccessFile> file_;
  };
  const Files& files_;
};

TEST_F(CachedFilesTest, ThreadsThatWantABlockDownloadItOnce) {
  SlowFiles slow(store_);
  std::mutex mutex;
  std::condition_variable changed;
  bool asked = false;
  bool answer = false;
  slow.before = [&] {
    std::unique_lock<std::mutex> lock(mutex);
    asked = true;
    changed.notify_all();
    changed.wait(lock, [&] { return answer; });
    return absl::OkStatus();
  };
  cache_.reset();
  auto cache = CachedFiles::Create(slow, options_);
  ASSERT_TRUE(cache.ok()) << cache.status();
  const auto file = (*cache)->Open("s3://bucket/a");
  ASSERT_TRUE(file.ok());
  const std::string content = Pattern(3500);
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] { EXPECT_EQ(*Read(**file, 10 * i, 100), content.substr(10 * i, 100)); });
  }
  {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return asked; });
    answer = true;
    changed.notify_all();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store_.reads(), 1);
  EXPECT_EQ((*cache)->counters().misses, 1U);
  EXPECT_EQ((*cache)->counters().hits, 7U);
}

TEST_F(CachedFilesTest, ManyThreadsInASmallCacheReadWhatIsThere) {
  options_.capacity_bytes = 5 * 1100;
  Start();
  const std::string content = Pattern(20'000, 5);
  store_.Put("s3://bucket/b", content);
  const auto file = Open("s3://bucket/b");
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < 6; ++i) {
    threads.emplace_back([&, i] {
      std::uint32_t state = i;
      for (int round = 0; round < 300; ++round) {
        state = state * 1664525U + 1013904223U;
        const std::size_t begin = (state >> 8) % (content.size() - 1500);
        const auto bytes = Read(*file, begin, 1500);
        ASSERT_TRUE(bytes.ok()) << bytes.status();
        ASSERT_EQ(*bytes, content.substr(begin, 1500));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(cache_->counters().damaged, 0U);
  std::uint64_t bytes = 0;
  for (const std::string& path : BlockFiles()) bytes += std::filesystem::file_size(path);
  EXPECT_LE(bytes, options_.capacity_bytes);
}

TEST_F(CachedFilesTest, OptionsThatCannotBeAreRefused) {
  options_.block_bytes = 0;
  EXPECT_EQ(CachedFiles::Create(store_, options_).status().code(), absl::StatusCode::kInvalidArgument);
  options_.block_bytes = 1;
  options_.directory = "";
  EXPECT_EQ(CachedFiles::Create(store_, options_).status().code(), absl::StatusCode::kInvalidArgument);
  std::ofstream(folder_ + "/file") << "x";
  options_.directory = folder_ + "/file/cache";
  const absl::Status status = CachedFiles::Create(store_, options_).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(options_.directory));
}

// docs/formats.md, "Blocks of remote files".
TEST(BlockFileTest, LayoutIsAsDocumented) {
  std::string pattern = ::testing::TempDir() + "/block-XXXXXX";
  ASSERT_NE(mkdtemp(pattern.data()), nullptr);
  const Block block{{"s3://b/f", 200'000, -5}, 131'072, 65'537};
  EXPECT_THAT(BlockFileName(block), ::testing::MatchesRegex("[0-9a-f]{16}-20000-10001\\.block"));
  const std::string path = absl::StrCat(pattern, "/", BlockFileName(block));
  const std::string data = Pattern(block.bytes);
  const auto bytes_of = [](absl::string_view text) {
    return absl::MakeConstSpan(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  };
  ASSERT_EQ(WriteBlockFile(path, block, bytes_of(data)), absl::OkStatus());

  std::ifstream stream(path);
  const std::string file{std::istreambuf_iterator<char>(stream), {}};
  ASSERT_EQ(file.size(), 48U + 8 + 2 * 4 + 65'537);
  ASSERT_EQ(file.size(), BlockFileBytes(block));
  const auto number = [&](std::size_t offset, std::size_t size) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < size; ++i)
      value |= std::uint64_t{static_cast<std::uint8_t>(file[offset + i])} << (8 * i);
    return value;
  };
  EXPECT_EQ(file.substr(0, 4), "DPBK");
  EXPECT_EQ(number(4, 2), 1U);
  EXPECT_EQ(number(6, 2), 48U);
  EXPECT_EQ(number(8, 8), 200'000U);
  EXPECT_EQ(static_cast<std::int64_t>(number(16, 8)), -5);
  EXPECT_EQ(number(24, 8), 131'072U);
  EXPECT_EQ(number(32, 4), 65'537U);
  EXPECT_EQ(number(36, 4), 8U);
  EXPECT_EQ(number(40, 4), wire::Crc32c(bytes_of(file).subspan(48, 16)));
  EXPECT_EQ(number(44, 4), wire::Crc32c(bytes_of(file).first(44)));
  EXPECT_EQ(file.substr(48, 8), "s3://b/f");
  EXPECT_EQ(number(56, 4), wire::Crc32c(bytes_of(data).first(65'536)));
  EXPECT_EQ(number(60, 4), wire::Crc32c(bytes_of(data).subspan(65'536)));
  EXPECT_EQ(file.substr(64), data);
  std::filesystem::remove_all(pattern);
}

}  // namespace
}  // namespace downpour::data
