#include "operator/kube/file_credentials.h"

#include <barrier>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/kube/testing/credentials_folder.h"

namespace downpour::kube {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class FileCredentialsTest : public CredentialsFolder {};

TEST_F(FileCredentialsTest, ATokenIsReadAgainWhenAsked) {
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

TEST_F(FileCredentialsTest, ATokenWithControlCharactersIsNone) {
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

// A program in the kubeconfig's folder that counts its runs and prints `status`, in which COUNT is their number.
class PluginTest : public CredentialsFolder {
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

}  // namespace
}  // namespace downpour::kube
