#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "operator/controller/testing/reconciler_fixture.h"
#include "operator/job/report.h"

namespace downpour::controller {
namespace {

using kube::FakeApiServer;
using kube::Json;

// Of a job with a ps that runs on node-1.
class DrainTest : public ReconcilerTest {
 protected:
  DrainTest() {
    CreateJob(1, 2, {{"progressDeadlineSeconds", 0}});
    cordoned_nodes_.emplace();
    Train();
    now_ += 60;
    Settle();
  }

  // Every member runs, the ps on node-1, and the coordinator says that training goes on.
  void Train() {
    Settle();
    RunPods();
    server_.Modify(kube::kPods, kNamespace, "lenet-ps-0", [](Json& pod) { pod["spec"]["nodeName"] = "node-1"; });
    Report(v1::PHASE_TRAINING, 10);
    Settle();
  }

  bool IsProtected() const { return server_.Get(kube::kPodDisruptionBudgets, kNamespace, "lenet-ps").has_value(); }
};

TEST_F(DrainTest, ADrainIsHeldUpAndThenLetThrough) {
  EXPECT_TRUE(IsProtected());
  EXPECT_EQ(Condition("DrainWaits"), "");
  cordoned_nodes_ = {"node-1"};
  Settle();
  EXPECT_EQ(Condition("DrainWaits"), "True NodeCordoned");
  EXPECT_TRUE(IsProtected());
  EXPECT_EQ(std::count(events_.begin(), events_.end(), "DrainWaits"), 1);
  LookWhenAsked(3500);
  EXPECT_TRUE(IsProtected());
  LookWhenAsked(100);
  EXPECT_FALSE(IsProtected()) << "nothing but its own wish brings the job back";
  EXPECT_EQ(Condition("DrainWaits"), "False LetThrough");
  EXPECT_EQ(std::count(events_.begin(), events_.end(), "DrainLetThrough"), 1);

  Restart();
  Settle();
  EXPECT_FALSE(IsProtected()) << "an operator that is new lets it through as well";
  server_.Remove(kube::kPods, kNamespace, "lenet-ps-0");
  Settle();
  RunPods();
  EXPECT_EQ(Condition("DrainWaits"), "False NothingWaits") << "the ps is elsewhere";
  cordoned_nodes_->clear();
  Train();
  EXPECT_EQ(Condition("Ready"), "True AllMembersReady");
  EXPECT_FALSE(IsProtected()) << "little to lose yet";
  now_ += 60;
  Settle();
  EXPECT_TRUE(IsProtected());
}

TEST_F(DrainTest, WhoeverAllowsItIsNotKeptWaiting) {
  const auto choose = [this](const char* disruption) {
    ChangeSpec([disruption](Json& spec) { spec["parameterServer"]["disruption"] = disruption; });
    Refresh();
    EXPECT_TRUE(Reconcile().status.ok());
  };
  cordoned_nodes_ = {"node-1"};
  Settle();
  choose("Allow");
  EXPECT_FALSE(IsProtected());
  EXPECT_EQ(Condition("DrainWaits"), "False Allowed");
  choose("Protect");
  EXPECT_TRUE(IsProtected());
  EXPECT_EQ(Condition("DrainWaits"), "True NodeCordoned");
}

TEST_F(DrainTest, TheReasonIsStoredBeforeTheProtectionEnds) {
  cordoned_nodes_ = {"node-1"};
  Settle();
  now_ += 3600;
  Refresh();
  server_.Inject("PUT", "/status", FakeApiServer::Refuse(409, "Conflict", "somebody was quicker"), 1);
  EXPECT_FALSE(Reconcile().status.ok());
  EXPECT_TRUE(IsProtected());
  Settle();
  EXPECT_FALSE(IsProtected());
}

TEST_F(DrainTest, AProtectionThatCannotBeEndedIsToldAndTriedAgain) {
  server_.Inject("DELETE", "/poddisruptionbudgets", FakeApiServer::Refuse(403, "Forbidden", "no such right"), -1);
  cordoned_nodes_ = {"node-1"};
  Settle();
  now_ += 3600;
  for (int i = 0; i < 100; ++i) {
    Refresh();
    EXPECT_TRUE(Reconcile().status.ok());
  }
  EXPECT_EQ(server_.CountRequests("DELETE", "/poddisruptionbudgets"), 1);
  EXPECT_EQ(std::count(events_.begin(), events_.end(), "StillProtected"), 1);
  server_.ClearFaults();
  LookWhenAsked(120);
  EXPECT_FALSE(IsProtected());
}

TEST_F(DrainTest, ACheckpointIsAskedForAndHeardOf) {
  ChangeSpec([](Json& spec) { spec["checkpoint"] = {{"uri", "/ckpt"}, {"onDisruption", {{"timeoutSeconds", 60}}}}; });
  Settle();
  EXPECT_EQ(gateway_.question.checkpoint_request(), "");
  EXPECT_EQ(gateway_.periods.ask, absl::Seconds(10));
  cordoned_nodes_ = {"node-1"};
  Settle();
  EXPECT_EQ(Condition("DrainWaits"), "True NodeCordoned");
  EXPECT_TRUE(IsProtected());
  const std::string request = gateway_.question.checkpoint_request();
  EXPECT_EQ(request, Status().at("checkpointRequest").at("name"));
  EXPECT_EQ(gateway_.question.job_uid().find('-'), std::string::npos);
  EXPECT_EQ(gateway_.periods.ask, absl::Seconds(1)) << "somebody waits for it";
  now_ += 5;
  gateway_.answer->received_time = now_;
  v1::CheckpointProgress& checkpoint = *gateway_.answer->reply.mutable_checkpoint();
  checkpoint.set_newest("/ckpt/lenet/1");
  checkpoint.set_request(request);
  checkpoint.set_request_state(v1::REQUEST_DONE);
  Settle();
  EXPECT_FALSE(IsProtected());
  EXPECT_EQ(Condition("DrainWaits"), "False LetThrough");
  EXPECT_EQ(Status().at("checkpoint").at("newest"), "/ckpt/lenet/1");
  EXPECT_EQ(gateway_.question.checkpoint_request(), "");
}

// A job whose slices have standbys, on three ps, the first of them on node-1.
class StandbyTest : public ReconcilerTest {
 protected:
  StandbyTest() {
    CreateJob(3, 1, {{"progressDeadlineSeconds", 0}, {"parameterServer", {{"replicationFactor", 2}}}});
    cordoned_nodes_.emplace();
    Settle();
    RunPods();
    server_.Modify(kube::kPods, kNamespace, "lenet-ps-0", [](Json& pod) { pod["spec"]["nodeName"] = "node-1"; });
    Answer({0, 1, 2});
    Settle();
    now_ += 60;
    Answer({0, 1, 2});
    Settle();
  }

