#include "operator/kube/http_transport.h"

#include <netinet/in.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
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
class DescribedSource final : public CredentialSource {
 public:
  DescribedSource(std::string server, std::string certificate_authority, std::string proxy)
      : plain_(std::move(server), {std::move(certificate_authority), "", "", ""}), proxy_(std::move(proxy)) {}
  const std::string& server() const override { return plain_.server(); }
  const std::string& tls_server_name() const override { return plain_.tls_server_name(); }
  bool insecure_skip_tls_verify() const override { return false; }
  const std::string& default_namespace() const override { return plain_.default_namespace(); }
  std::string proxy() const override { return proxy_; }
  std::vector<std::pair<std::string, std::string>> impersonation() const override {
    return {{"Impersonate-User", "jane doe"}, {"Impersonate-Group", "on-call"}};
  }
  absl::StatusOr<Credentials> Get(bool refresh) override { return plain_.Get(refresh); }

 private:
  PlainCredentials plain_;
  const std::string proxy_;
};

TEST_F(HttpTransportTest, EachRequestActsAsSomebodyElse) {
  const auto transport = MakeHttpTransport(std::make_shared<DescribedSource>(server_.Start(), "", ""));
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

// --- TLS ---

struct Free {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(SSL* ssl) const { SSL_free(ssl); }
  void operator()(BIO* bio) const { BIO_free(bio); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

// What the system trusts, for this process.
std::string SystemCertificatesFile() {
  return ::testing::TempDir() + "system-certificates-" + std::to_string(getpid());
}

class Process final : public ::testing::Environment {
 public:
  void SetUp() override {
    std::ofstream(SystemCertificatesFile()).flush();
    setenv("SSL_CERT_FILE", SystemCertificatesFile().c_str(), /*overwrite=*/1);
    InitialiseHttp(4);
  }
  void TearDown() override { std::remove(SystemCertificatesFile().c_str()); }
};

const ::testing::Environment* const kProcess = ::testing::AddGlobalTestEnvironment(new Process);

struct Certificate {
  Owned<EVP_PKEY> key;
  Owned<X509> x509;

  std::string Pem() const {
    const Owned<BIO> bio(BIO_new(BIO_s_mem()));
    PEM_write_bio_X509(bio.get(), x509.get());
    return Text(bio.get());
  }
  std::string KeyPem() const {
    const Owned<BIO> bio(BIO_new(BIO_s_mem()));
    PEM_write_bio_PrivateKey(bio.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr);
    return Text(bio.get());
  }

 private:
  static std::string Text(BIO* bio) {
    char* bytes = nullptr;
    const long size = BIO_get_mem_data(bio, &bytes);
    return std::string(bytes, static_cast<std::size_t>(size));
  }
};

// `issuer` nullptr: an authority that signs itself.
Certificate MakeCertificate(const std::string& name, const std::string& alternative, const Certificate* issuer) {
  Certificate made{Owned<EVP_PKEY>(EVP_EC_gen("P-256")), Owned<X509>(X509_new())};
  X509* const x509 = made.x509.get();
  X509_set_version(x509, 2);
  static long serial = 1;
  ASN1_INTEGER_set(X509_get_serialNumber(x509), serial++);
  X509_gmtime_adj(X509_getm_notBefore(x509), -3600);
  X509_gmtime_adj(X509_getm_notAfter(x509), 3600);
  X509_set_pubkey(x509, made.key.get());
  X509_NAME_add_entry_by_txt(X509_get_subject_name(x509), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509* const signer = issuer == nullptr ? x509 : issuer->x509.get();
  X509_set_issuer_name(x509, X509_get_subject_name(signer));
  X509V3_CTX context;
  X509V3_set_ctx(&context, signer, x509, nullptr, nullptr, 0);
  const auto extend = [&](int id, const std::string& value) {
    X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, id, value.c_str());
    X509_add_ext(x509, extension, -1);
    X509_EXTENSION_free(extension);
  };
  extend(NID_basic_constraints, issuer == nullptr ? "critical,CA:TRUE" : "CA:FALSE");
  extend(NID_subject_key_identifier, "hash");
  // By which one of two authorities of the same name is found, as after a rotation.
  if (issuer != nullptr) extend(NID_authority_key_identifier, "keyid");
  if (!alternative.empty()) extend(NID_subject_alt_name, alternative);
  X509_sign(x509, issuer == nullptr ? made.key.get() : issuer->key.get(), EVP_sha256());
  return made;
}

// A socket on loopback; `port` is the one it got.
int Listen(int* port) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(listener, 8) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    std::abort();
  }
  *port = ntohs(address.sin_port);
  return listener;
}

// Answers each connection's first request with the common name of the client's certificate.
class TlsServer {
 public:
  TlsServer(const Certificate& certificate, const Certificate* client_authority, int max_version = 0)
      : context_(SSL_CTX_new(TLS_server_method())) {
    std::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to connections that the client has closed
    Show(certificate);
    if (max_version != 0) {
      SSL_CTX_set_security_level(context_.get(), 0);
      SSL_CTX_set_max_proto_version(context_.get(), max_version);
    }
    if (client_authority != nullptr) {
      X509_STORE_add_cert(SSL_CTX_get_cert_store(context_.get()), client_authority->x509.get());
      SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    }
    int (*const hear)(SSL*, int*, void*) = [](SSL* ssl, int*, void* self) {
      const char* const name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
      const std::lock_guard lock(static_cast<TlsServer*>(self)->mutex_);
      static_cast<TlsServer*>(self)->sni_ = name == nullptr ? "" : name;
      return SSL_TLSEXT_ERR_OK;
    };
    SSL_CTX_callback_ctrl(context_.get(), SSL_CTRL_SET_TLSEXT_SERVERNAME_CB, reinterpret_cast<void (*)()>(hear));
    SSL_CTX_set_tlsext_servername_arg(context_.get(), this);
    int port = 0;
    listener_ = Listen(&port);
    url_ = absl::StrCat("https://127.0.0.1:", port);
    thread_ = std::thread([this] { Run(); });
  }
  ~TlsServer() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  // To the connections that come.
  void Show(const Certificate& certificate) {
    const std::lock_guard lock(mutex_);
    SSL_CTX_use_certificate(context_.get(), certificate.x509.get());
    SSL_CTX_use_PrivateKey(context_.get(), certificate.key.get());
  }
  const std::string& url() const { return url_; }
  std::string sni() {
    const std::lock_guard lock(mutex_);
    return sni_;
  }

 private:
  Owned<SSL> Accept() {
    const std::lock_guard lock(mutex_);
    return Owned<SSL>(SSL_new(context_.get()));
  }

  void Run() {
    for (;;) {
      const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection < 0) return;
      const Owned<SSL> ssl = Accept();
      SSL_set_fd(ssl.get(), connection);
      char bytes[4096];
      if (SSL_accept(ssl.get()) == 1 && SSL_read(ssl.get(), bytes, sizeof(bytes)) > 0) {
        char name[100] = "nobody";
        if (X509* const peer = SSL_get1_peer_certificate(ssl.get())) {
          X509_NAME_get_text_by_NID(X509_get_subject_name(peer), NID_commonName, name, sizeof(name));
          X509_free(peer);
        }
        const std::string body = name;
        const std::string response =
            absl::StrCat("HTTP/1.1 200 OK\r\nContent-Length: ", body.size(), "\r\nConnection: close\r\n\r\n", body);
        SSL_write(ssl.get(), response.data(), static_cast<int>(response.size()));
        SSL_shutdown(ssl.get());
      }
      close(connection);
    }
  }

  const Owned<SSL_CTX> context_;
  int listener_;
  std::string url_;
  std::mutex mutex_;
  std::string sni_ = "none";
  std::thread thread_;
};

