#include "operator/kube/credentials.h"

#include <cstdlib>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "operator/kube/testing/credentials_folder.h"

namespace downpour::kube {
namespace {

class CredentialsTest : public CredentialsFolder {};

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

TEST_F(CredentialsTest, KubeconfigOfTheHome) {
  WriteConfig("", "token: t", "", ".kube/config");
  setenv("HOME", folder_.c_str(), 1);
  EXPECT_TRUE(KubeconfigCredentials().ok());
  EXPECT_TRUE(FindCredentials().ok());
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
