#include "trainer/checkpoint/s3_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tests/support/fake_api_server.h"

// Faults, against a server that answers as each test says. What a whole S3 server makes of the store is for
// s3_server_test.cc.
namespace downpour::checkpoint {
namespace {

using kube::FakeApiServer;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Le;
using testing::Not;
using testing::SizeIs;
using End = FakeApiServer::Reaction::End;

constexpr char kSecret[] = "do-not-show-this-secret";
constexpr char kToken[] = "do-not-show-this-token";
constexpr char kMark[] = "x-amz-meta-downpour-writer";
constexpr std::size_t kPart = 5 << 20;

// libcurl by itself sends a request again that was the second on its connection and got no answer. Where a test counts
// them, what comes before ends the connection.
const std::pair<std::string, std::string> kLast = {"Connection", "close"};

// Without a body, as the answer to HEAD; `length` is what a GET would bring.
FakeApiServer::Reaction HeadAnswer(int status, std::size_t length, const FakeApiServer::Headers& headers = {}) {
  std::string text =
      absl::StrCat("HTTP/1.1 ", status, " Text\r\nConnection: close\r\nContent-Length: ", length, "\r\n");
  for (const auto& [name, value] : headers) absl::StrAppend(&text, name, ": ", value, "\r\n");
  FakeApiServer::Reaction reaction;
  reaction.pieces = {text + "\r\n"};
  return reaction;
}

FakeApiServer::Reaction Absent() { return HeadAnswer(404, 0); }

FakeApiServer::Reaction Refusal(int status, const std::string& code, const std::string& message) {
  return FakeApiServer::Respond(status, absl::StrCat("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>", code,
                                                     "</Code><Message>", message, "</Message></Error>"));
}

FakeApiServer::Reaction Range(const std::string& whole, std::size_t begin, std::size_t end) {
  return FakeApiServer::Respond(
      206, whole.substr(begin, end - begin),
      {{"Content-Range", absl::StrCat("bytes ", begin, "-", end - 1, "/", whole.size())}, {"ETag", "\"e1\""}});
}

absl::Span<const std::uint8_t> Bytes(absl::string_view text) {
  return absl::MakeConstSpan(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
}

class S3StoreTest : public testing::Test {
 protected:
  S3StoreTest() {
    for (const char* const variable : {"no_proxy", "NO_PROXY"}) setenv(variable, "127.0.0.1", 1);
    options_.endpoint = server_.Start();
    options_.credentials = {"the-key", kSecret, kToken};
    options_.part_bytes = kPart;
    options_.now = [this] { return now_; };
    options_.sleep = [this](absl::Duration duration) {
      sleeps_.push_back(duration);
      now_ += duration;
    };
    options_.random = [] { return 0.5; };
  }

  // Of the options as they are now; the one before is gone.
  Store& store() {
    auto store = OpenS3Store("s3://bucket/jobs/a", options_);
    EXPECT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    return *store_;
  }

  std::unique_ptr<StoreWriter> Writer(Store& store) {
    server_.Inject("HEAD", "/file", Absent());
    auto writer = store.Create("file");
    EXPECT_TRUE(writer.ok()) << writer.status();
    return *std::move(writer);
  }

  // A writer that has sent one part and holds a byte.
  std::unique_ptr<StoreWriter> WriterInParts(Store& store) {
    auto writer = Writer(store);
    server_.Inject("POST", "/file?uploads=",
                   FakeApiServer::Respond(
                       200, "<InitiateMultipartUploadResult><UploadId>id1</UploadId></InitiateMultipartUploadResult>"));
    server_.Inject("PUT", "partNumber=1", FakeApiServer::Respond(200, "", {{"ETag", "\"p1\""}}));
    server_.Inject("PUT", "partNumber=2", FakeApiServer::Respond(200, "", {{"ETag", "\"p2\""}, kLast}));
    server_.Inject("DELETE", "uploadId=id1", FakeApiServer::Respond(204, ""));
    EXPECT_EQ(writer->Append(Bytes(std::string(kPart + 1, 'x'))), absl::OkStatus());
    return writer;
  }

  std::unique_ptr<StoreReader> Reader(Store& store, std::size_t size) {
    server_.Inject("HEAD", "/file", HeadAnswer(200, size, {{"ETag", "\"e1\""}}));
    auto reader = store.Open("file");
    EXPECT_TRUE(reader.ok()) << reader.status();
    return *std::move(reader);
  }

  // What the first request of the writer had.
  std::string Mark() const {
    for (const FakeApiServer::Request& request : server_.requests()) {
      if (request.headers.contains(kMark)) return request.headers.at(kMark);
    }
    return "none";
  }

  // The connection ends where the answer would be; then HEAD finds the object, with the mark of its writer.
  FakeApiServer::Reaction LostButDone() {
    FakeApiServer::Reaction reaction = FakeApiServer::End(End::kReset);
    reaction.before = [this] { server_.Inject("HEAD", "/file", HeadAnswer(200, 7, {{kMark, Mark()}})); };
    return reaction;
  }

  FakeApiServer server_;
  S3Options options_;
  absl::Duration now_ = absl::Hours(5);
  std::vector<absl::Duration> sleeps_;
  std::unique_ptr<Store> store_;
};

TEST_F(S3StoreTest, TriesAgainWhatMayBeBetterInAMoment) {
  Store& store = this->store();
  const std::vector<FakeApiServer::Reaction> failures = {
      Refusal(500, "InternalError", "m"),
      FakeApiServer::Respond(502, "<html>no such gateway</html>"),
      Refusal(503, "SlowDown", "m"),
      FakeApiServer::Respond(504, ""),
      FakeApiServer::Respond(429, ""),
      Refusal(400, "RequestTimeout", "m"),
      Refusal(409, "OperationAborted", "m"),
      FakeApiServer::End(End::kReset),
      FakeApiServer::End(End::kClose),
      FakeApiServer::Reaction{{"HTTP/1.1 204 No Content\r\nContent-Le"}, {}, End::kClose, {}},
  };
  for (const FakeApiServer::Reaction& failure : failures) {
    SCOPED_TRACE(failure.pieces.empty() ? "no answer" : failure.pieces[0]);
    const int before = server_.CountRequests("DELETE", "");
    sleeps_.clear();
    server_.Inject("DELETE", "/bucket/jobs/a/file", failure, 3);
    server_.Inject("DELETE", "/bucket/jobs/a/file", FakeApiServer::Respond(204, "", {kLast}));
    EXPECT_EQ(store.Remove("file"), absl::OkStatus());
    EXPECT_EQ(server_.CountRequests("DELETE", "") - before, 4);
    EXPECT_THAT(sleeps_, ElementsAre(absl::Milliseconds(50), absl::Milliseconds(100), absl::Milliseconds(200)));
  }
}

TEST_F(S3StoreTest, TriesAgainAnAnswerThatWasCutOff) {
  const std::string whole = "0123456789";
  auto reader = Reader(store(), whole.size());
  FakeApiServer::Reaction cut = Range(whole, 0, 10);
  cut.pieces[0].resize(cut.pieces[0].size() - 4);
  cut.end = End::kClose;
  server_.Inject("GET", "/file", cut);
  server_.Inject("GET", "/file", Range(whole, 0, 10));
  std::vector<std::uint8_t> bytes(10);
  ASSERT_EQ(reader->ReadAt(0, absl::MakeSpan(bytes)), absl::OkStatus());
  EXPECT_EQ(std::string(bytes.begin(), bytes.end()), whole);
}

TEST_F(S3StoreTest, SaysAtOnceWhatIsRefused) {
  const struct {
    int status;
    const char* code;
    absl::StatusCode expected;
  } cases[] = {
      {403, "AccessDenied", absl::StatusCode::kPermissionDenied},
      {403, "SignatureDoesNotMatch", absl::StatusCode::kPermissionDenied},
      {400, "ExpiredToken", absl::StatusCode::kPermissionDenied},
      {404, "NoSuchBucket", absl::StatusCode::kNotFound},
      {400, "InvalidRequest", absl::StatusCode::kInvalidArgument},
      {507, "XMinioStorageFull", absl::StatusCode::kResourceExhausted},
      {403, "QuotaExceeded", absl::StatusCode::kResourceExhausted},
  };
  Store& store = this->store();
  for (const auto& one : cases) {
    SCOPED_TRACE(one.code);
    const int before = server_.CountRequests("DELETE", "");
    server_.Inject("DELETE", "/file", Refusal(one.status, one.code, "because &lt;of&gt; that\n"));
    const absl::Status status = store.Remove("file");
    EXPECT_EQ(status.code(), one.expected);
    EXPECT_EQ(status.message(), absl::StrCat("s3://bucket/jobs/a/file: DELETE: HTTP status ", one.status, " ", one.code,
                                             ": because <of> that\\n"));
    EXPECT_EQ(server_.CountRequests("DELETE", "") - before, 1);
  }
  EXPECT_THAT(sleeps_, SizeIs(0));
}

TEST_F(S3StoreTest, NamesTheRegionOfTheBucket) {
  server_.Inject("HEAD", "/file", HeadAnswer(301, 0, {{"x-amz-bucket-region", "eu-west-1"}}));
  const auto reader = store().Open("file");
  EXPECT_EQ(reader.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(reader.status().message(), HasSubstr("the bucket is in region eu-west-1, AWS_REGION is us-east-1"));
}

TEST_F(S3StoreTest, GivesUpWhenItsTimeIsUp) {
  Store& store = this->store();
  server_.Inject("", "", Refusal(503, "SlowDown", "m"), -1);
  const absl::Duration begin = now_;
  const absl::Status status = store.Remove("file");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("503 SlowDown"), HasSubstr("given up after")));
  EXPECT_LE(now_ - begin, options_.deadline);
  EXPECT_GE(now_ - begin, options_.deadline - options_.backoff_max);
  EXPECT_THAT(sleeps_, Each(Le(options_.backoff_max)));
  EXPECT_EQ(store.List("").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(store.Create("file").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(store.Open("file").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(store.RemoveLeftovers("").code(), absl::StatusCode::kUnavailable);
}

TEST_F(S3StoreTest, GivesUpWhereNobodyListens) {
  Store& store = this->store();
  server_.Stop();
  const absl::Status status = store.Remove("file");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("s3://bucket/jobs/a/file"));
}

TEST_F(S3StoreTest, AServerThatHangsHoldsUpNobodyForLonger) {
  options_.deadline = absl::Milliseconds(200);
  options_.now = nullptr;
  options_.sleep = nullptr;
  Store& store = this->store();
  server_.Inject("", "", FakeApiServer::End(End::kHang), -1);
  EXPECT_EQ(store.Remove("file").code(), absl::StatusCode::kUnavailable);
}

TEST_F(S3StoreTest, AnAnswerThatStallsIsAskedForAgain) {
  const std::string whole = "0123456789";
  options_.stall_timeout = absl::Seconds(1);
  auto reader = Reader(store(), whole.size());
  FakeApiServer::Reaction stalled = Range(whole, 0, 10);
  stalled.pieces[0].resize(stalled.pieces[0].size() - 4);
  stalled.end = End::kHang;
  server_.Inject("GET", "/file", stalled);
  server_.Inject("GET", "/file", Range(whole, 0, 10));
  std::vector<std::uint8_t> bytes(10);
  ASSERT_EQ(reader->ReadAt(0, absl::MakeSpan(bytes)), absl::OkStatus());
  EXPECT_EQ(std::string(bytes.begin(), bytes.end()), whole);
}

TEST_F(S3StoreTest, AFileOfUpToAPartIsOneRequestThatReplacesNothing) {
  auto writer = Writer(store());
  server_.Inject("PUT", "/bucket/jobs/a/file", FakeApiServer::Respond(200, "", {{"ETag", "\"e\""}}));
  ASSERT_EQ(writer->Append(Bytes("hello")), absl::OkStatus());
  ASSERT_EQ(writer->Append(Bytes(std::string(kPart - 5, 'x'))), absl::OkStatus());
  EXPECT_EQ(server_.CountRequests("PUT", ""), 0);
  ASSERT_EQ(writer->Commit(), absl::OkStatus());
  EXPECT_EQ(writer->Commit().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(writer->Append(Bytes("x")).code(), absl::StatusCode::kFailedPrecondition);
  writer.reset();
  EXPECT_EQ(server_.CountRequests(), 2U);  // with the HEAD of Create
  const FakeApiServer::Request request = server_.requests().back();
  EXPECT_EQ(request.body.size(), kPart);
  EXPECT_EQ(request.headers.at("if-none-match"), "*");
  EXPECT_THAT(request.headers.at("authorization"),
              AllOf(HasSubstr("Credential=the-key/"), HasSubstr("/us-east-1/s3/aws4_request"),
                    HasSubstr("content-md5;"), HasSubstr("x-amz-content-sha256;"), HasSubstr("x-amz-security-token")));
  EXPECT_EQ(request.headers.at("x-amz-security-token"), kToken);
}

TEST_F(S3StoreTest, CreateSaysWhatIsThereAlready) {
  server_.Inject("HEAD", "/file", HeadAnswer(200, 5));
  EXPECT_EQ(store().Create("file").status().code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(S3StoreTest, AfterALostAnswerTheMarkTellsWhoseTheFileIs) {
  Store& store = this->store();
  {
    auto writer = Writer(store);
    server_.Inject("PUT", "/file", LostButDone());
    EXPECT_EQ(writer->Commit(), absl::OkStatus());
    EXPECT_EQ(server_.CountRequests("PUT", ""), 1);
  }
  {
    auto writer = Writer(store);
    server_.Inject("PUT", "/file", FakeApiServer::End(End::kReset));
    server_.Inject("HEAD", "/file", HeadAnswer(200, 7, {{kMark, "of another"}}));
    EXPECT_EQ(writer->Commit().code(), absl::StatusCode::kAlreadyExists);
    EXPECT_EQ(server_.CountRequests("PUT", ""), 2);
  }
  {
    auto writer = Writer(store);
    server_.Inject("PUT", "/file", FakeApiServer::End(End::kReset));
    server_.Inject("HEAD", "/file", Absent());
    server_.Inject("PUT", "/file", FakeApiServer::Respond(200, ""));
    EXPECT_EQ(writer->Commit(), absl::OkStatus());
    EXPECT_EQ(server_.CountRequests("PUT", ""), 4);
  }
}

TEST_F(S3StoreTest, TheFirstAttemptMayHaveArrivedAfterItWasLookedFor) {
  auto writer = Writer(store());
  server_.Inject("PUT", "/file", FakeApiServer::End(End::kReset));
  server_.Inject("HEAD", "/file", Absent());
  FakeApiServer::Reaction refusal = Refusal(412, "PreconditionFailed", "m");
  refusal.before = [this] { server_.Inject("HEAD", "/file", HeadAnswer(200, 7, {{kMark, Mark()}})); };
  server_.Inject("PUT", "/file", refusal);
  EXPECT_EQ(writer->Commit(), absl::OkStatus());
}

TEST_F(S3StoreTest, OfTwoWritersTheSecondIsTold) {
  auto writer = Writer(store());
  server_.Inject("PUT", "/file", Refusal(412, "PreconditionFailed", "m"));
  server_.Inject("HEAD", "/file", HeadAnswer(200, 7, {{kMark, "of another"}}));
  EXPECT_EQ(writer->Commit().code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(S3StoreTest, WhatIsInTheWayMayNotBeSeenYet) {
  Store& store = this->store();
  {
    auto writer = Writer(store);
    server_.Inject("PUT", "/file", Refusal(412, "PreconditionFailed", "m"));
    server_.Inject("HEAD", "/file", Absent());
    server_.Inject("PUT", "/file", FakeApiServer::Respond(200, ""));
    EXPECT_EQ(writer->Commit(), absl::OkStatus());
  }
  auto writer = Writer(store);
  server_.Inject("PUT", "/file", Refusal(412, "PreconditionFailed", "m"), -1);
  server_.Inject("HEAD", "/file", Absent(), -1);
  EXPECT_EQ(writer->Commit().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(S3StoreTest, AServerWithoutIfNoneMatchIsAskedBefore) {
  Store& store = this->store();
  auto writer = Writer(store);
  server_.Inject("PUT", "/file", Refusal(501, "NotImplemented", "If-None-Match"));
  server_.Inject("HEAD", "/file", Absent());
  server_.Inject("PUT", "/file", FakeApiServer::Respond(200, ""));
  EXPECT_EQ(writer->Commit(), absl::OkStatus());
  EXPECT_FALSE(server_.requests().back().headers.contains("if-none-match"));
  // What really is not there is not tried for ever.
  auto other = Writer(store);
  server_.Inject("PUT", "/file", Refusal(501, "NotImplemented", "m"));
  EXPECT_EQ(other->Commit().code(), absl::StatusCode::kUnimplemented);
}

TEST_F(S3StoreTest, ALargeFileIsMadeOfParts) {
  auto writer = WriterInParts(store());
  server_.Inject("POST", "/file?uploadId=id1",
                 FakeApiServer::Respond(
                     200, "\n \n<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>"));
  ASSERT_EQ(writer->Commit(), absl::OkStatus());
  const FakeApiServer::Request complete = server_.requests().back();
  EXPECT_EQ(complete.headers.at("if-none-match"), "*");
  EXPECT_THAT(complete.body, HasSubstr("<Part><PartNumber>1</PartNumber><ETag>\"p1\"</ETag></Part>"
                                       "<Part><PartNumber>2</PartNumber><ETag>\"p2\"</ETag></Part>"));
  for (const FakeApiServer::Request& request : server_.requests()) {
    if (request.method != "PUT") continue;
    EXPECT_EQ(request.body.size(), request.query.at("partNumber") == "1" ? kPart : 1);
    EXPECT_THAT(request.headers.at("content-md5"), SizeIs(24));
  }
  writer.reset();
  EXPECT_EQ(server_.CountRequests("DELETE", ""), 0);
}

TEST_F(S3StoreTest, AfterALostAnswerToCompleteTheMarkTells) {
  auto writer = WriterInParts(store());
  server_.Inject("POST", "/file?uploadId=id1", LostButDone());
  EXPECT_EQ(writer->Commit(), absl::OkStatus());
  EXPECT_EQ(server_.CountRequests("POST", "uploadId=id1"), 1);
}

TEST_F(S3StoreTest, CompleteMayFailAfterItsAnswerHasBegun) {
  auto writer = WriterInParts(store());
  server_.Inject("POST", "/file?uploadId=id1", Refusal(200, "InternalError", "m"));
  server_.Inject("HEAD", "/file", Absent());
  server_.Inject("POST", "/file?uploadId=id1", Refusal(200, "InvalidPart", "m"));
  EXPECT_EQ(writer->Commit().code(), absl::StatusCode::kInternal);
}

TEST_F(S3StoreTest, AnUploadThatSomebodyRemovedIsSaid) {
  auto writer = WriterInParts(store());
  server_.Inject("POST", "/file?uploadId=id1", Refusal(404, "NoSuchUpload", "m"));
  server_.Inject("HEAD", "/file", Absent());
  EXPECT_EQ(writer->Commit().code(), absl::StatusCode::kAborted);
}

TEST_F(S3StoreTest, WhatIsNotCommittedIsForgotten) {
  WriterInParts(store()).reset();
  EXPECT_EQ(server_.CountRequests("DELETE", "uploadId=id1"), 1);
  // Also where that fails, it ends.
  auto writer = WriterInParts(store());
  server_.ClearFaults();
  server_.Inject("", "", Refusal(503, "SlowDown", "m"), -1);
  const absl::Duration begin = now_;
  writer.reset();
  EXPECT_LE(now_ - begin, absl::Seconds(5));
}

TEST_F(S3StoreTest, AfterAFailureAWriterGoesOnFailing) {
  auto writer = Writer(store());
  server_.Inject("POST", "uploads=", Refusal(403, "AccessDenied", "m"));
  EXPECT_EQ(writer->Append(Bytes(std::string(kPart + 1, 'x'))).code(), absl::StatusCode::kPermissionDenied);
  const std::size_t requests = server_.CountRequests();
  EXPECT_EQ(writer->Append(Bytes("x")).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(writer->Commit().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(server_.CountRequests(), requests);
}

TEST_F(S3StoreTest, ManySmallReadsAreFewRequests) {
  std::string whole;
  for (int i = 0; i < 100; ++i) whole += static_cast<char>('a' + i % 26);
  options_.read_ahead_bytes = 40;
  auto reader = Reader(store(), whole.size());
  EXPECT_EQ(reader->size(), 100U);
  for (const std::size_t begin : {0, 40, 80}) {
    server_.Inject("GET", "/file", Range(whole, begin, std::min<std::size_t>(begin + 40, 100)));
  }
  std::string read;
  for (std::uint64_t offset = 0; offset < 100; offset += 4) {
    std::vector<std::uint8_t> bytes(4);
    ASSERT_EQ(reader->ReadAt(offset, absl::MakeSpan(bytes)), absl::OkStatus());
    read.append(bytes.begin(), bytes.end());
  }
  EXPECT_EQ(read, whole);
  EXPECT_EQ(server_.CountRequests("GET", ""), 3);
  EXPECT_EQ(server_.requests().back().headers.at("if-match"), "\"e1\"");
  EXPECT_EQ(server_.requests().back().headers.at("range"), "bytes=80-99");
  // Elsewhere no more than is asked for.
  server_.Inject("GET", "/file", Range(whole, 10, 15));
  std::vector<std::uint8_t> five(5);
  ASSERT_EQ(reader->ReadAt(10, absl::MakeSpan(five)), absl::OkStatus());
  EXPECT_EQ(std::string(five.begin(), five.end()), whole.substr(10, 5));
  EXPECT_EQ(server_.requests().back().headers.at("range"), "bytes=10-14");
}

TEST_F(S3StoreTest, ReadsWithinTheFile) {
  auto reader = Reader(store(), 10);
  const std::size_t requests = server_.CountRequests();
  std::vector<std::uint8_t> bytes(4);
  EXPECT_EQ(reader->ReadAt(7, absl::MakeSpan(bytes)).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(reader->ReadAt(~std::uint64_t{0}, absl::MakeSpan(bytes)).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(reader->ReadAt(10, {}), absl::OkStatus());
  EXPECT_EQ(server_.CountRequests(), requests);
}

TEST_F(S3StoreTest, AFileThatChangedIsNotRead) {
  const std::string whole = "0123456789";
  const struct {
    FakeApiServer::Reaction reaction;
    absl::StatusCode expected;
  } cases[] = {
      {Refusal(412, "PreconditionFailed", "m"), absl::StatusCode::kDataLoss},
      {Refusal(416, "InvalidRange", "m"), absl::StatusCode::kDataLoss},
      {Range(whole, 4, 6), absl::StatusCode::kDataLoss},
      {Range(whole, 0, 4), absl::StatusCode::kInternal},                                // another range
      {FakeApiServer::Respond(200, std::string(9, 'x')), absl::StatusCode::kInternal},  // knows no ranges
      {FakeApiServer::Respond(200, std::string(1 << 20, 'x')), absl::StatusCode::kInternal},
      {Refusal(404, "NoSuchKey", "m"), absl::StatusCode::kNotFound},
  };
  auto reader = Reader(store(), whole.size());
  for (const auto& one : cases) {
    server_.Inject("GET", "/file", one.reaction);
    std::vector<std::uint8_t> bytes(4);
    EXPECT_EQ(reader->ReadAt(4, absl::MakeSpan(bytes)).code(), one.expected) << one.reaction.pieces[0].substr(0, 100);
  }
}

TEST_F(S3StoreTest, ListsPageByPage) {
  Store& store = this->store();
  server_.Inject("GET", "continuation-token=t/1 +",
                 FakeApiServer::Respond(200,
                                        "<ListBucketResult><IsTruncated>false</IsTruncated>"
                                        "<Contents><Key>jobs/a/ckpt/1</Key><Size>12</Size></Contents>"
                                        "<Contents><Key>jobs/a/ckpt/</Key><Size>0</Size></Contents>"
                                        "<Contents><Key>jobs/a/ckpt/&lt;&#34;</Key><Size>0</Size></Contents>"
                                        "</ListBucketResult>"));
  server_.Inject("GET", "/bucket?list-type=2&prefix=jobs/a/ckpt",
                 FakeApiServer::Respond(
                     200,
                     "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
                     "<IsTruncated>true</IsTruncated><NextContinuationToken>t/1 +</NextContinuationToken>"
                     "<Contents><Key>jobs/a/ckpt/2</Key><Size>18446744073709551615</Size></Contents>"
                     "</ListBucketResult>"));
  const auto files = store.List("ckpt");
  ASSERT_TRUE(files.ok()) << files.status();
  ASSERT_THAT(*files, SizeIs(2));
  EXPECT_EQ((*files)[0].name, "ckpt/1");
  EXPECT_EQ((*files)[0].bytes, 12U);
  EXPECT_EQ((*files)[1].name, "ckpt/2");
  EXPECT_EQ((*files)[1].bytes, ~std::uint64_t{0});
}

TEST_F(S3StoreTest, AListMustBeOne) {
  Store& store = this->store();
  for (const char* const body :
       {"", "{}", "<html/>", "<ListBucketResult><Contents><Key>jobs/a/x</Key></Contents></ListBucketResult>",
        "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>", "<ListBucketResult>"}) {
    server_.Inject("GET", "list-type", FakeApiServer::Respond(200, body));
    const auto files = store.List("");
    EXPECT_EQ(files.status().code(), absl::StatusCode::kInternal) << body;
    EXPECT_THAT(files.status().message(), HasSubstr("s3://bucket/jobs/a"));
  }
  server_.Inject("GET", "list-type",
                 FakeApiServer::Respond(200,
                                        "<ListBucketResult><IsTruncated>true</IsTruncated>"
                                        "<NextContinuationToken>t</NextContinuationToken></ListBucketResult>"),
                 -1);
  EXPECT_EQ(store.List("").status().code(), absl::StatusCode::kInternal);  // the same page again
}

TEST_F(S3StoreTest, RemovesUnfinishedUploads) {
  Store& store = this->store();
  server_.Inject("GET", "key-marker=jobs/a/x",
                 FakeApiServer::Respond(200,
                                        "<ListMultipartUploadsResult><IsTruncated>false</IsTruncated>"
                                        "<Upload><Key>jobs/a/x</Key><UploadId>2</UploadId></Upload>"
                                        "</ListMultipartUploadsResult>"));
  server_.Inject("GET", "/bucket?prefix=jobs/a/x&uploads=",
                 FakeApiServer::Respond(200,
                                        "<ListMultipartUploadsResult><IsTruncated>true</IsTruncated>"
                                        "<NextKeyMarker>jobs/a/x</NextKeyMarker><NextUploadIdMarker>1"
                                        "</NextUploadIdMarker><Upload><Key>jobs/a/x</Key><UploadId>1</UploadId>"
                                        "</Upload></ListMultipartUploadsResult>"));
  server_.Inject("DELETE", "/bucket/jobs/a/x?uploadId=1", Refusal(404, "NoSuchUpload", "m"));
  server_.Inject("DELETE", "/bucket/jobs/a/x?uploadId=2", FakeApiServer::Respond(204, ""));
  EXPECT_EQ(store.RemoveLeftovers("x"), absl::OkStatus());
  EXPECT_EQ(server_.CountRequests("DELETE", "uploadId"), 2);
}

TEST_F(S3StoreTest, RemovesWhatIsNotThere) {
  Store& store = this->store();
  server_.Inject("DELETE", "/file", Refusal(404, "NoSuchKey", "m"));
  EXPECT_EQ(store.Remove("file"), absl::OkStatus());
}

TEST_F(S3StoreTest, KeepsItsConnection) {
  Store& store = this->store();
  server_.Inject("DELETE", "/file", FakeApiServer::Respond(204, ""), 3);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(store.Remove("file"), absl::OkStatus());
  EXPECT_EQ(server_.connections(), 1);
}

TEST_F(S3StoreTest, GoesThroughTheProxyOfTheEnvironment) {
  setenv("http_proxy", options_.endpoint.c_str(), 1);
  options_.endpoint = "http://s3.invalid:9000";
  server_.Inject("DELETE", "http://s3.invalid:9000/bucket/jobs/a/file", FakeApiServer::Respond(204, ""));
  EXPECT_EQ(store().Remove("file"), absl::OkStatus());
  unsetenv("http_proxy");
}

TEST_F(S3StoreTest, ErrorsShowNoSecrets) {
  std::vector<absl::Status> errors;
  Store& store = this->store();
  server_.Inject("", "", Refusal(403, "SignatureDoesNotMatch", "m"), -1);
  errors.push_back(store.List("").status());
  errors.push_back(store.Remove("file"));
  errors.push_back(store.Open("file").status());
  server_.Stop();
  errors.push_back(store.Remove("file"));
  options_.credentials.secret_access_key = absl::StrCat(kSecret, "\n");
  errors.push_back(OpenS3Store("s3://bucket", options_).status());
  options_.credentials = {"", kSecret, kToken};
  errors.push_back(OpenS3Store("s3://bucket", options_).status());
  options_.credentials = {"the-key", kSecret, kToken};
  options_.endpoint = absl::StrCat("http://somebody:", kSecret, "@127.0.0.1:1");
  errors.push_back(OpenS3Store("s3://bucket", options_).status());
  for (const absl::Status& error : errors) {
    EXPECT_FALSE(error.ok());
    EXPECT_THAT(error.ToString(), AllOf(Not(HasSubstr(kSecret)), Not(HasSubstr(kToken))));
  }
}

TEST_F(S3StoreTest, RefusesWhatIsNoNameOrUri) {
  Store& store = this->store();
  for (const char* const name : {"", "/a", "a/", "a//b", "../a", "a/.b", "a b", "a%2F", "\xc3\xa4"}) {
    EXPECT_EQ(store.Create(name).status().code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_EQ(store.Open(name).status().code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_EQ(store.Remove(name).code(), absl::StatusCode::kInvalidArgument) << name;
  }
  EXPECT_EQ(server_.CountRequests(), 0U);
  for (const char* const uri :
       {"", "s3:/bucket", "s3://", "s3:///x", "s3://bu cket", "s3://b/../x", "s3://b//x", "/path", "S3://b"}) {
    EXPECT_EQ(OpenS3Store(uri, options_).status().code(), absl::StatusCode::kInvalidArgument) << uri;
  }
  for (const char* const uri : {"s3://bucket", "s3://bucket/", "s3://my.bucket-1/a b/c=d/"}) {
    const auto other = OpenS3Store(uri, options_);
    ASSERT_TRUE(other.ok()) << other.status();
    EXPECT_EQ((*other)->uri(), uri);
  }
}

TEST_F(S3StoreTest, RefusesOptionsThatCannotBe) {
  const auto refused = [this](const auto& change) {
    S3Options options = options_;
    change(options);
    return OpenS3Store("s3://bucket", options).status().code() == absl::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](S3Options& options) { options.part_bytes = kPart - 1; }));
  EXPECT_TRUE(refused([](S3Options& options) { options.read_ahead_bytes = 0; }));
  EXPECT_TRUE(refused([](S3Options& options) { options.region = "a:b"; }));
  for (const char* const endpoint : {"localhost:9000", "ftp://host", "http://", "http://host/path", "http://h?x"}) {
    EXPECT_TRUE(refused([&](S3Options& options) { options.endpoint = endpoint; })) << endpoint;
  }
}

}  // namespace
}  // namespace downpour::checkpoint
