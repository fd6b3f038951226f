// Remote files, and their cache, against a whole S3 server (trainer/checkpoint/testing/s3_server.h). Skipped (exit code
// 77) where it is not installed.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/checkpoint/testing/s3_server.h"
#include "trainer/data/files/arrow_files.h"
#include "trainer/data/files/cached_files.h"
#include "trainer/data/files/retrying_files.h"

namespace downpour::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using Server = checkpoint::S3Server;

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

// Time passes while somebody sleeps, and really so where there is something to wait for.
class TestClock final : public RetryClock {
 public:
  absl::Duration Now() override { return now; }
  void Sleep(absl::Duration duration) override {
    now += duration;
    if (!on_sleep) return;
    on_sleep();
    absl::SleepFor(duration);
  }
  double Random() override { return 0.5; }

  absl::Duration now = absl::ZeroDuration();
  std::function<void()> on_sleep;
};

class ArrowFilesServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    server_.Start();
    setenv("AWS_ENDPOINT_URL_S3", server_.Endpoint().c_str(), 1);
    SetCredentials(Server::kKeyId, Server::kSecret);
    std::string pattern = ::testing::TempDir() + "/cache-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    // Until the server listens.
    files_ = OpenFiles();
    absl::Status listed = absl::UnavailableError("");
    for (int i = 0; i < 100 && absl::IsUnavailable(listed); ++i) {
      listed = files_->List("s3://bucket").status();
      if (!listed.ok()) absl::SleepFor(absl::Milliseconds(50));
    }
    ASSERT_TRUE(listed.ok()) << listed << "\n" << server_.Log();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static void SetCredentials(const std::string& id, const std::string& secret) {
    setenv("AWS_ACCESS_KEY_ID", id.c_str(), 1);
    setenv("AWS_SECRET_ACCESS_KEY", secret.c_str(), 1);
  }

  std::unique_ptr<Files> OpenFiles(const std::string& uri = "s3://bucket/data") {
    auto files = OpenRemoteFiles(uri, options_);
    EXPECT_TRUE(files.ok()) << files.status();
    return *std::move(files);
  }

  void Put(const std::string& key, const std::string& content) const {
    const std::filesystem::path path = server_.bucket() / key;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << content;
  }

  Server server_;
  std::string folder_;
  RemoteFilesOptions options_{.deadline = absl::Seconds(10),
                              .connect_timeout = absl::Seconds(2),
                              .stall_timeout = absl::Seconds(2),
                              .attempts = 2};
  std::unique_ptr<Files> files_;
};

