#include "trainer/data/files/retrying_files.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/data/files/testing/memory_files.h"

namespace downpour::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class FakeClock final : public RetryClock {
 public:
  absl::Duration Now() override { return now; }
  void Sleep(absl::Duration duration) override {
    slept.push_back(duration);
    now += duration;
    if (on_sleep) on_sleep();
  }
  double Random() override { return 0.5; }

  absl::Duration now = absl::Seconds(1000);
  std::vector<absl::Duration> slept;
  std::function<void()> on_sleep;
};

// Those of a MemoryFiles that outlives it; each call takes `takes`, and while the store is `away` it fails.
class DistantFiles final : public Files {
 public:
  struct Network {
    MemoryFiles files;
    FakeClock clock;
    absl::Duration takes = absl::ZeroDuration();
    absl::Status away;
    int calls = 0;

    absl::Status Reach() {
      ++calls;
      clock.now += takes;
      return away;
    }
  };

  explicit DistantFiles(Network& network) : network_(network) {}
  absl::StatusOr<std::vector<FileInfo>> List(const std::string& path) const override {
    if (absl::Status status = network_.Reach(); !status.ok()) return status;
    return network_.files.List(path);
  }
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> Open(const std::string& path) const override {
    if (absl::Status status = network_.Reach(); !status.ok()) return status;
    auto file = network_.files.Open(path);
    if (!file.ok()) return file.status();
    return std::make_unique<File>(network_, *std::move(file));
  }

 private:
  class File final : public RandomAccessFile {
   public:
    File(Network& network, std::unique_ptr<RandomAccessFile> file) : network_(network), file_(std::move(file)) {}
    const FileInfo& info() const override { return file_->info(); }
    absl::Status ReadAt(std::uint64_t offset, absl::Span<std::uint8_t> bytes) const override {
      if (absl::Status status = network_.Reach(); !status.ok()) return status;
      return file_->ReadAt(offset, bytes);
    }

   private:
    Network& network_;
    const std::unique_ptr<RandomAccessFile> file_;
  };
  Network& network_;
};

class RetryingFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    network_.files.Put("s3://bucket/a", "0123456789");
    auto files = RetryingFiles::Open(
        "s3://bucket", [this] { return std::make_unique<DistantFiles>(network_); },
        [this](const std::string& news) { told_.push_back(news); }, {}, network_.clock);
    ASSERT_TRUE(files.ok()) << files.status();
    files_ = *std::move(files);
    auto file = files_->Open("s3://bucket/a");
    ASSERT_TRUE(file.ok()) << file.status();
    file_ = *std::move(file);
    network_.calls = 0;
  }

  absl::Status Read() const {
    std::vector<std::uint8_t> bytes(10);
    absl::Status status = file_->ReadAt(0, absl::MakeSpan(bytes));
    EXPECT_TRUE(!status.ok() || std::string(bytes.begin(), bytes.end()) == "0123456789");
    return status;
  }

  DistantFiles::Network network_;
  std::vector<std::string> told_;
  std::unique_ptr<RetryingFiles> files_;
  std::unique_ptr<RandomAccessFile> file_;
};

TEST_F(RetryingFilesTest, WhatIsUnavailableIsAskedForAgain) {
  network_.files.FailReads(1, absl::UnavailableError("s3://bucket/a: 503 SlowDown"), 4);
  EXPECT_TRUE(Read().ok());
  EXPECT_EQ(files_->retries(), 4U);
  EXPECT_THAT(network_.clock.slept, ElementsAre(absl::Milliseconds(50), absl::Milliseconds(100),
                                                absl::Milliseconds(200), absl::Milliseconds(400)));
}

TEST_F(RetryingFilesTest, AnOutageIsToldOnceAndItsEndToo) {
  network_.away = absl::UnavailableError("s3://bucket/a: 503 SlowDown");
  for (int outage = 0; outage < 2; ++outage) {
    network_.clock.on_sleep = [this, until = network_.clock.now + absl::Seconds(40)] {
      if (network_.clock.now >= until) network_.away = absl::OkStatus();
    };
    network_.away = absl::UnavailableError("s3://bucket/a: 503 SlowDown");
    told_.clear();
    EXPECT_TRUE(Read().ok());
    EXPECT_THAT(told_, ElementsAre(AllOf(HasSubstr("s3://bucket: the store has not answered for "),
                                         HasSubstr("asked again and again: s3://bucket/a: 503 SlowDown")),
                                   HasSubstr("s3://bucket: the store answers again, after 4")));
  }
  told_.clear();
  network_.files.FailReads(1, absl::UnavailableError("s3://bucket/a: 503 SlowDown"), 4);
  EXPECT_TRUE(Read().ok());
  EXPECT_THAT(told_, IsEmpty()) << "less than a second";
}

