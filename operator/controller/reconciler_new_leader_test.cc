#include "gtest/gtest.h"
#include "operator/controller/testing/reconciler_fixture.h"

namespace downpour::controller {
namespace {

using kube::Json;

TEST_F(ReconcilerTest, ALeaderThatIsNewTellsNothingOfAJobThatTrainsBeforeItHasAsked) {
  for (const bool one_is_lost : {false, true}) {
    if (!one_is_lost) BringToTraining();
    const Json before = Status();
    Restart();
    gateway_.answer.reset();
    if (one_is_lost) EndPod("lenet-worker-0", 3);
    for (int i = 0; i < 4; ++i) {
      Refresh();
      Reconcile();
      EXPECT_EQ(Condition("Ready"), one_is_lost ? "False MembersMissing" : "True AllMembersReady");
    }
    EXPECT_EQ(Status().at("phase"), "Running");
    EXPECT_EQ(Status().at("worker").at("ready"), one_is_lost ? 1 : 2);
    EXPECT_EQ(Status() == before, !one_is_lost);
  }
  // It does not answer.
  for (int i = 0; i < 60; ++i) {
    Refresh();
    Reconcile();
    now_ += 1;
  }
  EXPECT_EQ(Condition("Ready"), "False MembersMissing");
  EXPECT_EQ(Status().at("worker").at("ready"), 0);
}

TEST_F(ReconcilerTest, ALeaderThatIsNewAsksForNoNameOfAJobThatTrains) {
  BringToTraining();
  Restart();
  gateway_.answer.reset();
  for (int i = 0; i < 3; ++i) {
    Refresh();
    Reconcile();
  }
  EXPECT_EQ(server_.CountRequests("", "/services"), 2) << "those before its first pod";
  EXPECT_EQ(server_.CountRequests("", "/endpointslices"), 1) << "its making";
  server_.Remove(kube::kServices, kNamespace, kServiceName);
  server_.Remove(kube::kEndpointSlices, kNamespace, "lenet");
  Restart();
  EndPod("lenet-worker-0", 3);
  Settle();
  EXPECT_TRUE(server_.Get(kube::kServices, kNamespace, kServiceName).has_value());
  EXPECT_TRUE(server_.Get(kube::kEndpointSlices, kNamespace, "lenet").has_value());
}

// It begins while the workers of a job that is done have exited, and the coordinator has not answered it yet.
TEST_F(ReconcilerTest, ALeaderThatIsNewAsksBeforeItTakesDismissedWorkersForFailures) {
  BringToTraining();
  EndPod("lenet-worker-0", 0);
  EndPod("lenet-worker-1", 0);
  now_ += 30;
  gateway_ = FakeGateway();
  Restart();
  Refresh();
  ReconcileResult result = Reconcile();
  EXPECT_TRUE(result.status.ok());
  EXPECT_FALSE(gateway_.followed.empty());
  ASSERT_TRUE(result.requeue_after.has_value());
  EXPECT_LE(*result.requeue_after, absl::Seconds(20));
  EXPECT_EQ(Status().at("restarts").at("total"), 0);
  now_ += 3;
  Report(v1::PHASE_DONE, 100);
  Refresh();
  EXPECT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(Condition("SuccessCriteriaMet"), "True TrainingFinished");
  EXPECT_EQ(Status().at("restarts").at("total"), 0);
}

TEST_F(ReconcilerTest, ALeaderThatIsNewAsksBeforeAJobCountsAsHung) {
  CreateJob(1, 2, {{"progressDeadlineSeconds", 60}});
  Settle();
  RunPods();
  Report(v1::PHASE_TRAINING, 10);
  Settle();
  now_ += 200;
  gateway_.answer.reset();
  Restart();
  Refresh();
  EXPECT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(Condition("FailureTarget"), "");
  Report(v1::PHASE_TRAINING, 20);
  Settle();
  EXPECT_EQ(Condition("FailureTarget"), "");
  EXPECT_EQ(Status().at("phase"), "Running");
}

}  // namespace
}  // namespace downpour::controller
