#include "operator/kube/credentials.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace downpour::kube {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class CredentialsTest : public ::testing::Test {
 protected:
  CredentialsTest() {
    const auto* const test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(::testing::TempDir()) / ("credentials-" + std::to_string(getpid()) + test->name());
    fs::create_directories(folder_);
    for (const char* name : {"KUBECONFIG", "HOME", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"}) {
      const char* const value = std::getenv(name);
      before_[name] = value == nullptr ? "" : value;
      unsetenv(name);
    }
  }
  ~CredentialsTest() override {
    for (const auto& [name, value] : before_) {
      if (value.empty()) {
        unsetenv(name.c_str());
      } else {
        setenv(name.c_str(), value.c_str(), 1);
      }
    }
    fs::remove_all(folder_);
  }

  std::string Write(const std::string& name, const std::string& text) {
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path.string();
  }

  // A kubeconfig with one of each; the lines belong to the cluster, the user and the context.
  std::string WriteConfig(const std::string& cluster, const std::string& user, const std::string& context = "",
                          const std::string& name = "config") {
    return Write(name,
                 "apiVersion: v1\nkind: Config\ncurrent-context: main\n"
                 "clusters:\n- name: c\n  cluster:\n    server: https://example:6443\n" +
                     Indent(cluster) + "users:\n- name: u\n  user:\n    ignored-field: 1\n" + Indent(user) +
                     "contexts:\n- name: main\n  context:\n    cluster: c\n    user: u\n" + Indent(context));
  }
  static std::string Indent(const std::string& lines) { return lines.empty() ? "" : "    " + lines + "\n"; }

  void ServiceAccount(const std::string& token) {
    const std::string folder = "var/run/secrets/kubernetes.io/serviceaccount/";
    Write(folder + "token", token);
    Write(folder + "ca.crt", "CA");
    Write(folder + "namespace", "team\n");
  }

  static std::string ErrorOf(const std::string& path, const std::string& context = "") {
    const auto source = KubeconfigCredentials(path, context);
    return source.ok() ? "no error" : std::string(source.status().message());
  }

  fs::path folder_;
  std::map<std::string, std::string> before_;
};

TEST_F(CredentialsTest, InClusterReadsTheServiceAccount) {
  setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1", 1);
  setenv("KUBERNETES_SERVICE_PORT", "443", 1);
  ServiceAccount("secret\n");
  const auto source = InClusterCredentials(folder_.string());
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ((*source)->server(), "https://10.96.0.1:443");
  EXPECT_EQ((*source)->default_namespace(), "team");
  EXPECT_FALSE((*source)->insecure_skip_tls_verify());
  const auto credentials = (*source)->Get(false);
  ASSERT_TRUE(credentials.ok()) << credentials.status();
  EXPECT_EQ(credentials->token, "secret");
  EXPECT_EQ(credentials->certificate_authority, "CA");
}

TEST_F(CredentialsTest, InClusterPutsIPv6InBrackets) {
  setenv("KUBERNETES_SERVICE_HOST", "fd00::1", 1);
  setenv("KUBERNETES_SERVICE_PORT", "6443", 1);
  ServiceAccount("secret");
  const auto source = InClusterCredentials(folder_.string());
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ((*source)->server(), "https://[fd00::1]:6443");
}

TEST_F(CredentialsTest, InClusterNeedsACluster) {
  EXPECT_TRUE(absl::IsFailedPrecondition(InClusterCredentials(folder_.string()).status()));
  setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1", 1);
  setenv("KUBERNETES_SERVICE_PORT", "443", 1);
  EXPECT_TRUE(absl::IsFailedPrecondition(InClusterCredentials(folder_.string()).status()));
}

TEST_F(CredentialsTest, ATokenIsReadAgainWhenAsked) {
  setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1", 1);
  setenv("KUBERNETES_SERVICE_PORT", "443", 1);
  ServiceAccount("first");
  const auto source = InClusterCredentials(folder_.string());
  ASSERT_TRUE(source.ok());
  EXPECT_EQ((*source)->Get(false)->token, "first");
  ServiceAccount("second");
  EXPECT_EQ((*source)->Get(false)->token, "first") << "not read for each request";
  EXPECT_EQ((*source)->Get(true)->token, "second");
  EXPECT_EQ((*source)->Get(false)->token, "second");
  fs::remove_all(folder_ / "var");
  const auto missing = (*source)->Get(true);
  EXPECT_TRUE(absl::IsUnauthenticated(missing.status()));
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("serviceaccount/"));
}

TEST_F(CredentialsTest, ATokenWithControlCharactersIsNone) {
  setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1", 1);
  setenv("KUBERNETES_SERVICE_PORT", "443", 1);
  for (const std::string token : {"a\r\nX-Evil: 1", "a b", "", "\n", "a\x7f"}) {
    ServiceAccount(token);
    const auto source = InClusterCredentials(folder_.string());
    ASSERT_TRUE(source.ok());
    const auto credentials = (*source)->Get(false);
    EXPECT_TRUE(absl::IsUnauthenticated(credentials.status())) << token;
    EXPECT_THAT(std::string(credentials.status().message()), Not(HasSubstr("Evil")));
  }
}