TEST_F(RetryingFilesTest, EveryCallIsMadeAgain) {
  const auto fail = [this] {
    network_.away = absl::UnavailableError("s3://bucket/a: connection reset");
    network_.clock.slept.clear();
    network_.clock.on_sleep = [this] {
      if (network_.clock.slept.size() == 3) network_.away = absl::OkStatus();
    };
  };
  fail();
  EXPECT_TRUE(files_->Open("s3://bucket/a").ok());
  fail();
  EXPECT_THAT(*files_->List("s3://bucket"), SizeIs(1));
  fail();
  EXPECT_TRUE(Read().ok());
  EXPECT_EQ(files_->retries(), 9U);
  fail();
  const auto opened = RetryingFiles::Open(
      "s3://bucket",
      [this]() -> absl::StatusOr<std::unique_ptr<Files>> {
        if (absl::Status status = network_.Reach(); !status.ok()) return status;
        return std::make_unique<DistantFiles>(network_);
      },
      nullptr, {}, network_.clock);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ((*opened)->retries(), 3U);
}

TEST_F(RetryingFilesTest, WhatWillNotBeBetterIsNotAskedForAgain) {
  for (const absl::Status& refusal :
       {absl::PermissionDeniedError("403"), absl::NotFoundError("404"), absl::DataLossError("short"),
        absl::InvalidArgumentError("400"), absl::UnimplementedError("?"), absl::FailedPreconditionError("libjvm")}) {
    network_.away = refusal;
    EXPECT_EQ(Read(), refusal);
    EXPECT_EQ(files_->Open("s3://bucket/a").status(), refusal);
    EXPECT_EQ(files_->List("s3://bucket").status(), refusal);
  }
  EXPECT_EQ(files_->retries(), 0U);
  EXPECT_THAT(network_.clock.slept, IsEmpty());
}

TEST_F(RetryingFilesTest, AStoreThatIsAwayIsGivenUpByAllAtOnce) {
  network_.away = absl::UnavailableError("s3://bucket/a: 503 SlowDown");
  const absl::Duration begin = network_.clock.now;
  const absl::Status first = Read();
  EXPECT_TRUE(absl::IsUnavailable(first)) << first;
  EXPECT_THAT(std::string(first.message()),
              AllOf(HasSubstr("s3://bucket/a: 503 SlowDown"), HasSubstr("given up after 5m of nothing but failures")));
  EXPECT_EQ(network_.clock.now - begin, absl::Minutes(5));
  EXPECT_LE(*std::max_element(network_.clock.slept.begin(), network_.clock.slept.end()), absl::Seconds(5))
      << "half of the most, by the clock's Random";

  network_.clock.slept.clear();
  const int calls = network_.calls;
  network_.clock.now += absl::Seconds(3);
  for (const absl::Status& status :
       {Read(), files_->Open("s3://ID:SECRET@bucket/b?x=y").status(), files_->List("s3://bucket").status()}) {
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("s3://bucket"), HasSubstr("given up after 5m3s of nothing but failures"),
                      HasSubstr("s3://bucket/a: 503 SlowDown"), Not(HasSubstr("SECRET"))));
  }
  EXPECT_EQ(network_.calls, calls) << "the store was asked";
  EXPECT_THAT(network_.clock.slept, IsEmpty());
}

// Samples one after another, as a loader reads them: together they wait no longer than one.
TEST_F(RetryingFilesTest, AStoreThatStallsHoldsUpAllReadsForThePatienceAndOneCall) {
  network_.away = absl::UnavailableError("s3://bucket/a: no answer within 1m");
  network_.takes = absl::Minutes(1);
  const absl::Duration begin = network_.clock.now;
  for (int sample = 0; sample < 100; ++sample) EXPECT_FALSE(Read().ok());
  EXPECT_LE(network_.clock.now - begin, absl::Minutes(6));
}

TEST_F(RetryingFilesTest, AnAnswerEndsTheOutage) {
  for (int outage = 0; outage < 3; ++outage) {
    network_.away = absl::UnavailableError("s3://bucket/a: 503");
    const absl::Duration back = network_.clock.now + absl::Minutes(4);
    network_.clock.on_sleep = [this, back] {
      if (network_.clock.now >= back) network_.away = absl::OkStatus();
    };
    EXPECT_TRUE(Read().ok()) << outage;
  }
  network_.away = absl::NotFoundError("s3://bucket/a: 404");
  EXPECT_TRUE(absl::IsNotFound(Read()));
}

}  // namespace
}  // namespace downpour::data
