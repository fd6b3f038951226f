#include "operator/kube/http_transport.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_api_server.h"
#include "tests/support/plain_credentials.h"

namespace downpour::kube {
namespace {

using ::testing::HasSubstr;
using End = FakeApiServer::Reaction::End;

constexpr absl::Duration kPatience = absl::Seconds(30);
constexpr absl::Duration kSoon = absl::Milliseconds(150);

HttpRequest Request(const std::string& method, const std::string& path, absl::Duration timeout = kPatience) {
  HttpRequest request;
  request.method = method;
  request.path = path;
  request.timeout = timeout;
  return request;
}

class HttpTransportTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { ASSERT_TRUE(InitialiseHttp(4).ok()); }

  std::unique_ptr<Transport> Connect(Credentials credentials = {}, const std::string& refreshed = "") {
    source_ = std::make_shared<PlainCredentials>(server_.Start(), std::move(credentials), refreshed);
    return MakeHttpTransport(source_);
  }

  FakeApiServer server_;
  std::shared_ptr<PlainCredentials> source_;
};

TEST_F(HttpTransportTest, CarriesRequestsAndResponses) {
  const auto transport =
      Connect({.certificate_authority = "", .client_certificate = "", .client_key = "", .token = "t1"});
  server_.Inject("PATCH", "", FakeApiServer::Respond(418, "teapot", {{"Retry-After", "7"}}));
  HttpRequest request = Request("PATCH", "/a%2Fb/c%20d");
  request.query = {{"q", "a=b&c d+e/\xC3\xA4"}, {"empty", ""}};
  request.body = "{\"x\":1}";
  request.content_type = "application/merge-patch+json";
  const auto response = transport->Exchange(request, {});
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->status, 418);
  EXPECT_EQ(response->body, "teapot");
  EXPECT_EQ(response->retry_after, absl::Seconds(7));

  const auto seen = server_.requests().at(0);
  EXPECT_EQ(seen.method, "PATCH");
  EXPECT_EQ(seen.path, "/a/b/c d");
  EXPECT_EQ(seen.query.at("q"), "a=b&c d+e/\xC3\xA4");
  EXPECT_EQ(seen.query.at("empty"), "");
  EXPECT_EQ(seen.headers.at("content-type"), "application/merge-patch+json");
  EXPECT_EQ(seen.headers.at("authorization"), "Bearer t1");
  EXPECT_EQ(seen.headers.at("accept"), "application/json");
  EXPECT_EQ(seen.body, request.body);
}

TEST_F(HttpTransportTest, KeepsItsConnection) {
  const auto transport = Connect();
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(transport->Exchange(Request("GET", "/api/v1/pods"), {}).ok());
  // A connection may come back a moment after its response.
  EXPECT_LE(server_.connections(), 10);
}

TEST_F(HttpTransportTest, SurvivesConnectionsThatTheServerClosed) {
  server_.SetCloseAfterResponse(true);
  const auto transport = Connect();
  for (int i = 0; i < 40; ++i) {
    HttpRequest request = Request(i % 2 == 0 ? "POST" : "PATCH", "/api/v1/namespaces/team/pods");
    request.body = R"({"metadata": {"generateName": "a-"}})" + std::string(static_cast<std::size_t>(i) * 1000, ' ');
    const auto response = transport->Exchange(request, {});
    ASSERT_TRUE(response.ok()) << i << ": " << response.status();
  }
}

TEST_F(HttpTransportTest, NobodyListens) {
  const std::string url = server_.Start();
  server_.Stop();
  const auto transport = MakeHttpTransport(std::make_shared<PlainCredentials>(url));
  const auto response = transport->Exchange(Request("GET", "/"), {});
  EXPECT_TRUE(absl::IsUnavailable(response.status())) << response.status();
  EXPECT_TRUE(absl::IsUnavailable(transport->Stream(Request("GET", "/"), {}, [](auto) { return true; }).status()));
}

