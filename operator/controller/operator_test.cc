#include "operator/controller/operator.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/controller/objects.h"
#include "operator/kube/credentials.h"
#include "operator/kube/http_transport.h"
#include "tests/support/fake_api_server.h"
#include "tests/support/plain_credentials.h"
#include "tests/support/training_job.h"
#include "trainer/service/metrics.h"

namespace downpour::controller {
namespace {

using kube::FakeApiServer;
using ::testing::HasSubstr;

constexpr absl::Duration kLimit = absl::Seconds(30);  // nothing takes so long that is well

class OperatorTest : public ::testing::Test {
 protected:
  OperatorTest() : credentials_(std::make_shared<kube::PlainCredentials>(server_.Start())) {
    options_.reconciler.pods = {"server:1", "trainer:1", "IfNotPresent"};
  }

  void CreateJob(const std::string& namespace_name, const std::string& name) {
    server_.Put(kube::kTrainingJobs, TrainingJobObject(namespace_name, name));
  }

  // Runs an operator, which finds this job, to its end. It is told to end by the first such request, which has to be
  // made again.
  void RunUntil(const std::string& method, const std::string& target, const kube::Json& job) {
    service::Metrics metrics;
    Operator running(
        options_, [this] { return kube::MakeHttpTransport(credentials_); }, &metrics);
    FakeApiServer::Reaction stopping = FakeApiServer::Refuse(503, "Unavailable", "later", {{"Retry-After", "0"}});
    stopping.before = [&running] { running.Stop(); };
    server_.Inject(method, target, stopping, 1);
    running.Start();
    server_.Put(kube::kTrainingJobs, job);
    EXPECT_TRUE(running.Wait().ok());
  }

  // Of the job "lenet" of "team", as it is stored: "True", "False"; empty: there is none.
  std::string Condition(const std::string& type) const {
    const kube::Json job = server_.Get(kube::kTrainingJobs, "team", "lenet").value();
    for (const kube::Json& condition : job.at("status").value("conditions", kube::Json::array())) {
      if (condition.at("type") == type) return condition.at("status");
    }
    return "";
  }
  // Waits until it is so; false: not within the limit.
  bool WaitForCondition(const std::string& type, const std::string& status) const {
    const absl::Time deadline = absl::Now() + kLimit;
    while (Condition(type) != status && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(1));
    return Condition(type) == status;
  }

