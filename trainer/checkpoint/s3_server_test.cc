// The S3 store against a whole S3 server (testing/s3_server.h). Skipped (exit code 77) where it is not installed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "operator/kube/http/testing/tls_server.h"
#include "trainer/checkpoint/s3_client.h"
#include "trainer/checkpoint/s3_store.h"
#include "trainer/checkpoint/s3_xml.h"
#include "trainer/checkpoint/testing/s3_server.h"

namespace downpour::checkpoint {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::SizeIs;

constexpr std::size_t kPart = 5 << 20;

S3Options OptionsFor(const S3Server& server) {
  S3Options options;
  options.endpoint = server.Endpoint();
  options.credentials = {S3Server::kKeyId, S3Server::kSecret, ""};
  options.part_bytes = kPart;
  options.backoff_max = absl::Milliseconds(200);
  return options;
}

std::vector<std::uint8_t> Pattern(std::size_t size, unsigned seed) {
  std::vector<std::uint8_t> bytes(size);
  std::uint32_t state = seed * 2654435761U + 1;
  for (std::uint8_t& byte : bytes) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<std::uint8_t>(state >> 24);
  }
  return bytes;
}

absl::Status Write(Store& store, const std::string& name, const std::vector<std::uint8_t>& bytes) {
  auto writer = store.Create(name);
  if (!writer.ok()) return writer.status();
  if (absl::Status status = (*writer)->Append(bytes); !status.ok()) return status;
  return (*writer)->Commit();
}

absl::StatusOr<std::vector<std::uint8_t>> Read(Store& store, const std::string& name, std::size_t step = 1 << 20) {
  auto reader = store.Open(name);
  if (!reader.ok()) return reader.status();
  std::vector<std::uint8_t> bytes((*reader)->size());
  for (std::size_t begin = 0; begin < bytes.size(); begin += step) {
    const auto piece = absl::MakeSpan(bytes).subspan(begin, step);
    if (absl::Status status = (*reader)->ReadAt(begin, piece); !status.ok()) return status;
  }
  return bytes;
}

class S3ServerTest : public testing::Test {
 protected:
  S3ServerTest() {
    server_.Start();
    options_ = OptionsFor(server_);
    store_ = Open("s3://bucket/jobs/a");
    // Its own attempts wait until the server listens.
    const auto files = store_->List("");
    EXPECT_TRUE(files.ok()) << files.status() << "\n" << server_.Log();
  }

  std::unique_ptr<Store> Open(const std::string& uri) {
    auto store = OpenS3Store(uri, options_);
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }

  std::vector<std::string> Names(const std::string& prefix) {
    const auto files = store_->List(prefix);
    EXPECT_TRUE(files.ok()) << files.status();
    std::vector<std::string> names;
    if (files.ok()) {
      for (const StoredFile& file : *files) names.push_back(file.name);
    }
    return names;
  }

  std::size_t CountUploads(const std::string& prefix) {
    auto client = S3Client::Create(options_, "bucket");
    S3Attempts attempts((*client)->options());
    const S3Answer answer =
        (*client)->Send({.method = "GET", .query = {{"prefix", prefix}, {"uploads", ""}}}, attempts);
    const auto page = ParseS3UploadPage(answer.body);
    EXPECT_TRUE(page.ok()) << page.status() << answer.status;
    return page.ok() ? page->uploads.size() : 0;
  }

  // As a process does that ends in the middle.
  void LeaveUpload(const std::string& key) {
    auto client = S3Client::Create(options_, "bucket");
    S3Attempts attempts((*client)->options());
    const S3Answer answer = (*client)->Send({.method = "POST", .key = key, .query = {{"uploads", ""}}}, attempts);
    EXPECT_EQ(answer.status, absl::OkStatus());
  }

  S3Server server_;
  S3Options options_;
  std::unique_ptr<Store> store_;
};

TEST_F(S3ServerTest, FilesOfAllSizesComeBackAsTheyWere) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, kPart - 1, kPart, kPart + 1, std::size_t{12} << 20}) {
    SCOPED_TRACE(size);
    const std::string name = absl::StrCat("sizes/", size, ".bin");
    const auto bytes = Pattern(size, 7);
    ASSERT_EQ(Write(*store_, name, bytes), absl::OkStatus());
    const auto read = Read(*store_, name, size / 3 + 1);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(*read == bytes);
  }
  EXPECT_THAT(Names("sizes/"), SizeIs(6));
  EXPECT_EQ(CountUploads(""), 0U);
}