  // The coordinator has heard what it is told, and answers.
  void Answer(const std::vector<std::uint32_t>& placed) {
    Report(v1::PHASE_TRAINING, 10);
    v1::ProgressReply& reply = gateway_.answer->reply;
    reply.mutable_replication()->set_slices(12);
    reply.mutable_replication()->set_in_sync(12);
    reply.mutable_placed_ps()->Add(placed.begin(), placed.end());
    gateway_.answer->told = job::ToldBy(gateway_.question);
  }
  // Without letting time pass, as answers age.
  void Look() {
    for (int i = 0; i < 4; ++i) {
      Refresh();
      EXPECT_TRUE(Reconcile().status.ok());
    }
  }
  Json Budget() const { return server_.Get(kube::kPodDisruptionBudgets, kNamespace, "lenet-ps")->at("spec"); }
};

TEST_F(StandbyTest, ADrainedPsLeavesAndIsLetGoOnceItHoldsNothing) {
  EXPECT_EQ(Condition("Protected"), "True InSync");
  EXPECT_EQ(Budget().at("minAvailable"), 3);
  cordoned_nodes_ = {"node-1"};
  Look();
  EXPECT_EQ(Condition("DrainWaits"), "True NodeCordoned");
  ASSERT_EQ(gateway_.question.leaving_ps_size(), 1);
  EXPECT_EQ(gateway_.question.leaving_ps(0), 0u);
  EXPECT_EQ(gateway_.periods.ask, absl::Seconds(1)) << "somebody waits for it";
  EXPECT_EQ(Budget().at("minAvailable"), 3);
  Answer({1, 2});
  Look();
  EXPECT_EQ(Condition("DrainWaits"), "False NothingWaits");
  EXPECT_EQ(Budget().at("minAvailable"), 2);
  EXPECT_EQ(Budget().at("selector").at("matchExpressions").at(0).at("values"), Json::array({"0"}));
  EXPECT_EQ(Status().at("slices").at("parameterServers"), Json::array({1, 2}));

  server_.Remove(kube::kPods, kNamespace, "lenet-ps-0");  // evicted
  Settle();
  RunPods();
  Answer({1, 2});
  Settle();
  EXPECT_EQ(gateway_.question.leaving_ps_size(), 0);
  EXPECT_EQ(Condition("ParametersLost"), "");
  EXPECT_EQ(std::count(events_.begin(), events_.end(), "PsLeft"), 1);
  ASSERT_EQ(gateway_.question.failures_size(), 1);
  EXPECT_EQ(gateway_.question.failures(0).role(), "ps");
  Answer({0, 1, 2});
  Settle();
  EXPECT_EQ(Budget().at("minAvailable"), 3);
  EXPECT_FALSE(Budget().at("selector").contains("matchExpressions"));
}

TEST_F(StandbyTest, PsComeAndGoWithTheManifest) {
  ChangeSpec([](Json& spec) { spec["parameterServer"]["replicas"] = 4; });
  Look();
  EXPECT_EQ(gateway_.question.ps().count(), 4u);
  EXPECT_EQ(gateway_.question.ps().revision(), 2u);
  RunPods();
  Answer({0, 1, 2, 3});
  Look();
  EXPECT_EQ(Status().at("parameterServer").at("summary"), "4/4");
  const std::vector<std::string> all = PodNames();
  ChangeSpec([](Json& spec) { spec["parameterServer"]["replicas"] = 2; });
  Look();
  EXPECT_EQ(PodNames(), all) << "the newest answer is about the manifest before";
  EXPECT_EQ(gateway_.periods.ask, absl::Seconds(1));
  Answer({0, 1, 3});
  Look();
  RunPods();
  Look();
  const std::vector<std::string> names = PodNames();
  EXPECT_EQ(std::count(names.begin(), names.end(), "lenet-ps-2"), 0);
  EXPECT_EQ(std::count(names.begin(), names.end(), "lenet-ps-3"), 1);
  EXPECT_EQ(Budget().at("minAvailable"), 3);
  Answer({0, 1});
  Look();
  RunPods();
  Look();
  EXPECT_EQ(PodNames().size(), 4u);
  EXPECT_EQ(Status().at("restarts").at("total"), 0);
  EXPECT_EQ(Budget().at("minAvailable"), 2);
}

}  // namespace
}  // namespace downpour::controller