// The body, or "" if the handshake failed.
std::string Ask(const std::string& url, const Credentials& credentials, const std::string& tls_server_name = "",
                bool insecure = false) {
  const auto transport =
      MakeHttpTransport(std::make_shared<PlainCredentials>(url, credentials, "", tls_server_name, insecure));
  const auto response = transport->Exchange(Request("GET", "/"), {});
  if (response.ok()) return response->body;
  EXPECT_TRUE(absl::IsUnavailable(response.status())) << response.status();
  return "";
}

TEST(HttpTransportTlsTest, TrustsTheGivenAuthorityAlone) {
  const Certificate authority = MakeCertificate("authority", "", nullptr);
  const Certificate other = MakeCertificate("authority", "", nullptr);
  const TlsServer server(MakeCertificate("server", "IP:127.0.0.1", &authority), nullptr);
  EXPECT_EQ(Ask(server.url(), {authority.Pem(), "", "", ""}), "nobody");
  EXPECT_EQ(Ask(server.url(), {other.Pem() + authority.Pem(), "", "", ""}), "nobody");
  EXPECT_EQ(Ask(server.url(), {other.Pem(), "", "", ""}), "");
  EXPECT_EQ(Ask(server.url(), {}), "") << "the system knows it not";
  EXPECT_EQ(Ask(server.url(), {"no certificate", "", "", ""}), "");
  EXPECT_EQ(Ask(server.url(), {}, "", /*insecure=*/true), "nobody");
}

