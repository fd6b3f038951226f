#include "operator/kube/http/tls.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "operator/kube/http/testing/tls_server.h"
#include "operator/kube/http_transport.h"
#include "tests/support/plain_credentials.h"

namespace downpour::kube {
namespace {

// What the system trusts, for this process.
std::string SystemCertificatesFile() {
  return ::testing::TempDir() + "system-certificates-" + std::to_string(getpid());
}

class Process final : public ::testing::Environment {
 public:
  void SetUp() override {
    std::ofstream(SystemCertificatesFile()).flush();
    setenv("SSL_CERT_FILE", SystemCertificatesFile().c_str(), /*overwrite=*/1);
    ASSERT_TRUE(InitialiseHttp(4).ok());
  }
  void TearDown() override { std::remove(SystemCertificatesFile().c_str()); }
};

const ::testing::Environment* const kProcess = ::testing::AddGlobalTestEnvironment(new Process);

HttpRequest Root() {
  HttpRequest request;
  request.path = "/";
  return request;
}

// The body, or "" if the handshake failed.
std::string Ask(const std::string& url, const Credentials& credentials, const std::string& tls_server_name = "",
                bool insecure = false) {
  const auto transport =
      MakeHttpTransport(std::make_shared<PlainCredentials>(url, credentials, "", tls_server_name, insecure));
  const auto response = transport->Exchange(Root(), {});
  if (response.ok()) return response->body;
  EXPECT_TRUE(absl::IsUnavailable(response.status())) << response.status();
  return "";
}

TEST(HttpTlsTest, TrustsTheGivenAuthorityAlone) {
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

TEST(HttpTlsTest, TrustsTheSystemWhereNoAuthorityIsGiven) {
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

TEST(HttpTlsTest, ChecksTheNameOfTheServer) {
  const Certificate authority = MakeCertificate("authority", "", nullptr);
  TlsServer server(MakeCertificate("server", "DNS:inner.example", &authority), nullptr);
  const Credentials credentials{authority.Pem(), "", "", ""};
  EXPECT_EQ(Ask(server.url(), credentials), "") << "the certificate is not of 127.0.0.1";
  EXPECT_EQ(Ask(server.url(), credentials, "outer.example"), "");
  EXPECT_EQ(Ask(server.url(), credentials, "inner.example"), "nobody");
  EXPECT_EQ(server.sni(), "inner.example");
}

TEST(HttpTlsTest, ShowsItsCertificate) {
  const Certificate authority = MakeCertificate("authority", "", nullptr);
  const Certificate client = MakeCertificate("the operator", "", &authority);
  const TlsServer server(MakeCertificate("server", "IP:127.0.0.1", &authority), &authority);
  EXPECT_EQ(Ask(server.url(), {authority.Pem(), client.Pem(), client.KeyPem(), ""}), "the operator");
  EXPECT_EQ(Ask(server.url(), {authority.Pem(), "", "", ""}), "");
  EXPECT_EQ(Ask(server.url(), {authority.Pem(), client.Pem(), authority.KeyPem(), ""}), "") << "the key of another";
}

// As on a cluster whose certificates are renewed: the files change under a transport that is in use.
TEST(HttpTlsTest, NewConnectionsGoByTheNewestFiles) {
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
    const auto response = transport->Exchange(Root(), {});
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

TEST(HttpTlsTest, RefusesOldVersions) {
  const Certificate authority = MakeCertificate("authority", "", nullptr);
  const TlsServer server(MakeCertificate("server", "IP:127.0.0.1", &authority), nullptr, TLS1_1_VERSION);
  EXPECT_EQ(Ask(server.url(), {authority.Pem(), "", "", ""}), "");
}

}  // namespace
}  // namespace downpour::kube