TEST_F(HttpTransportTest, AddressesThatAreNone) {
  for (const char* url :
       {"", "ftp://host", "https://", "https://host:port", "https://host:0", "http://[::1", "http://a b:1"}) {
    const auto transport = MakeHttpTransport(std::make_shared<PlainCredentials>(url));
    EXPECT_FALSE(transport->Exchange(Request("GET", "/"), {}).ok()) << url;
    EXPECT_FALSE(transport->Stream(Request("GET", "/"), {}, [](auto) { return true; }).ok()) << url;
  }
}

TEST_F(HttpTransportTest, TalksToIPv6) {
  const int probe = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  const bool there = probe >= 0 && bind(probe, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  if (probe >= 0) close(probe);
  if (!there) GTEST_SKIP() << "no IPv6 on this machine";
  FakeApiServer server;
  const auto transport = MakeHttpTransport(std::make_shared<PlainCredentials>(server.Start("::1")));
  const auto response = transport->Exchange(Request("GET", "/api/v1/pods"), {});
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->status, 200);
}

TEST_F(HttpTransportTest, ASilentServerMeetsTheDeadline) {
  const auto transport = Connect();
  server_.Inject("", "", FakeApiServer::End(End::kHang), -1);
  EXPECT_TRUE(absl::IsDeadlineExceeded(transport->Exchange(Request("GET", "/", kSoon), {}).status()));
  EXPECT_TRUE(
      absl::IsDeadlineExceeded(transport->Stream(Request("GET", "/", kSoon), {}, [](auto) { return true; }).status()));
}

