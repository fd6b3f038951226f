#include "operator/controller/operator.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "operator/kube/credentials.h"
#include "operator/kube/http_transport.h"
#include "tests/support/fake_api_server.h"
#include "tests/support/plain_credentials.h"
#include "tests/support/training_job.h"
#include "trainer/service/metrics.h"

namespace downpour::controller {
namespace {

using kube::FakeApiServer;

constexpr absl::Duration kLimit = absl::Seconds(30);  // nothing takes so long that is well

class OperatorTest : public ::testing::Test {
 protected:
  OperatorTest() : credentials_(std::make_shared<kube::PlainCredentials>(server_.Start())) {
    options_.reconciler.images = {"server:1", "trainer:1", "IfNotPresent"};
  }

  void CreateJob(const std::string& namespace_name, const std::string& name) {
    server_.Put(kube::kTrainingJobs, TrainingJobObject(namespace_name, name));
  }

  FakeApiServer server_;
  std::shared_ptr<kube::CredentialSource> credentials_;
  OperatorOptions options_;
};

// An admission webhook of one namespace does not answer.
TEST_F(OperatorTest, JobsThatAreHeldUpHoldUpNoOthers) {
  constexpr int kHeldUp = 5;
  options_.queue.at_once = 2;
  options_.queue.patience = absl::Milliseconds(50);
  options_.client.timeout = 10 * kLimit;
  server_.Inject("POST", "/namespaces/webhook/pods", FakeApiServer::End(FakeApiServer::Reaction::End::kHang), -1);
  for (int i = 0; i < kHeldUp; ++i) CreateJob("webhook", absl::StrCat("held-up-", i));
  service::Metrics metrics;
  Operator running(
      options_, [this] { return kube::MakeHttpTransport(credentials_); }, &metrics);
  running.Start();
  EXPECT_TRUE(server_.WaitForRequests("POST", "/namespaces/webhook/pods", kHeldUp, kLimit));
  CreateJob("well", "lenet");
  EXPECT_TRUE(server_.WaitForRequests("POST", "/namespaces/well/pods", 3, kLimit));
  EXPECT_EQ(server_.CountRequests("POST", "/namespaces/webhook/pods"), kHeldUp) << "they still wait";
  running.Stop();
}

}  // namespace
}  // namespace downpour::controller