TEST_F(ArrowFilesServerTest, ListsWhatIsBelow) {
  Put("data/b", "22");
  Put("data/a/deep/part=1 of 2", "1");
  Put("data/.hidden/x", "");
  Put("data/a/.hidden", "");
  Put("data2/x", "333");
  const auto files = files_->List("s3://bucket/data");
  ASSERT_TRUE(files.ok()) << files.status();
  ASSERT_THAT(*files, SizeIs(2));
  EXPECT_EQ((*files)[0].path, "s3://bucket/data/a/deep/part=1 of 2");
  EXPECT_EQ((*files)[1].path, "s3://bucket/data/b");
  EXPECT_EQ((*files)[1].bytes, 2U);
  EXPECT_GT((*files)[1].modified, 0);
  EXPECT_EQ(*files_->List("s3://bucket/data/"), *files);
  const auto whole = files_->List("s3://bucket");
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_THAT(*whole, SizeIs(3));
  const auto one = files_->List("s3://bucket/data/b");
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_THAT(*one, ElementsAre((*files)[1]));
  const auto file = files_->Open((*files)[0].path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(*Read(**file, 0, 1), "1");
}

TEST_F(ArrowFilesServerTest, ListsMoreThanAPage) {
  for (int i = 0; i < 1100; ++i) Put(absl::StrFormat("many/%05d", i), "x");
  const auto files = files_->List("s3://bucket/many");
  ASSERT_TRUE(files.ok()) << files.status();
  ASSERT_THAT(*files, SizeIs(1100));
  EXPECT_EQ(files->back().path, "s3://bucket/many/01099");
}

TEST_F(ArrowFilesServerTest, ReadsRanges) {
  const std::string content = Pattern(3'000'000);
  Put("data/file", content);
  const auto file = files_->Open("s3://bucket/data/file");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->info().bytes, content.size());
  std::vector<std::thread> threads;
  for (std::uint32_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      std::uint32_t state = thread;
      for (int i = 0; i < 20; ++i) {
        state = state * 1664525U + 1013904223U;
        const std::size_t begin = (state >> 8) % content.size();
        state = state * 1664525U + 1013904223U;
        const std::size_t count = (state >> 8) % std::min<std::size_t>(content.size() - begin + 1, 200'000);
        const auto bytes = Read(**file, begin, count);
        ASSERT_TRUE(bytes.ok()) << bytes.status();
        ASSERT_EQ(*bytes, content.substr(begin, count));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const absl::Status beyond = Read(**file, content.size() - 1, 3).status();
  EXPECT_TRUE(absl::IsDataLoss(beyond)) << beyond;
  EXPECT_THAT(std::string(beyond.message()), HasSubstr("s3://bucket/data/file: ends at byte 3000000, expected 2 more"));
}

TEST_F(ArrowFilesServerTest, WhatIsNotThereIsNotFound) {
  Put("data/file", "x");
  for (const absl::Status& status :
       {files_->Open("s3://bucket/data/none").status(), files_->List("s3://bucket/none").status(),
        files_->Open("s3://bucket/data").status(),
        OpenFiles("s3://no-such-bucket")->Open("s3://no-such-bucket/x").status(),
        OpenFiles("s3://no-such-bucket")->List("s3://no-such-bucket").status()}) {
    EXPECT_TRUE(absl::IsNotFound(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("s3://"));
  }
}

TEST_F(ArrowFilesServerTest, WrongCredentialsAreSaid) {
  Put("data/file", "x");
  for (const auto& [id, secret] : {std::pair("nobody", Server::kSecret), std::pair(Server::kKeyId, "not-the-secret")}) {
    SetCredentials(id, secret);
    const auto files = OpenFiles();
    for (const absl::Status& status :
         {files->Open("s3://bucket/data/file").status(), files->List("s3://bucket/data").status()}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
      EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("s3://bucket/data"), Not(HasSubstr(secret))));
    }
  }
}

TEST_F(ArrowFilesServerTest, TheUriMayHaveCredentialsAndOptions) {
  Put("data/file", "content");
  for (const char* const variable : {"AWS_ENDPOINT_URL_S3", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}) {
    unsetenv(variable);
  }
  const std::string uri =
      absl::StrFormat("s3://%s:%s@bucket/data?scheme=http&region=us-east-1&endpoint_override=127.0.0.1:%d",
                      Server::kKeyId, Server::kSecret, server_.port());
  const auto files = OpenFiles(uri);
  const auto listed = files->List(uri);
  ASSERT_TRUE(listed.ok()) << listed.status();
  ASSERT_THAT(*listed, SizeIs(1));
  EXPECT_EQ(listed->front().path, "s3://bucket/data/file") << "no credentials";
  const auto file = files->Open(listed->front().path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(*Read(**file, 0, 7), "content");
}

TEST_F(ArrowFilesServerTest, AServerThatDoesNotAnswerIsUnavailableByTheDeadline) {
  Put("data/file", Pattern(1000));
  options_.deadline = absl::Milliseconds(300);
  const auto files = OpenFiles();
  const auto file = files->Open("s3://bucket/data/file");
  ASSERT_TRUE(file.ok()) << file.status();
  server_.Stop();
  for (const absl::Status& status : {Read(**file, 0, 10).status(), files->Open("s3://bucket/data/file").status(),
                                     files->List("s3://bucket/data").status()}) {
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("no answer within 300ms"));
  }
  server_.Continue();
}

TEST_F(ArrowFilesServerTest, TheCacheOutlivesAServerThatDoesNotAnswerForAWhile) {
  const std::string content = Pattern(1'000'000);
  Put("data/file", content);
  options_.deadline = absl::Milliseconds(300);
  TestClock clock;
  int waits = 0;
  clock.on_sleep = [&] {
    if (++waits == 2) server_.Continue();
  };
  const auto files = RetryingFiles::Open(
      "s3://bucket", [this] { return OpenRemoteFiles("s3://bucket/data", options_); }, nullptr, {}, clock);
  ASSERT_TRUE(files.ok()) << files.status();
  CacheOptions options;
  options.directory = folder_;
  options.block_bytes = 100'000;
  auto cache = CachedFiles::Create(**files, options);
  ASSERT_TRUE(cache.ok()) << cache.status();
  const auto file = (*cache)->Open("s3://bucket/data/file");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(*Read(**file, 250'000, 100'000), content.substr(250'000, 100'000));
  EXPECT_EQ((*cache)->counters().misses, 2U);

  server_.Stop();
  EXPECT_EQ(*Read(**file, 200'000, 200'000), content.substr(200'000, 200'000)) << "without the server";
  EXPECT_EQ(waits, 0);
  const auto bytes = Read(**file, 390'000, 20'000);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(*bytes, content.substr(390'000, 20'000));
  EXPECT_GE(waits, 2);
  EXPECT_EQ((*files)->retries(), static_cast<std::uint64_t>(waits));
}

TEST_F(ArrowFilesServerTest, AServerThatIsGoneIsGivenUp) {
  Put("data/file", Pattern(1000));
  TestClock clock;
  const auto files = RetryingFiles::Open(
      "s3://bucket", [this] { return OpenRemoteFiles("s3://bucket/data", options_); }, nullptr, {}, clock);
  ASSERT_TRUE(files.ok()) << files.status();
  const auto file = (*files)->Open("s3://bucket/data/file");
  ASSERT_TRUE(file.ok()) << file.status();
  server_.Kill();
  const absl::Status status = Read(**file, 0, 10).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("s3://bucket/data/file"), HasSubstr("given up after 5m of nothing but failures")));
  EXPECT_EQ(clock.now, RetryOptions().patience);
  const absl::Status next = (*files)->Open("s3://bucket/data/file").status();
  EXPECT_THAT(std::string(next.message()), HasSubstr("given up after 5m of nothing but failures"));
}

}  // namespace
}  // namespace downpour::data

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const std::string program = downpour::checkpoint::S3Server::Program();
  if (access(program.c_str(), X_OK) != 0) {
    std::printf("skipped: there is no S3 server %s; e2e/cluster/build.sh versitygw builds it\n", program.c_str());
    return 77;
  }
  return RUN_ALL_TESTS();
}