TEST_F(HttpTransportTest, TheDeadlineIsOfTheWholeExchange) {
  // A byte now and then would please an idle timer for ever.
  const auto transport = Connect();
  FakeApiServer::Reaction drip = FakeApiServer::Stream(std::vector<std::string>(10'000, "x"));
  drip.gap = absl::Milliseconds(20);
  server_.Inject("", "", drip, -1);
  EXPECT_TRUE(absl::IsDeadlineExceeded(transport->Exchange(Request("GET", "/", kSoon), {}).status()));
}

TEST_F(HttpTransportTest, StopEndsAnExchange) {
  const auto transport = Connect();
  for (const bool stream : {false, true}) {
    std::stop_source stop;
    FakeApiServer::Reaction hang = FakeApiServer::End(End::kHang);
    hang.before = [&] { stop.request_stop(); };
    server_.Inject("", "", hang);
    const auto response = stream ? transport->Stream(Request("GET", "/"), stop.get_token(), [](auto) { return true; })
                                 : transport->Exchange(Request("GET", "/"), stop.get_token());
    EXPECT_TRUE(absl::IsCancelled(response.status())) << response.status();
  }
}

TEST_F(HttpTransportTest, ABrokenResponseIsTriedOnceMore) {
  const auto transport = Connect();
  FakeApiServer::Reaction cut = FakeApiServer::Respond(200, std::string(1000, 'x'));
  cut.pieces[0].resize(cut.pieces[0].size() - 500);
  cut.end = End::kReset;
  for (const End end : {End::kReset, End::kClose}) {
    cut.end = end;
    server_.Inject("GET", "", cut, 1);
    const auto second = transport->Exchange(Request("GET", "/api/v1/pods"), {});
    ASSERT_TRUE(second.ok()) << second.status();
    EXPECT_EQ(second->status, 200);
    server_.Inject("GET", "", cut, 2);
    EXPECT_TRUE(absl::IsUnavailable(transport->Exchange(Request("GET", "/api/v1/pods"), {}).status()));
  }
}

TEST_F(HttpTransportTest, GarbageIsAnError) {
  const auto transport = Connect();
  for (const char* garbage : {"nonsense\r\n\r\n", "HTTP/1.1 abc\r\n\r\n", "\r\n\r\n",
                              "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"}) {
    FakeApiServer::Reaction reaction;
    reaction.pieces = {garbage};
    reaction.end = End::kClose;
    server_.Inject("", "", reaction, -1);
    EXPECT_FALSE(transport->Exchange(Request("GET", "/", absl::Seconds(2)), {}).ok()) << garbage;
    server_.ClearFaults();
  }
}

TEST_F(HttpTransportTest, LargeBodiesArriveAndTooLargeOnesDoNot) {
  const auto transport = Connect();
  const std::string large(8 << 20, 'y');
  server_.Inject("", "", FakeApiServer::Respond(200, large));
  const auto response = transport->Exchange(Request("GET", "/"), {});
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_TRUE(response->body == large);
  server_.Inject("", "", FakeApiServer::Respond(200, std::string((64 << 20) + 1, 'z')));
  EXPECT_TRUE(absl::IsResourceExhausted(transport->Exchange(Request("GET", "/"), {}).status()));
}

TEST_F(HttpTransportTest, After401TheCredentialsAreReadAgainOnce) {
  const auto transport = Connect({"", "", "", "old"}, "new");
  server_.Inject("", "", FakeApiServer::Refuse(401, "Unauthorized", "no"), 1);
  auto response = transport->Exchange(Request("GET", "/api/v1/pods"), {});
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->status, 200);
  EXPECT_EQ(server_.requests().at(0).headers.at("authorization"), "Bearer old");
  EXPECT_EQ(server_.requests().at(1).headers.at("authorization"), "Bearer new");
  EXPECT_EQ(source_->refreshes(), 1);

  server_.Inject("", "", FakeApiServer::Refuse(401, "Unauthorized", "no"), -1);
  EXPECT_EQ(transport->Exchange(Request("GET", "/api/v1/pods"), {})->status, 401);
  EXPECT_EQ(source_->refreshes(), 2);
  const auto stream = transport->Stream(Request("GET", "/"), {}, [](auto) { return true; });
  ASSERT_TRUE(stream.ok()) << stream.status();
  EXPECT_EQ(stream->status, 401);
  EXPECT_EQ(source_->refreshes(), 3);
}

// What a kubeconfig says beside credentials.
class ActsAsJane final : public PlainCredentials {
 public:
  using PlainCredentials::PlainCredentials;
  std::vector<std::pair<std::string, std::string>> impersonation() const override {
    return {{"Impersonate-User", "jane doe"}, {"Impersonate-Group", "on-call"}};
  }
};

TEST_F(HttpTransportTest, EachRequestActsAsSomebodyElse) {
  const auto transport = MakeHttpTransport(std::make_shared<ActsAsJane>(server_.Start()));
  ASSERT_TRUE(transport->Exchange(Request("GET", "/api/v1/pods"), {}).ok());
  ASSERT_TRUE(transport->Stream(Request("GET", "/api/v1/pods"), {}, [](auto) { return true; }).ok());
  for (const auto& seen : server_.requests()) {
    EXPECT_EQ(seen.headers.at("impersonate-user"), "jane doe");
    EXPECT_EQ(seen.headers.at("impersonate-group"), "on-call");
  }
}

TEST_F(HttpTransportTest, RedirectsAreNotFollowed) {
  const auto transport = Connect({"", "", "", "secret"});
  FakeApiServer elsewhere;
  server_.Inject("", "", FakeApiServer::Respond(302, "", {{"Location", elsewhere.Start() + "/steal"}}));
  const auto response = transport->Exchange(Request("GET", "/"), {});
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->status, 302);
  EXPECT_EQ(elsewhere.connections(), 0);
}

