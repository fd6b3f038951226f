#include <algorithm>
#include <string>

#include "gtest/gtest.h"
#include "operator/controller/testing/reconciler_fixture.h"

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

}  // namespace
}  // namespace downpour::controller
