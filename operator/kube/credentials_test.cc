#include "operator/kube/credentials.h"

#include <unistd.h>

#include <barrier>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace downpour::kube {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
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
  for (const std::string user : {"auth-provider: {name: gcp}", "username: admin", "as-user-extra: {a: [b]}",
                                 "as: \"a\\nb\"", "as: root\n    as-groups: [a, b]", "as: root\n    as-groups: a"}) {
    WriteConfig("", user);
    const std::size_t last = user.rfind("\n    ") == std::string::npos ? 0 : user.rfind("\n    ") + 5;
    EXPECT_THAT(ErrorOf(path), HasSubstr(user.substr(last, user.find(':', last) - last) + ": not supported"));
  }
  for (const std::string field : {"as-uid: '7'", "as-groups: [system:masters]"}) {
    WriteConfig("", field);
    EXPECT_THAT(ErrorOf(path), HasSubstr("needs as")) << field;
  }
  for (const char* proxy : {"https://proxy", "socks5://proxy:1080", "http://me:secret@proxy:1", "proxy:3128",
                            "http://proxy", "http://proxy/path:1", "http://:3128", "http://proxy:0"}) {
    WriteConfig(std::string("proxy-url: ") + proxy, "token: t");
    EXPECT_THAT(ErrorOf(path), HasSubstr("proxy-url: not supported"));
    EXPECT_THAT(ErrorOf(path), Not(HasSubstr("secret")));
  }
}

TEST_F(CredentialsTest, TakesAProxyAndActsAsSomebodyElse) {
  const auto source = KubeconfigCredentials(WriteConfig(
      "proxy-url: http://proxy:3128", "token: t\n    as: jane doe\n    as-uid: '7'\n    as-groups: [on-call]"));
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ((*source)->proxy(), "http://proxy:3128");
  using Header = std::pair<std::string, std::string>;
  EXPECT_THAT((*source)->impersonation(),
              ElementsAre(Header("Impersonate-User", "jane doe"), Header("Impersonate-Uid", "7"),
                          Header("Impersonate-Group", "on-call")));
}

// --- programs for credentials ---

// A program in the kubeconfig's folder that counts its runs and prints `status`, in which COUNT is their number.
class PluginTest : public CredentialsTest {
 protected:
  std::string WritePlugin(const std::string& status, const std::string& more = "interactiveMode: Never") {
    Write("bin/plugin", "#!/bin/sh\ncd " + folder_.string() +
                            "\n[ -e slow ] && sleep 0.3\necho run >> runs\nCOUNT=$(grep -c run runs)\n"
                            "echo \"$KUBERNETES_EXEC_INFO\" > told\n"
                            "cat <<EOF | sed s/COUNT/$COUNT/\n{\"kind\": \"ExecCredential\", \"apiVersion\": "
                            "\"client.authentication.k8s.io/v1\", \"status\": " +
                            status + "}\nEOF\n");
    fs::permissions(folder_ / "bin/plugin", fs::perms::owner_all);
    return WriteConfig(
        "certificate-authority: ca.crt\n    tls-server-name: inner",
        "exec:\n      apiVersion: client.authentication.k8s.io/v1\n      command: bin/plugin\n      " + more);
  }

  std::unique_ptr<CredentialSource> Open(const std::string& config) {
    Write("ca.crt", "CA");
    auto source = KubeconfigCredentials(config, "", ExecPlugins::kRun, [this] { return now_; });
    EXPECT_TRUE(source.ok()) << source.status();
    return source.ok() ? *std::move(source) : nullptr;
  }

  int Runs() const {
    std::ifstream stream(folder_ / "runs");
    std::string line;
    int runs = 0;
    while (std::getline(stream, line)) ++runs;
    return runs;
  }

  // From so many threads, all of which have asked before the first is answered.
  static constexpr int kThreads = 8;
  void AllAtOnce(const std::function<void()>& ask) {
    Write("slow", "");
    std::barrier together(kThreads);
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        together.arrive_and_wait();
        ask();
      });
    }
  }

  double now_ = 0;
};

TEST_F(PluginTest, RunsOnlyWhereItIsAllowedAndWhenAsked) {
  const std::string config = WritePlugin(R"({"token": "token-COUNT"})");
  const auto refused = KubeconfigCredentials(config);
  EXPECT_TRUE(absl::IsPermissionDenied(refused.status()));
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("bin/plugin"));
  const auto source = Open(config);
  EXPECT_EQ(Runs(), 0);
  const auto first = source->Get(false);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->token, "token-1");
  EXPECT_EQ(first->certificate_authority, "CA");
  EXPECT_EQ(source->Get(false)->token, "token-1") << "it said nothing of an end";
  EXPECT_EQ(source->Get(true)->token, "token-2") << "after 401";
  EXPECT_EQ(source->Get(false)->token, "token-2");
  EXPECT_EQ(Runs(), 2);
}