TEST_F(HttpTransportTest, StreamsGiveEachPieceAsItComes) {
  const auto transport = Connect();
  // Nothing more comes after the first piece: a reader that waits for more would wait for ever.
  server_.Inject("", "first", FakeApiServer::Stream({"one"}, End::kHang));
  std::string text;
  const auto response = transport->Stream(Request("GET", "/first"), {}, [&](std::string_view bytes) {
    text += bytes;
    return false;
  });
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->status, 200);
  EXPECT_EQ(text, "one");

  text.clear();
  server_.Inject("", "all", FakeApiServer::Stream({"a", "bc", std::string(3 << 20, 'd')}));
  const auto whole = transport->Stream(Request("GET", "/all"), {}, [&](std::string_view bytes) {
    text += bytes;
    return true;
  });
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(text.size(), 3u + (3 << 20));
  EXPECT_EQ(text.substr(0, 4), "abcd");
}

TEST_F(HttpTransportTest, PiecesOfAStreamInARushComeTogether) {
  const auto transport = Connect();
  constexpr std::size_t kPieces = 200;
  FakeApiServer::Reaction rush = FakeApiServer::Stream(std::vector<std::string>(kPieces, "x"));
  rush.gap = absl::Milliseconds(1);
  server_.Inject("", "", rush);
  std::size_t bytes = 0;
  std::size_t calls = 0;
  const auto response = transport->Stream(Request("GET", "/"), {}, [&](std::string_view piece) {
    bytes += piece.size();
    ++calls;
    return true;
  });
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(bytes, kPieces);
  EXPECT_LT(calls, kPieces / 4);
}

TEST_F(HttpTransportTest, ABrokenStreamIsUnavailableAfterWhatCame) {
  const auto transport = Connect();
  for (const End end : {End::kReset, End::kClose}) {
    FakeApiServer::Reaction broken = FakeApiServer::Stream({"first", "second"}, end);
    server_.Inject("", "", broken);
    std::string text;
    const auto response = transport->Stream(Request("GET", "/"), {}, [&](std::string_view bytes) {
      text += bytes;
      return true;
    });
    EXPECT_TRUE(absl::IsUnavailable(response.status())) << response.status();
    if (end == End::kClose) {
      EXPECT_EQ(text, "firstsecond");
    }
  }
}

TEST_F(HttpTransportTest, ASilentStreamMeetsItsDeadline) {
  const auto transport = Connect();
  server_.Inject("", "", FakeApiServer::Stream({"first"}, End::kHang));
  std::string text;
  const auto response = transport->Stream(Request("GET", "/", kSoon), {}, [&](std::string_view bytes) {
    text += bytes;
    return true;
  });
  EXPECT_TRUE(absl::IsDeadlineExceeded(response.status())) << response.status();
  EXPECT_EQ(text, "first");
}

TEST_F(HttpTransportTest, ARefusedStreamAnswersItsBody) {
  const auto transport = Connect();
  server_.Inject("", "", FakeApiServer::Refuse(410, "Expired", "too old"));
  bool called = false;
  const auto response = transport->Stream(Request("GET", "/"), {}, [&](std::string_view) { return called = true; });
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->status, 410);
  EXPECT_THAT(response->body, HasSubstr("too old"));
  EXPECT_FALSE(called);
}

TEST_F(HttpTransportTest, ASlowReaderSlowsTheServerDown) {
  // More than sockets and the transport hold, so that the server must wait; all of it arrives.
  const auto transport = Connect();
  const std::string chunk(1 << 20, 'x');
  server_.Inject("", "", FakeApiServer::Stream(std::vector<std::string>(32, chunk)));
  std::size_t bytes = 0;
  std::size_t largest = 0;
  const auto response = transport->Stream(Request("GET", "/"), {}, [&](std::string_view piece) {
    bytes += piece.size();
    largest = std::max(largest, piece.size());
    return true;
  });
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(bytes, 32 * chunk.size());
  EXPECT_LE(largest, 4 * chunk.size());
}

TEST_F(HttpTransportTest, ManyAtOnce) {
  const auto transport = Connect();
  std::atomic<int> good = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 25; ++n) {
        const auto response = transport->Exchange(Request("GET", "/api/v1/pods"), {});
        if (response.ok() && response->status == 200) ++good;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(good, 200);
}

}  // namespace
}  // namespace downpour::kube
