#include "operator/kube/kubeconfig.h"

#include <cstdlib>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/kube/testing/credentials_folder.h"

namespace downpour::kube {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class KubeconfigTest : public CredentialsFolder {
 protected:
  static std::string ErrorOf(const std::string& path, const std::string& context = "") {
    const auto source = KubeconfigCredentials(path, context);
    return source.ok() ? "no error" : std::string(source.status().message());
  }
};

TEST_F(KubeconfigTest, DataBeatsFiles) {
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

TEST_F(KubeconfigTest, FilesAreMergedTheFirstWins) {
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

TEST_F(KubeconfigTest, ErrorsNameFileAndField) {
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

TEST_F(KubeconfigTest, RefusesWhatItWouldLeaveOut) {
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

TEST_F(KubeconfigTest, TakesAProxyAndActsAsSomebodyElse) {
  const auto source = KubeconfigCredentials(WriteConfig(
      "proxy-url: http://proxy:3128", "token: t\n    as: jane doe\n    as-uid: '7'\n    as-groups: [on-call]"));
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ((*source)->proxy(), "http://proxy:3128");
  using Header = std::pair<std::string, std::string>;
  EXPECT_THAT((*source)->impersonation(),
              ElementsAre(Header("Impersonate-User", "jane doe"), Header("Impersonate-Uid", "7"),
                          Header("Impersonate-Group", "on-call")));
}

TEST_F(KubeconfigTest, ErrorsOfAPluginNameTheField) {
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

}  // namespace
}  // namespace downpour::kube