TEST(HttpTransportTlsTest, TrustsTheSystemWhereNoAuthorityIsGiven) {
  const Certificate authority = MakeCertificate("authority", "", nullptr);
  const Certificate other = MakeCertificate("other", "", nullptr);
  const TlsServer server(MakeCertificate("server", "IP:127.0.0.1", &authority), nullptr);
  std::ofstream(SystemCertificatesFile()) << other.Pem() << authority.Pem();
  EXPECT_EQ(Ask(server.url(), {}), "nobody");
  EXPECT_EQ(Ask(server.url(), {other.Pem(), "", "", ""}), "") << "what is given is in the place of the system's";
  std::ofstream(SystemCertificatesFile()) << other.Pem();
  EXPECT_EQ(Ask(server.url(), {}), "");
  // Where the library would look for itself.
  EXPECT_STREQ(std::getenv("SSL_CERT_FILE"), "/dev/null");
  EXPECT_STREQ(std::getenv("SSL_CERT_DIR"), "/dev/null");
}

TEST(HttpTransportTlsTest, ChecksTheNameOfTheServer) {
  const Certificate authority = MakeCertificate("authority", "", nullptr);
  TlsServer server(MakeCertificate("server", "DNS:inner.example", &authority), nullptr);
  const Credentials credentials{authority.Pem(), "", "", ""};
  EXPECT_EQ(Ask(server.url(), credentials), "") << "the certificate is not of 127.0.0.1";
  EXPECT_EQ(Ask(server.url(), credentials, "outer.example"), "");
  EXPECT_EQ(Ask(server.url(), credentials, "inner.example"), "nobody");
  EXPECT_EQ(server.sni(), "inner.example");
}

TEST(HttpTransportTlsTest, ShowsItsCertificate) {
  const Certificate authority = MakeCertificate("authority", "", nullptr);
  const Certificate client = MakeCertificate("the operator", "", &authority);
  const TlsServer server(MakeCertificate("server", "IP:127.0.0.1", &authority), &authority);
  EXPECT_EQ(Ask(server.url(), {authority.Pem(), client.Pem(), client.KeyPem(), ""}), "the operator");
  EXPECT_EQ(Ask(server.url(), {authority.Pem(), "", "", ""}), "");
  EXPECT_EQ(Ask(server.url(), {authority.Pem(), client.Pem(), authority.KeyPem(), ""}), "") << "the key of another";
}

// As on a cluster whose certificates are renewed: the files change under a transport that is in use.
TEST(HttpTransportTlsTest, NewConnectionsGoByTheNewestFiles) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "rotation-", getpid(), "/");
  std::filesystem::create_directories(folder);
  const auto write = [&folder](const char* name, const std::string& text) { std::ofstream(folder + name) << text; };
  const Certificate authority = MakeCertificate("authority", "", nullptr);
  const Certificate first = MakeCertificate("first", "", &authority);
  TlsServer server(MakeCertificate("server", "IP:127.0.0.1", &authority), &authority);
  write("ca.crt", authority.Pem());
  write("client.crt", first.Pem());
  write("client.key", first.KeyPem());
  write("config", absl::StrCat("current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"
                               "clusters: [{name: c, cluster: {server: '",
                               server.url(),
                               "', certificate-authority: ca.crt}}]\n"
                               "users: [{name: u, user: {client-certificate: client.crt, client-key: client.key}}]\n"));
  auto opened = KubeconfigCredentials(folder + "config");
  ASSERT_TRUE(opened.ok()) << opened.status();
  const std::shared_ptr<CredentialSource> source = *std::move(opened);
  const auto transport = MakeHttpTransport(source);
  const auto ask = [&transport] {
    const auto response = transport->Exchange(Request("GET", "/"), {});
    return response.ok() ? response->body : std::string();
  };
  EXPECT_EQ(ask(), "first");

  const Certificate second = MakeCertificate("second", "", &authority);
  write("client.crt", second.Pem());
  write("client.key", second.KeyPem());
  ASSERT_TRUE(source->Get(/*refresh=*/true).ok());  // as after a minute
  EXPECT_EQ(ask(), "second");

  const Certificate renewed = MakeCertificate("authority", "", nullptr);
  server.Show(MakeCertificate("server", "IP:127.0.0.1", &renewed));
  EXPECT_EQ(ask(), "") << "it is not trusted yet";
  write("ca.crt", authority.Pem() + renewed.Pem());
  ASSERT_TRUE(source->Get(/*refresh=*/true).ok());
  EXPECT_EQ(ask(), "second");
  std::filesystem::remove_all(folder);
}