TEST_F(PluginTest, AsksAgainWhenWhatItSaidHasExpired) {
  const auto source = Open(WritePlugin(R"({"token": "token-COUNT", "expirationTimestamp": "1970-01-01T01:00:00Z"})"));
  EXPECT_EQ(source->Get(false)->token, "token-1");
  now_ = 3600 - 11;
  EXPECT_EQ(source->Get(false)->token, "token-1");
  now_ = 3600 - 10;
  EXPECT_EQ(source->Get(false)->token, "token-2") << "a little before its end";
  now_ = 3600;
  EXPECT_EQ(source->Get(false)->token, "token-3");
  // Expired as it comes: it is not run for each request.
  EXPECT_EQ(source->Get(false)->token, "token-3");
  now_ = 3610;
  EXPECT_EQ(source->Get(false)->token, "token-4");
}

// The HTTP library's preparations hide from this process what the system trusts.
TEST_F(PluginTest, HasTheEnvironmentOfTheBeginning) {
  setenv("SSL_CERT_FILE", "corporate.pem", /*overwrite=*/1);
  const auto source = Open(WritePlugin(R"({"token": "token-$SSL_CERT_FILE"})"));
  setenv("SSL_CERT_FILE", "/dev/null", /*overwrite=*/1);
  EXPECT_EQ(source->Get(false)->token, "token-corporate.pem");
  unsetenv("SSL_CERT_FILE");
}

TEST_F(PluginTest, WhoWaitedForAFailureHasIt) {
  const auto source = Open(WritePlugin("broken"));
  AllAtOnce([&] { EXPECT_TRUE(absl::IsUnauthenticated(source->Get(false).status())); });
  EXPECT_LT(Runs(), kThreads);
}

TEST_F(PluginTest, ManyThatMeetA401RunItOnce) {
  const auto source = Open(WritePlugin(R"({"token": "token-COUNT"})"));
  ASSERT_TRUE(source->Get(false).ok());
  AllAtOnce([&] { EXPECT_TRUE(source->Get(true).ok()); });
  EXPECT_LT(Runs(), 1 + kThreads) << "who waits for another takes its answer";
}

TEST_F(PluginTest, ToldOfTheClusterIfItWantsToBe) {
  const auto source =
      Open(WritePlugin(R"({"clientCertificateData": "CERT", "clientKeyData": "KEY"})",
                       "interactiveMode: IfAvailable\n      provideClusterInfo: true\n      args: [a]\n      "
                       "env: [{name: A, value: b}]"));
  const auto credentials = source->Get(false);
  ASSERT_TRUE(credentials.ok()) << credentials.status();
  EXPECT_EQ(credentials->client_certificate, "CERT");
  EXPECT_EQ(credentials->client_key, "KEY");
  EXPECT_EQ(credentials->token, "");
  std::ifstream stream(folder_ / "told");
  std::string told;
  std::getline(stream, told);
  EXPECT_THAT(told, HasSubstr("\"server\":\"https://example:6443\""));
  EXPECT_THAT(told, HasSubstr("\"certificate-authority-data\":\"Q0E=\""));
  EXPECT_THAT(told, HasSubstr("\"tls-server-name\":\"inner\""));
}

TEST_F(PluginTest, WhatItPrintsIsCheckedLikeAFile) {
  const auto source = Open(WritePlugin(R"({"token": "a b"})"));
  const auto credentials = source->Get(false);
  EXPECT_TRUE(absl::IsUnauthenticated(credentials.status()));
  EXPECT_THAT(std::string(credentials.status().message()), HasSubstr("users[u].exec: is no token"));
}

TEST_F(PluginTest, ErrorsNameTheField) {
  const std::string path = (folder_ / "config").string();
  const std::string good = "apiVersion: client.authentication.k8s.io/v1, command: a, interactiveMode: Never";
  const auto error_of = [&](const std::string& exec, const std::string& user = "", const std::string& cluster = "") {
    WriteConfig(cluster, "exec: {" + exec + "}" + user);
    const auto source = KubeconfigCredentials(path, "", ExecPlugins::kRun);
    return source.ok() ? "no error" : std::string(source.status().message());
  };
  EXPECT_EQ(error_of(good), "no error");
  EXPECT_EQ(error_of("apiVersion: client.authentication.k8s.io/v1beta1, command: a"), "no error");
  EXPECT_THAT(error_of("command: a"), HasSubstr(path + ": users[u].exec.apiVersion"));
  EXPECT_THAT(error_of("apiVersion: client.authentication.k8s.io/v1alpha1, command: a"), HasSubstr("exec.apiVersion"));
  EXPECT_THAT(error_of("apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never"),
              HasSubstr("exec.command: is missing"));
  EXPECT_THAT(error_of("apiVersion: client.authentication.k8s.io/v1, command: a"), HasSubstr("exec.interactiveMode"));
  EXPECT_THAT(error_of(good + ", args: {a: b}"), HasSubstr(path));
  EXPECT_THAT(error_of(good + ", env: [{value: a}]"), HasSubstr("exec.env"));
  EXPECT_THAT(error_of(good + ", provideClusterInfo: perhaps"), HasSubstr(path));
  EXPECT_THAT(error_of(good, "\n    token: t"), HasSubstr("users[u].token: must not be given together with exec"));
  const std::string extension = "extensions: [{name: client.authentication.k8s.io/exec, extension: {a: b}}]";
  EXPECT_EQ(error_of(good, "", extension), "no error");
  EXPECT_THAT(error_of(good + ", provideClusterInfo: true", "", extension),
              HasSubstr("clusters[c].extensions: not supported"));
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
