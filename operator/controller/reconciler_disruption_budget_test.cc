#include <algorithm>

#include "gtest/gtest.h"
#include "operator/controller/testing/reconciler_fixture.h"

namespace downpour::controller {
namespace {

using kube::FakeApiServer;

TEST_F(ReconcilerTest, AJobWhoseBudgetIsRefusedTrainsOnAndTriesAgainInAMinute) {
  CreateJob();
  Settle();
  RunPods();
  server_.Inject("POST", "/poddisruptionbudgets", FakeApiServer::Refuse(403, "Forbidden", "exceeded quota"), -1);
  Report(v1::PHASE_TRAINING, 10);
  const auto tries = [this] { return server_.CountRequests("POST", "/poddisruptionbudgets"); };
  Refresh();
  const ReconcileResult first = Reconcile();
  EXPECT_TRUE(first.status.ok());
  EXPECT_EQ(tries(), 0);
  ASSERT_TRUE(first.requeue_after.has_value());
  EXPECT_LE(*first.requeue_after, absl::Seconds(60));
  now_ += 60;
  for (int i = 0; i < 20; ++i) {
    Refresh();
    EXPECT_TRUE(Reconcile().status.ok()) << "nobody's work waits for it";
  }
  EXPECT_EQ(tries(), 1);
  EXPECT_EQ(std::count(events_.begin(), events_.end(), "Unprotected"), 1);
  now_ += 61;
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(tries(), 2);
  server_.ClearFaults();
  now_ += 61;
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  EXPECT_TRUE(server_.Get(kube::kPodDisruptionBudgets, kNamespace, "lenet-ps").has_value());
  EXPECT_EQ(std::count(events_.begin(), events_.end(), "Unprotected"), 1);
}

TEST_F(ReconcilerTest, MembersThatComeAndGoDoNotPutTheBudgetOff) {
  BringToTraining();
  now_ += 40;
  EndPod("lenet-worker-1", 3);
  Settle();
  RunPods();
  Report(v1::PHASE_TRAINING, 20);
  Settle();
  EXPECT_EQ(Condition("Ready"), "True AllMembersReady");
  EXPECT_TRUE(server_.Get(kube::kPodDisruptionBudgets, kNamespace, "lenet-ps").has_value());
}

TEST_F(ReconcilerTest, AClockThatWasAheadDoesNotPutTheBudgetOff) {
  BringToTraining();
  now_ -= 3600;  // another replica leads now, and its clock is right
  Restart();
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  EXPECT_FALSE(server_.Get(kube::kPodDisruptionBudgets, kNamespace, "lenet-ps").has_value());
  now_ += 61;
  ASSERT_TRUE(Reconcile().status.ok());
  EXPECT_TRUE(server_.Get(kube::kPodDisruptionBudgets, kNamespace, "lenet-ps").has_value());
}

}  // namespace
}  // namespace downpour::controller