  FakeApiServer server_;
  std::shared_ptr<kube::CredentialSource> credentials_;
  OperatorOptions options_;
};

// An admission webhook of one namespace does not answer.
TEST_F(OperatorTest, JobsThatAreHeldUpHoldUpNoOthers) {
  constexpr int kHeldUp = 5;
  options_.queue.at_once = 2;
  options_.longest_drain = absl::ZeroDuration();
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

// Told to end while it makes pods: they are made, and what is told of the job is told.
TEST_F(OperatorTest, WhatIsUnderWayComesToItsEnd) {
  RunUntil("POST", "/pods", TrainingJobObject("team", "lenet"));
  EXPECT_EQ(server_.CountRequests("POST", "/pods"), 1 + 3) << "the one that was refused, and all";
  EXPECT_EQ(server_.List(kube::kPods).size(), 3u);
}

// Told to end while it stores a status: the event that follows is written.
TEST_F(OperatorTest, EventsAreWrittenToTheEnd) {
  kube::Json job = TrainingJobObject("team", "unreadable");
  job["spec"]["worker"]["replicas"] = "three";
  RunUntil("PUT", "/status", job);
  const std::vector<kube::Json> events = server_.List(kube::kEvents);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(kube::FindText(events[0], {"reason"}), "SpecInvalid");
}

// The last job of a namespace went while no operator ran.
TEST_F(OperatorTest, ServicesOfNamespacesWithoutJobsAreRemovedAtTheStart) {
  for (const char* name : {"empty", "used"}) server_.Put(kube::kServices, MakeService(name));
  kube::Json other = MakeService("others");
  other["metadata"]["name"] = "lenet";
  server_.Put(kube::kServices, other);
  CreateJob("used", "lenet");
  service::Metrics metrics;
  Operator running(
      options_, [this] { return kube::MakeHttpTransport(credentials_); }, &metrics);
  running.Start();
  EXPECT_TRUE(server_.WaitForRequests("DELETE", "/namespaces/empty/services/downpour-jobs", 1, kLimit));
  EXPECT_TRUE(server_.WaitForRequests("POST", "/namespaces/used/pods", 3, kLimit));
  running.Stop();
  EXPECT_TRUE(running.Wait().ok());
  EXPECT_EQ(server_.CountRequests("DELETE", "/services"), 1);
}

// As where it was given a Role alone.
TEST_F(OperatorTest, WorksWithoutTheRightToSeeNodes) {
  server_.Inject("GET", "/api/v1/nodes", FakeApiServer::Refuse(403, "Forbidden", "nodes is forbidden"), -1);
  options_.namespace_name = "team";
  service::Metrics metrics;
  Operator running(
      options_, [this] { return kube::MakeHttpTransport(credentials_); }, &metrics);
  running.Start();
  CreateJob("team", "lenet");
  EXPECT_TRUE(server_.WaitForRequests("POST", "/namespaces/team/pods", 3, kLimit));
  EXPECT_TRUE(server_.WaitForRequests("GET", "/api/v1/nodes", 2, kLimit));
  EXPECT_EQ(running.Unready(), "");
  running.Stop();
}

// Nothing else happens to the job meanwhile.
TEST_F(OperatorTest, ANodeThatIsCordonedIsNews) {
  server_.Put(kube::kNodes, {{"metadata", {{"name", "node-0"}}}, {"spec", kube::Json::object()}});
  CreateJob("team", "lenet");
  service::Metrics metrics;
  Operator running(
      options_, [this] { return kube::MakeHttpTransport(credentials_); }, &metrics);
  running.Start();
  EXPECT_TRUE(server_.WaitForRequests("POST", "/pods", 3, kLimit));
  EXPECT_TRUE(server_.WaitForWatches(3, kLimit));
  const auto cordon = [this](bool cordoned) {
    server_.Modify(kube::kNodes, "", "node-0",
                   [cordoned](kube::Json& node) { node["spec"]["unschedulable"] = cordoned; });
  };
  cordon(true);
  // The ps runs and the job has trained: said again where the operator, still busy with the pods, wrote what it had
  // seen before, and where a pod that was asked for was not there yet.
  const absl::Time deadline = absl::Now() + kLimit;
  while (Condition("DrainWaits") != "True" && absl::Now() < deadline) {
    server_.Modify(kube::kPods, "team", "lenet-ps-0", [](kube::Json& pod) {
      pod["spec"]["nodeName"] = "node-0";
      pod["status"] = {{"phase", "Running"}};
    });
    server_.Modify(kube::kTrainingJobs, "team", "lenet",
                   [](kube::Json& job) { job["status"]["lastProgressStep"] = 10; });
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_EQ(Condition("DrainWaits"), "True");
  for (int round = 0; round < 5; ++round) {
    for (const bool cordoned : {false, true}) {
      cordon(cordoned);
      EXPECT_TRUE(WaitForCondition("DrainWaits", cordoned ? "True" : "False")) << "round " << round;
    }
  }
  running.Stop();
}

// A thread that will not come back is no reason to wait for it for ever.
TEST_F(OperatorTest, WhatDoesNotEndIsCutOffAndReportedBefore) {
  options_.longest_drain = absl::Milliseconds(1);
  options_.longest_pass = absl::Milliseconds(1);
  options_.client.timeout = 10 * kLimit;
  server_.Inject("POST", "/pods", FakeApiServer::End(FakeApiServer::Reaction::End::kHang), -1);
  service::Metrics metrics;
  Operator running(
      options_, [this] { return kube::MakeHttpTransport(credentials_); }, &metrics);
  EXPECT_EQ(running.Stuck(), "");
  running.Start();
  CreateJob("team", "lenet");
  EXPECT_TRUE(server_.WaitForRequests("POST", "/pods", 1, kLimit));
  while (running.Stuck().empty()) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_THAT(running.Stuck(), HasSubstr("a pass lasts for"));
}

}  // namespace
}  // namespace downpour::controller