// Takes one connection after another to where it is told.
class TunnelProxy {
 public:
  TunnelProxy() {
    int port = 0;
    listener_ = Listen(&port);
    url_ = absl::StrCat("http://127.0.0.1:", port);
    thread_ = std::thread([this] { Run(); });
  }
  ~TunnelProxy() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  const std::string& url() const { return url_; }
  std::string target() {
    const std::lock_guard lock(mutex_);
    return target_;
  }

 private:
  void Run() {
    for (;;) {
      const int inner = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (inner < 0) return;
      const int outer = Follow(inner);
      const std::string answer =
          outer < 0 ? "HTTP/1.1 502 Bad Gateway\r\n\r\n" : "HTTP/1.1 200 Connection established\r\n\r\n";
      if (write(inner, answer.data(), answer.size()) > 0 && outer >= 0) Relay(inner, outer);
      close(inner);
      if (outer >= 0) close(outer);
    }
  }

  // A connection to the port of loopback that the request "CONNECT 127.0.0.1:PORT" names; -1: none.
  int Follow(int inner) {
    std::string request;
    char byte;
    while (!request.ends_with("\r\n\r\n") && read(inner, &byte, 1) == 1) request += byte;
    const std::string line = request.substr(0, request.find("\r\n"));
    {
      const std::lock_guard lock(mutex_);
      target_ = line;
    }
    const std::string begin = "CONNECT 127.0.0.1:";
    if (!line.starts_with(begin)) return -1;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(std::atoi(line.c_str() + begin.size())));
    const int outer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(outer, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return outer;
    close(outer);
    return -1;
  }

  static void Relay(int inner, int outer) {
    for (;;) {
      pollfd entries[] = {{inner, POLLIN, 0}, {outer, POLLIN, 0}};
      if (poll(entries, 2, -1) < 0) return;
      for (int side = 0; side < 2; ++side) {
        if (entries[side].revents == 0) continue;
        char bytes[4096];
        const ssize_t count = read(entries[side].fd, bytes, sizeof(bytes));
        if (count <= 0 || write(entries[1 - side].fd, bytes, static_cast<std::size_t>(count)) != count) return;
      }
    }
  }

  int listener_;
  std::string url_;
  std::mutex mutex_;
  std::string target_;
  std::thread thread_;
};

TEST(HttpTransportTlsTest, GoesThroughAProxy) {
  const Certificate authority = MakeCertificate("authority", "", nullptr);
  const TlsServer server(MakeCertificate("server", "IP:127.0.0.1", &authority), nullptr);
  TunnelProxy proxy;
  const auto transport =
      MakeHttpTransport(std::make_shared<DescribedSource>(server.url(), authority.Pem(), proxy.url()));
  const auto response = transport->Exchange(Request("GET", "/"), {});
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->body, "nobody");
  EXPECT_THAT(proxy.target(), HasSubstr("CONNECT " + server.url().substr(std::string("https://").size())));
}

TEST(HttpTransportTlsTest, RefusesOldVersions) {
  const Certificate authority = MakeCertificate("authority", "", nullptr);
  const TlsServer server(MakeCertificate("server", "IP:127.0.0.1", &authority), nullptr, TLS1_1_VERSION);
  EXPECT_EQ(Ask(server.url(), {authority.Pem(), "", "", ""}), "");
}

}  // namespace
}  // namespace downpour::kube