TEST_F(S3ServerTest, ReadsWhateverIsAskedFor) {
  options_.read_ahead_bytes = 1000;
  store_ = Open("s3://bucket/jobs/a");
  const auto bytes = Pattern(10'000, 3);
  ASSERT_EQ(Write(*store_, "file", bytes), absl::OkStatus());
  auto reader = store_->Open("file");
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::uint32_t state = 17;
  for (int i = 0; i < 200; ++i) {
    state = state * 1664525U + 1013904223U;
    const std::size_t begin = (state >> 8) % bytes.size();
    state = state * 1664525U + 1013904223U;
    const std::size_t count = (state >> 8) % (bytes.size() - begin + 1);
    std::vector<std::uint8_t> piece(count);
    ASSERT_EQ((*reader)->ReadAt(begin, absl::MakeSpan(piece)), absl::OkStatus());
    ASSERT_TRUE(std::equal(piece.begin(), piece.end(), bytes.begin() + static_cast<std::ptrdiff_t>(begin)));
  }
  std::vector<std::uint8_t> piece(2);
  EXPECT_EQ((*reader)->ReadAt(bytes.size() - 1, absl::MakeSpan(piece)).code(), absl::StatusCode::kOutOfRange);
}

TEST_F(S3ServerTest, NothingIsThereBeforeCommit) {
  for (const std::size_t size : {std::size_t{10}, kPart + 10}) {
    SCOPED_TRACE(size);
    {
      auto writer = store_->Create("file");
      ASSERT_TRUE(writer.ok()) << writer.status();
      ASSERT_EQ((*writer)->Append(Pattern(size, 1)), absl::OkStatus());
      EXPECT_THAT(Names(""), SizeIs(0));
      EXPECT_EQ(store_->Open("file").status().code(), absl::StatusCode::kNotFound);
    }
    EXPECT_THAT(Names(""), SizeIs(0));
    EXPECT_EQ(CountUploads(""), 0U);
  }
}

TEST_F(S3ServerTest, OfTwoWritersOneIsTold) {
  for (const std::size_t size : {std::size_t{10}, kPart + 10}) {
    SCOPED_TRACE(size);
    const std::string name = absl::StrCat("file-", size);
    auto first = store_->Create(name);
    auto second = store_->Create(name);
    ASSERT_TRUE(first.ok() && second.ok());
    ASSERT_EQ((*first)->Append(Pattern(size, 1)), absl::OkStatus());
    ASSERT_EQ((*second)->Append(Pattern(size, 2)), absl::OkStatus());
    ASSERT_EQ((*first)->Commit(), absl::OkStatus());
    EXPECT_EQ((*second)->Commit().code(), absl::StatusCode::kAlreadyExists);
    EXPECT_EQ(store_->Create(name).status().code(), absl::StatusCode::kAlreadyExists);
    EXPECT_TRUE(*Read(*store_, name) == Pattern(size, 1));
  }
  EXPECT_EQ(CountUploads(""), 0U);
}

TEST_F(S3ServerTest, OfManyWritersAtOnceOneSucceeds) {
  for (int round = 0; round < 5; ++round) {
    const std::string name = absl::StrCat("round-", round);
    std::atomic<int> succeeded = 0;
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        const absl::Status status = Write(*store_, name, Pattern(1000, i));
        if (status.ok()) {
          ++succeeded;
        } else {
          EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists) << status;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(succeeded, 1);
  }
}

TEST_F(S3ServerTest, ThreadsShareAStore) {
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 5; ++round) {
        const std::string name = absl::StrCat("thread-", i, "/", round);
        EXPECT_EQ(Write(*store_, name, Pattern(50'000, i)), absl::OkStatus());
        const auto read = Read(*store_, name);
        EXPECT_TRUE(read.ok() && *read == Pattern(50'000, i)) << read.status();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(Names("thread-"), SizeIs(20));
}

TEST_F(S3ServerTest, ListsWhatBeginsWithThePrefix) {
  for (const char* const name : {"b/2", "b/1", "b2", "a", "c/d/e"}) {
    ASSERT_EQ(Write(*store_, name, Pattern(3, 1)), absl::OkStatus());
  }
  ASSERT_EQ(Write(*Open("s3://bucket/jobs/ab"), "other", Pattern(3, 1)), absl::OkStatus());
  EXPECT_THAT(Names(""), testing::ElementsAre("a", "b/1", "b/2", "b2", "c/d/e"));
  EXPECT_THAT(Names("b"), testing::ElementsAre("b/1", "b/2", "b2"));
  EXPECT_THAT(Names("b/"), testing::ElementsAre("b/1", "b/2"));
  EXPECT_THAT(Names("nothing"), SizeIs(0));
  const auto files = store_->List("a");
  ASSERT_TRUE(files.ok());
  EXPECT_EQ(files->at(0).bytes, 3U);
}

TEST_F(S3ServerTest, ListsMoreThanAPage) {
  std::filesystem::create_directories(server_.bucket() / "jobs/a/many");
  for (int i = 0; i < 2100; ++i) {
    std::ofstream(server_.bucket() / "jobs/a/many" / absl::StrFormat("%05d", i)) << "x";
  }
  const std::vector<std::string> names = Names("many/");
  ASSERT_THAT(names, SizeIs(2100));
  for (int i = 0; i < 2100; ++i) EXPECT_EQ(names[static_cast<std::size_t>(i)], absl::StrFormat("many/%05d", i));
}

TEST_F(S3ServerTest, RemovesAFileAndItsFolders) {
  ASSERT_EQ(Write(*store_, "x/y/z", Pattern(3, 1)), absl::OkStatus());
  ASSERT_EQ(store_->Remove("x/y/z"), absl::OkStatus());
  EXPECT_EQ(store_->Remove("x/y/z"), absl::OkStatus());
  EXPECT_THAT(Names(""), SizeIs(0));
  EXPECT_FALSE(std::filesystem::exists(server_.bucket() / "jobs/a/x"));
  EXPECT_EQ(store_->Open("x/y/z").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Write(*store_, "x/y/z", Pattern(3, 2)), absl::OkStatus());
}

TEST_F(S3ServerTest, RemovesLeftovers) {
  LeaveUpload("jobs/a/cut-1/x");
  LeaveUpload("jobs/a/cut-1/x");
  LeaveUpload("jobs/a/cut-2/y");
  LeaveUpload("jobs/b/cut-1/x");
  EXPECT_THAT(Names(""), SizeIs(0));
  ASSERT_EQ(store_->RemoveLeftovers("cut-1/"), absl::OkStatus());
  EXPECT_EQ(CountUploads("jobs/a/"), 1U);
  ASSERT_EQ(store_->RemoveLeftovers(""), absl::OkStatus());
  EXPECT_EQ(CountUploads("jobs/a/"), 0U);
  EXPECT_EQ(CountUploads(""), 1U);
  EXPECT_EQ(store_->RemoveLeftovers(""), absl::OkStatus());
}

TEST_F(S3ServerTest, AFileThatChangedIsNotRead) {
  ASSERT_EQ(Write(*store_, "file", Pattern(1000, 1)), absl::OkStatus());
  auto reader = store_->Open("file");
  ASSERT_TRUE(reader.ok());
  std::vector<std::uint8_t> piece(10);
  ASSERT_EQ(store_->Remove("file"), absl::OkStatus());
  EXPECT_EQ((*reader)->ReadAt(0, absl::MakeSpan(piece)).code(), absl::StatusCode::kNotFound);
  ASSERT_EQ(Write(*store_, "file", Pattern(1000, 2)), absl::OkStatus());
  EXPECT_EQ((*reader)->ReadAt(0, absl::MakeSpan(piece)).code(), absl::StatusCode::kDataLoss);
}

TEST_F(S3ServerTest, PrefixesMayHaveOtherCharacters) {
  for (const char* const uri : {"s3://bucket", "s3://bucket/a b/c=d+e/(f)&g%20", "s3://bucket/\xc3\xa4/"}) {
    SCOPED_TRACE(uri);
    const auto store = Open(uri);
    ASSERT_EQ(Write(*store, "x/y.z_-1", Pattern(kPart + 5, 1)), absl::OkStatus());
    const auto read = Read(*store, "x/y.z_-1");
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(*read == Pattern(kPart + 5, 1));
    const auto files = store->List("x/");
    ASSERT_TRUE(files.ok()) << files.status();
    ASSERT_THAT(*files, SizeIs(1));
    EXPECT_EQ(files->at(0).name, "x/y.z_-1");
    EXPECT_EQ(store->RemoveLeftovers(""), absl::OkStatus());
    EXPECT_EQ(store->Remove("x/y.z_-1"), absl::OkStatus());
  }
}

TEST_F(S3ServerTest, WrongCredentialsAreSaid) {
  for (const bool wrong_key : {true, false}) {
    options_ = OptionsFor(server_);
    if (wrong_key) {
      options_.credentials.access_key_id = "nobody";
    } else {
      options_.credentials.secret_access_key = "not-the-secret";
    }
    const auto store = Open("s3://bucket/jobs/a");
    EXPECT_EQ(store->Create("file").status().code(), absl::StatusCode::kPermissionDenied);
    EXPECT_EQ(store->Open("file").status().code(), absl::StatusCode::kPermissionDenied);
    EXPECT_EQ(store->Remove("file").code(), absl::StatusCode::kPermissionDenied);
    EXPECT_EQ(store->RemoveLeftovers("").code(), absl::StatusCode::kPermissionDenied);
    const absl::Status listed = store->List("").status();
    EXPECT_EQ(listed.code(), absl::StatusCode::kPermissionDenied);
    EXPECT_THAT(listed.message(), AllOf(HasSubstr("s3://bucket: GET: HTTP status 403 "),
                                        HasSubstr(wrong_key ? "InvalidAccessKeyId: " : "SignatureDoesNotMatch: ")));
  }
}

TEST_F(S3ServerTest, AMissingBucketIsSaid) {
  const auto store = Open("s3://no-such-bucket/jobs/a");
  const absl::Status listed = store->List("").status();
  EXPECT_EQ(listed.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(listed.message(), HasSubstr("s3://no-such-bucket: GET: HTTP status 404 NoSuchBucket: "));
  EXPECT_EQ(Write(*store, "file", Pattern(3, 1)).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store->Open("file").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store->RemoveLeftovers("").code(), absl::StatusCode::kNotFound);
}

TEST_F(S3ServerTest, OutlivesAServerThatIsAwayForAWhile) {
  int waits = 0;
  options_.sleep = [&](absl::Duration duration) {
    if (++waits == 3) server_.Start();
    absl::SleepFor(duration);
  };
  store_ = Open("s3://bucket/jobs/a");
  const auto away = [&] {
    server_.Kill();
    waits = 0;
  };
  const auto bytes = Pattern(std::size_t{12} << 20, 5);
  auto writer = store_->Create("file");
  ASSERT_TRUE(writer.ok()) << writer.status();
  std::size_t begin = 0;
  for (const std::size_t end : {kPart + 1, 2 * kPart + 1, bytes.size()}) {
    away();  // before a part is sent
    ASSERT_EQ((*writer)->Append(absl::MakeConstSpan(bytes).subspan(begin, end - begin)), absl::OkStatus());
    begin = end;
    if (waits < 3) server_.Start();  // nothing had to be sent
  }
  away();
  ASSERT_EQ((*writer)->Commit(), absl::OkStatus());
  EXPECT_GE(waits, 3);
  away();
  auto reader = store_->Open("file");
  ASSERT_TRUE(reader.ok()) << reader.status();
  away();
  std::vector<std::uint8_t> read(bytes.size());
  ASSERT_EQ((*reader)->ReadAt(0, absl::MakeSpan(read)), absl::OkStatus());
  EXPECT_TRUE(read == bytes);
  away();
  EXPECT_EQ(Write(*store_, "small", Pattern(3, 1)), absl::OkStatus());
  away();
  EXPECT_THAT(Names(""), testing::ElementsAre("file", "small"));
  away();
  EXPECT_EQ(store_->Remove("file"), absl::OkStatus());
}

TEST_F(S3ServerTest, OverTls) {
  server_.Kill();
  const kube::Certificate certificate = kube::MakeCertificate("the-server", "IP:127.0.0.1", nullptr);
  server_.UseTls(certificate.Pem(), certificate.KeyPem());
  server_.Start();
  options_ = OptionsFor(server_);
  options_.ca_bundle = server_.CertificateFile();
  int waits = 3;  // it has been started
  options_.sleep = [&](absl::Duration duration) {
    if (++waits == 3) server_.Start();
    absl::SleepFor(duration);
  };
  store_ = Open("s3://bucket/jobs/a");
  EXPECT_THAT(Names(""), SizeIs(0));
  for (int i = 0; i < 3; ++i) {
    const std::string name = absl::StrCat("file-", i);
    const auto bytes = Pattern(kPart + 10, 1);
    ASSERT_EQ(Write(*store_, name, bytes), absl::OkStatus());
    // Connections that are kept break: a signal would end the test.
    server_.Kill();
    waits = 0;
    const auto read = Read(*store_, name);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(*read == bytes);
  }
  // Who is not trusted is not asked again.
  options_.ca_bundle.clear();
  waits = 3;
  const absl::Status status = Open("s3://bucket/jobs/a")->List("").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("certificate"));
  EXPECT_EQ(waits, 3);
}

TEST_F(S3ServerTest, AServerThatStaysAwayIsSaid) {
  absl::Duration now = absl::ZeroDuration();
  options_.now = [&] { return now; };
  options_.sleep = [&](absl::Duration duration) { now += duration; };
  store_ = Open("s3://bucket/jobs/a");
  auto writer = store_->Create("file");
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_EQ((*writer)->Append(Pattern(kPart + 1, 1)), absl::OkStatus());
  server_.Kill();
  EXPECT_EQ((*writer)->Commit().code(), absl::StatusCode::kUnavailable);
  EXPECT_LE(now, options_.deadline);
  EXPECT_EQ(store_->List("").status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace downpour::checkpoint

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const std::string program = downpour::checkpoint::S3Server::Program();
  if (access(program.c_str(), X_OK) != 0) {
    std::printf("skipped: there is no S3 server %s; e2e/cluster/build.sh versitygw builds it\n", program.c_str());
    return 77;
  }
  for (const char* const variable : {"no_proxy", "NO_PROXY"}) setenv(variable, "127.0.0.1", 1);
  return RUN_ALL_TESTS();
}