TEST_F(CredentialsTest, KubeconfigDataBeatsFiles) {
  const std::string config = WriteConfig(
      "certificate-authority-data: Q0EtREFUQQ==\n    certificate-authority: ca.crt\n    tls-server-name: inner",
      "client-certificate-data: Q0VSVA==\n    client-key: keys/key.pem\n    tokenFile: token", "namespace: team");
  Write("keys/key.pem", "KEY");
  Write("token", "from-file\n");
  const auto source = KubeconfigCredentials(config);
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ((*source)->server(), "https://example:6443");
  EXPECT_EQ((*source)->tls_server_name(), "inner");
  EXPECT_EQ((*source)->default_namespace(), "team");
  const auto credentials = (*source)->Get(false);
  ASSERT_TRUE(credentials.ok()) << credentials.status();
  EXPECT_EQ(credentials->certificate_authority, "CA-DATA");
  EXPECT_EQ(credentials->client_certificate, "CERT");
  EXPECT_EQ(credentials->client_key, "KEY") << "relative to its kubeconfig";
  EXPECT_EQ(credentials->token, "from-file");
}

TEST_F(CredentialsTest, KubeconfigFilesAreMergedTheFirstWins) {
  const std::string first = Write("a/config",
                                  "clusters:\n- name: c\n  cluster: {server: 'https://first:1', "
                                  "certificate-authority: ca.crt}\n");
  Write("a/ca.crt", "FIRST");
  Write("b/ca.crt", "SECOND");
  const std::string second = WriteConfig("certificate-authority: ca.crt", "token: t", "", "b/config");
  setenv("KUBECONFIG", (":" + folder_.string() + "/missing:" + first + "::" + second).c_str(), 1);
  const auto source = KubeconfigCredentials();
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ((*source)->server(), "https://first:1");
  EXPECT_EQ((*source)->default_namespace(), "default");
  EXPECT_EQ((*source)->Get(false)->certificate_authority, "FIRST");
  EXPECT_EQ((*source)->Get(false)->token, "t");
}

TEST_F(CredentialsTest, KubeconfigOfTheHome) {
  WriteConfig("", "token: t", "", ".kube/config");
  setenv("HOME", folder_.c_str(), 1);
  EXPECT_TRUE(KubeconfigCredentials().ok());
  EXPECT_TRUE(FindCredentials().ok());
}

TEST_F(CredentialsTest, KubeconfigErrorsNameFileAndField) {
  const std::string path = (folder_ / "config").string();
  EXPECT_THAT(ErrorOf(folder_ / "missing"), HasSubstr("missing"));
  WriteConfig("certificate-authority-data: '***'", "token: t");
  EXPECT_THAT(ErrorOf(path), HasSubstr(path + ": clusters[c].certificate-authority-data"));
  WriteConfig("", "client-certificate: a");
  EXPECT_THAT(ErrorOf(path), HasSubstr(path + ": users[u].client-key"));
  WriteConfig("insecure-skip-tls-verify: true\n    certificate-authority: ca", "token: t");
  EXPECT_THAT(ErrorOf(path), HasSubstr("clusters[c].insecure-skip-tls-verify"));
  WriteConfig("insecure-skip-tls-verify: perhaps", "token: t");
  EXPECT_THAT(ErrorOf(path), HasSubstr(path));
  WriteConfig("", "token: t");
  EXPECT_THAT(ErrorOf(path, "other"), HasSubstr("\"other\""));
  Write("config", "clusters: 3");
  EXPECT_THAT(ErrorOf(path), HasSubstr("clusters"));
  Write("config", "");
  EXPECT_THAT(ErrorOf(path), HasSubstr("current-context"));
  Write("config", "current-context: x\ncontexts:\n- name: x\n  context: {cluster: gone}\n");
  EXPECT_THAT(ErrorOf(path), HasSubstr("\"gone\""));
  Write("config", "current-context: x\ncontexts:\n- name: x\n  context: {cluster: c}\nclusters:\n- name: c\n");
  EXPECT_THAT(ErrorOf(path), HasSubstr("clusters[c].server"));
  Write("config", "token: [secret-token\n  - : {");
  EXPECT_THAT(ErrorOf(path), HasSubstr(path + ": line"));
  EXPECT_THAT(ErrorOf(path), Not(HasSubstr("secret")));
  Write("config", std::string(100'000, '['));
  EXPECT_THAT(ErrorOf(path), HasSubstr(path));
}

TEST_F(CredentialsTest, RefusesWhatItWouldLeaveOut) {
  const std::string path = (folder_ / "config").string();
  for (const std::string user : {"exec: {command: aws}", "auth-provider: {name: gcp}", "username: admin", "as: root",
                                 "as-groups: [system:masters]"}) {
    WriteConfig("", user);
    EXPECT_THAT(ErrorOf(path), HasSubstr(user.substr(0, user.find(':')) + ": not supported"));
  }
  WriteConfig("proxy-url: http://proxy", "token: t");
  EXPECT_THAT(ErrorOf(path), HasSubstr("proxy-url: not supported"));
}

TEST_F(CredentialsTest, PrefersTheClusterUnlessAPathIsGiven) {
  setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1", 1);
  setenv("KUBERNETES_SERVICE_PORT", "443", 1);
  // No service account here.
  EXPECT_TRUE(absl::IsFailedPrecondition(FindCredentials().status()));
  EXPECT_TRUE(FindCredentials(WriteConfig("", "token: t")).ok());
}

}  // namespace
}  // namespace downpour::kube
