#include <algorithm>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/controller/testing/reconciler_fixture.h"

namespace downpour::controller {
namespace {

using kube::FakeApiServer;
using kube::Json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Ge;
using ::testing::Le;

TEST_F(ReconcilerTest, ANameThatSomebodyElseOwnsIsLeftAlone) {
  server_.Put(
      kube::kPods,
      {{"apiVersion", "v1"}, {"kind", "Pod"}, {"metadata", {{"name", "lenet-worker-0"}, {"namespace", kNamespace}}}});
  CreateJob();
  Refresh();
  EXPECT_TRUE(absl::IsAlreadyExists(Reconcile().status));
  Refresh();
  EXPECT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(Condition("Blocked"), "True NameConflict");
  EXPECT_EQ(Status().at("reason"), "NameConflict");
  EXPECT_EQ(std::count(events_.begin(), events_.end(), "NameConflict"), 1);
  server_.Remove(kube::kPods, kNamespace, "lenet-worker-0");
  now_ += 60;
  Settle();
  EXPECT_EQ(Condition("Blocked"), "False NoObstacle");
  EXPECT_THAT(PodNames(), Contains("lenet-worker-0"));
}

TEST_F(ReconcilerTest, AQuotaIsAnObstacleNotAFailure) {
  CreateJob();
  server_.Inject("POST", "/pods",
                 FakeApiServer::Refuse(403, "Forbidden", "pods \"x\" is forbidden: exceeded quota: small"), -1);
  EXPECT_THAT(FailuresInTenMinutes(), AllOf(Ge(10), Le(20))) << "tries within ten minutes: 1, 2, 4 ... 60 s apart";
  EXPECT_LE(Status().at("incarnations").at("worker-0"), 20);
  EXPECT_LE(Writes(), 100);
  EXPECT_EQ(Condition("Blocked"), "True QuotaExceeded");
  EXPECT_EQ(std::count(events_.begin(), events_.end(), "QuotaExceeded"), 1);
  EXPECT_EQ(Status().at("restarts").at("total"), 0);
  ExpectThatItGoesOnWithoutFaults();
}

// As where a webhook for pods does not answer: an error of the server that lasts.
TEST_F(ReconcilerTest, AnErrorOfTheServerThatLastsIsToldAndIsNoHotLoop) {
  CreateJob();
  server_.Inject("POST", "/pods", FakeApiServer::Refuse(500, "InternalError", "failed calling webhook \"x\": timeout"),
                 -1);
  EXPECT_THAT(FailuresInTenMinutes(), AllOf(Ge(10), Le(60))) << "tries within ten minutes";
  EXPECT_LE(Status().at("incarnations").at("coordinator-0"), 60);
  EXPECT_EQ(Condition("Blocked"), "True ServerError");
  EXPECT_EQ(std::count(events_.begin(), events_.end(), "ServerError"), 1);
  EXPECT_EQ(Status().at("restarts").at("total"), 0);
  ExpectThatItGoesOnWithoutFaults();
}

TEST_F(ReconcilerTest, WhatIsNotWantedAnyMoreIsNoObstacleAnyMore) {
  BringToTraining();
  server_.Inject("POST", "/pods",
                 FakeApiServer::Refuse(403, "Forbidden", "pods \"x\" is forbidden: exceeded quota: small"), -1);
  ChangeSpec([](Json& spec) { spec["worker"]["replicas"] = 3; });
  for (int i = 0; i < 4; ++i) {
    Refresh();
    Reconcile();
  }
  EXPECT_EQ(Condition("Blocked"), "True QuotaExceeded");
  ChangeSpec([](Json& spec) { spec["worker"]["replicas"] = 2; });
  LookWhenAsked(70);
  EXPECT_EQ(Condition("Blocked"), "False NoObstacle");
}

TEST_F(ReconcilerTest, AStartThatIsBrokenOffSaysNothingAboutTheObstacle) {
  BringToTraining();
  server_.Inject("POST", "/pods",
                 FakeApiServer::Refuse(403, "Forbidden", "pods \"x\" is forbidden: exceeded quota: small"), -1);
  const auto want = [this](int workers) {
    ChangeSpec([workers](Json& spec) { spec["worker"]["replicas"] = workers; });
  };
  want(3);
  Settle();
  ASSERT_EQ(Condition("Blocked"), "True QuotaExceeded");
  now_ += 100;
  after_status_ = [&] {
    want(4);
    Fill(jobs_, kube::kTrainingJobs);
  };
  const int tries = server_.CountRequests("POST", "/pods");
  Refresh();
  Reconcile();
  ASSERT_EQ(server_.CountRequests("POST", "/pods"), tries) << "it was broken off before the first";
  LookWhenAsked(200);
  EXPECT_EQ(std::count(events_.begin(), events_.end(), "QuotaExceeded"), 1);
}

// Each try stores a number, which brings the job back at once.
TEST_F(ReconcilerTest, PodsThatAreRefusedAreNoHotLoopWhateverTheAnswer) {
  ExpectThatWhateverIsAnsweredIsTold("/pods", Json::object());
  ExpectThatItGoesOnWithoutFaults();
}

TEST_F(ReconcilerTest, ATemplateThatThePlatformRefusesStopsTheJobBeforeItsFirstPod) {
  CreateJob(1, 2, {{"worker", {{"template", {{"spec", {{"priorityClassName", "none"}}}}}}}});
  server_.Inject("POST", "dryRun=All", FakeApiServer::Refuse(403, "Forbidden", "no PriorityClass with name none"), -1);
  Refresh();
  EXPECT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(Condition("TemplateInvalid"), "True Refused");
  EXPECT_TRUE(PodNames().empty());
  server_.ClearFaults();
  now_ += 60;
  Settle();
  EXPECT_EQ(Condition("TemplateInvalid"), "False Accepted");
  EXPECT_EQ(PodNames().size(), 4u);
}

// Pods are made without a look at fields that the server does not know: a job whose templates nobody has looked at must
// not begin.
TEST_F(ReconcilerTest, WhileTemplatesCannotBeCheckedTheJobDoesNotBegin) {
  CreateJob(1, 2, {{"worker", {{"template", {{"spec", {{"priorityClassName", "some"}}}}}}}});
  server_.Inject("POST", "dryRun=All", FakeApiServer::Refuse(500, "InternalError", "failed calling webhook \"x\""), -1);
  EXPECT_THAT(FailuresInTenMinutes(), AllOf(Ge(10), Le(60))) << "tries within ten minutes";
  EXPECT_TRUE(PodNames().empty());
  EXPECT_FALSE(Status().contains("startTime"));
  EXPECT_EQ(Condition("Blocked"), "True ServerError");
  EXPECT_EQ(std::count(events_.begin(), events_.end(), "ServerError"), 1);
  server_.ClearFaults();
  LookWhenAsked(120);
  EXPECT_EQ(PodNames().size(), 4u);
  EXPECT_EQ(Condition("Blocked"), "False NoObstacle");
}

TEST_F(ReconcilerTest, ATemplateThatIsRefusedStaysSoWhileItCannotBeCheckedAgain) {
  CreateJob(1, 2, {{"worker", {{"template", {{"spec", {{"priorityClassName", "none"}}}}}}}});
  server_.Inject("POST", "dryRun=All", FakeApiServer::Refuse(403, "Forbidden", "no PriorityClass with name none"), 1);
  server_.Inject("POST", "dryRun=All", FakeApiServer::Refuse(500, "InternalError", "failed calling webhook \"x\""), -1);
  Refresh();
  EXPECT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(Condition("TemplateInvalid"), "True Refused");
  LookWhenAsked(300);
  EXPECT_EQ(Condition("TemplateInvalid"), "True Refused");
  EXPECT_TRUE(PodNames().empty());
}

// As where a webhook refuses with an odd code: nothing that the operator knows what to make of.
TEST_F(ReconcilerTest, AJobWhoseTemplateCannotBeCheckedSaysWhyWhateverTheAnswer) {
  ExpectThatWhateverIsAnsweredIsTold("dryRun=All",
                                     {{"worker", {{"template", {{"spec", {{"priorityClassName", "some"}}}}}}}});
  EXPECT_TRUE(PodNames().empty());
}

TEST_F(ReconcilerTest, AFullNamespaceIsNoFaultOfTheTemplate) {
  CreateJob(1, 2, {{"worker", {{"template", {{"spec", {{"priorityClassName", "some"}}}}}}}});
  for (const char* words : {"exceeded quota: small", "status unknown for quota: small, resources: pods"}) {
    server_.ClearFaults();
    server_.Inject("POST", "/pods",
                   FakeApiServer::Refuse(403, "Forbidden", absl::StrCat("pods \"x\" is forbidden: ", words)), -1);
    EXPECT_THAT(FailuresInTenMinutes(), AllOf(Ge(10), Le(20))) << "tries within ten minutes";
    EXPECT_EQ(Condition("Blocked"), "True QuotaExceeded");
    EXPECT_EQ(Condition("TemplateInvalid"), "");
  }
  ExpectThatItGoesOnWithoutFaults();
}

TEST_F(ReconcilerTest, ATerminatingNamespaceIsNoFaultOfTheTemplate) {
  CreateJob(1, 2, {{"worker", {{"template", {{"spec", {{"priorityClassName", "some"}}}}}}}});
  server_.Inject(
      "POST", "/pods",
      FakeApiServer::Refuse(403, "Forbidden",
                            "pods \"x\" is forbidden: unable to create new content in namespace y because it "
                            "is being terminated"),
      -1);
  EXPECT_THAT(FailuresInTenMinutes(), AllOf(Ge(10), Le(20))) << "tries within ten minutes";
  EXPECT_EQ(Condition("Blocked"), "True NamespaceTerminating");
  EXPECT_EQ(Condition("TemplateInvalid"), "");
}

}  // namespace
}  // namespace downpour::controller
