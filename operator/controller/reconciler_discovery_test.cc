#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/controller/testing/reconciler_fixture.h"

namespace downpour::controller {
namespace {

using kube::FakeApiServer;
using kube::Json;
using ::testing::AllOf;
using ::testing::Ge;
using ::testing::Le;

TEST_F(ReconcilerTest, AServiceThatSomebodyDeletedIsMadeAgainForAPodThatStarts) {
  BringToTraining();
  const auto looks = [this] { return server_.CountRequests("GET", "/services/downpour-jobs"); };
  EXPECT_EQ(looks(), 1) << "before the first pod";
  EndPod("lenet-worker-0", 3);
  Settle();
  EXPECT_EQ(looks(), 1) << "it was made a moment ago";
  now_ += 60;
  server_.Remove(kube::kServices, kNamespace, kServiceName);
  RunPods();
  EndPod("lenet-worker-1", 3);
  const int pods = server_.CountRequests("POST", "/pods");
  for (int i = 0; i < 50 && server_.CountRequests("POST", "/pods") == pods; ++i) {
    Refresh();
    ASSERT_TRUE(Reconcile().status.ok());
    now_ += 6;
  }
  EXPECT_EQ(server_.CountRequests("POST", "/pods"), pods + 1);
  EXPECT_EQ(looks(), 1) << "the pass that replaces a pod is in a hurry";
  Settle();
  EXPECT_TRUE(server_.Get(kube::kServices, kNamespace, kServiceName).has_value());
  EXPECT_EQ(looks(), 2);
  now_ += 60;
  RunPods();
  EndPod("lenet-worker-0", 3);
  Settle();
  EXPECT_EQ(looks(), 3);
  EXPECT_EQ(server_.CountRequests("POST", "/services"), 2) << "nothing is asked for that is there";
}

TEST_F(ReconcilerTest, AServiceOfSomebodyElseIsToldBeforeAPodIsMade) {
  server_.Put(kube::kServices, SomebodyElsesService());
  CreateJob();
  Refresh();
  EXPECT_TRUE(absl::IsAlreadyExists(Reconcile().status));
  Refresh();
  EXPECT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(Condition("Blocked"), "True NameConflict");
  EXPECT_TRUE(PodNames().empty());
  server_.Remove(kube::kServices, kNamespace, kServiceName);
  now_ += 60;
  Settle();
  EXPECT_EQ(Condition("Blocked"), "False NoObstacle");
  EXPECT_FALSE(PodNames().empty());
}

TEST_F(ReconcilerTest, AServiceOfSomebodyElseInPlaceOfOursIsAnObstacleThatIsNotAskedAboutAllTheTime) {
  BringToTraining();
  now_ += 60;
  server_.Remove(kube::kServices, kNamespace, kServiceName);
  server_.Put(kube::kServices, SomebodyElsesService());
  EndPod("lenet-worker-1", 3);
  const int before = server_.CountRequests("", "/services");
  for (int i = 0; i < 100; ++i) {
    Refresh();
    Reconcile();
  }
  EXPECT_EQ(Condition("Blocked"), "True NameConflict");
  EXPECT_LE(server_.CountRequests("", "/services") - before, 6) << "in 25 seconds";
  server_.Remove(kube::kServices, kNamespace, kServiceName);
  now_ += 60;
  Settle();
  ASSERT_TRUE(server_.Get(kube::kServices, kNamespace, kServiceName).has_value());
  EXPECT_EQ(Condition("Blocked"), "False NoObstacle");
}

TEST_F(ReconcilerTest, TheServiceOfANamespaceGoesWithItsLastJob) {
  BringToTraining();
  server_.Remove(kube::kTrainingJobs, kNamespace, "lenet");
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  EXPECT_FALSE(server_.Get(kube::kServices, kNamespace, kServiceName).has_value());
  Reconcile();
  EXPECT_EQ(server_.CountRequests("DELETE", "/services/downpour-jobs"), 1);
}

// Whoever starts again must not be led to what has the address by then.
TEST_F(ReconcilerTest, ACoordinatorThatIsReplacedIsFoundAtItsNewAddress) {
  BringToTraining();
  EXPECT_EQ(Published(), "10.0.0.1");
  EndPod("lenet-coordinator-0", 3);
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(Published(), "") << "the address may be given to somebody else";
  Settle();
  server_.Modify(kube::kPods, kNamespace, "lenet-coordinator-0", [](Json& pod) {
    pod["status"] = {{"phase", "Running"}, {"podIP", "10.0.0.2"}};
  });
  Settle();
  EXPECT_EQ(Published(), "10.0.0.2");
  EXPECT_EQ(server_.CountRequests("PATCH", "/endpointslices/lenet"), 2);
}

TEST_F(ReconcilerTest, PodsWithIpv6AddressesAreFoundAskedAndTold) {
  pod_address_ = "fd00::2";
  BringToTraining();
  EXPECT_EQ(Published(), "fd00::2");
  EXPECT_EQ(server_.Get(kube::kEndpointSlices, kNamespace, "lenet")->at("addressType"), "IPv6");
  EXPECT_EQ(gateway_.followed, "[fd00::2]:7070");
  Report(v1::PHASE_DONE, 100);
  for (int i = 0; i < 2; ++i) {
    Refresh();
    ASSERT_TRUE(Reconcile().status.ok());
  }
  EXPECT_EQ(gateway_.finished_at, std::set<std::string>{"[fd00::2]:7070"});
}

// While a webhook that pods need does not answer.
TEST_F(ReconcilerTest, ACoordinatorIsFoundWhileOtherPodsAreRefused) {
  BringToTraining();
  EndPod("lenet-coordinator-0", 3);
  Settle();
  EndPod("lenet-worker-1", 3);
  server_.Inject("POST", "/pods", FakeApiServer::Refuse(500, "InternalError", "failed calling webhook"), -1);
  LookWhenAsked(30);
  EXPECT_EQ(Condition("Blocked"), "True ServerError");
  server_.Modify(kube::kPods, kNamespace, "lenet-coordinator-0", [](Json& pod) {
    pod["status"] = {{"phase", "Running"}, {"podIP", "10.0.0.2"}};
  });
  Refresh();
  Reconcile();
  EXPECT_EQ(Published(), "10.0.0.2");
}

TEST_F(ReconcilerTest, ThatACoordinatorIsNowhereIsNoObstacleIfItCannotBeSaid) {
  BringToTraining();
  server_.Inject("PATCH", "/endpointslices", FakeApiServer::Refuse(403, "Forbidden", "no"), 3);
  ChangeSpec([](Json& spec) { spec["suspend"] = true; });
  LookWhenAsked(10);
  RunPods();
  LookWhenAsked(3);
  EXPECT_EQ(Published(), "10.0.0.1");
  EXPECT_EQ(Condition("Blocked"), "");
  LookWhenAsked(60);
  EXPECT_EQ(Published(), "");
  EXPECT_EQ(Condition("Blocked"), "");
  EXPECT_EQ(server_.CountRequests("PATCH", "/endpointslices"), 4);
}

TEST_F(ReconcilerTest, AJobThatIsSuspendedIsFoundNowhere) {
  BringToTraining();
  EXPECT_EQ(Published(), "10.0.0.1");
  ChangeSpec([](Json& spec) { spec["suspend"] = true; });
  Settle();
  RunPods();
  Settle();
  ASSERT_TRUE(PodNames().empty());
  EXPECT_EQ(Published(), "");
  // A leader before could not say so any more.
  server_.Modify(kube::kEndpointSlices, kNamespace, "lenet", [](Json& slice) {
    slice["endpoints"] = {{{"addresses", {"10.0.0.1"}}}};
  });
  Restart();
  Settle();
  EXPECT_EQ(Published(), "");
  // As a server says it that there are none.
  server_.Modify(kube::kEndpointSlices, kNamespace, "lenet", [](Json& slice) { slice["endpoints"] = nullptr; });
  Restart();
  const int patches = server_.CountRequests("PATCH", "/endpointslices");
  Settle();
  EXPECT_EQ(server_.CountRequests("PATCH", "/endpointslices"), patches);
  ChangeSpec([](Json& spec) { spec["suspend"] = false; });
  Settle();
  RunPods();
  Settle();
  EXPECT_EQ(Published(), "10.0.0.1");
}

TEST_F(ReconcilerTest, ASliceThatSomebodyDeletedIsMadeAgainForAPodThatStarts) {
  BringToTraining();
  server_.Remove(kube::kEndpointSlices, kNamespace, "lenet");
  now_ += 60;
  EndPod("lenet-worker-0", 3);
  Settle();
  EXPECT_TRUE(server_.Get(kube::kEndpointSlices, kNamespace, "lenet").has_value());
}

TEST_F(ReconcilerTest, ASliceOfSomebodyElseIsAnObstacleAndLeftAlone) {
  const Json theirs = {{"apiVersion", "discovery.k8s.io/v1"},
                       {"kind", "EndpointSlice"},
                       {"metadata", {{"name", "lenet"}, {"namespace", kNamespace}}},
                       {"endpoints", Json::array()}};
  server_.Put(kube::kEndpointSlices, theirs);
  CreateJob(1, 2);
  Settle();
  RunPods();
  LookWhenAsked(30);
  EXPECT_EQ(Condition("Blocked"), "True NameConflict");
  // It may be one that took the place of ours.
  server_.Remove(kube::kEndpointSlices, kNamespace, "lenet");
  LookWhenAsked(70);
  EXPECT_EQ(Condition("Blocked"), "False NoObstacle");
  Report(v1::PHASE_TRAINING, 10);
  Settle();
  now_ += 60;
  server_.Remove(kube::kEndpointSlices, kNamespace, "lenet");
  const Json placed = server_.Put(kube::kEndpointSlices, theirs);
  EndPod("lenet-worker-1", 3);
  Settle();
  LookWhenAsked(10);
  EXPECT_EQ(Condition("Blocked"), "True NameConflict");
  EXPECT_EQ(server_.Get(kube::kEndpointSlices, kNamespace, "lenet"), placed);
}

// Nothing happens that would bring the job back into the queue, but what a pass asks for itself.
TEST_F(ReconcilerTest, ASliceThatWasRefusedIsTriedAgainByItself) {
  CreateJob();
  Settle();
  server_.Inject("POST", "/endpointslices",
                 FakeApiServer::Refuse(403, "Forbidden", "endpointslices \"x\" is forbidden: exceeded quota: small"),
                 -1);
  RunPods();
  LookWhenAsked(300);
  EXPECT_EQ(Condition("Blocked"), "True QuotaExceeded");
  EXPECT_THAT(server_.CountRequests("POST", "/endpointslices"), AllOf(Ge(5), Le(15)));
  server_.ClearFaults();
  LookWhenAsked(70);
  EXPECT_TRUE(server_.Get(kube::kEndpointSlices, kNamespace, "lenet").has_value());
  EXPECT_EQ(Condition("Blocked"), "False NoObstacle");
}

// A quota that has room for all but one: those that run need to find the coordinator.
TEST_F(ReconcilerTest, APodThatIsRefusedHoldsUpNoSlice) {
  CreateJob(1, 2);
  Refresh();
  server_.Put(
      kube::kPods,
      {{"apiVersion", "v1"}, {"kind", "Pod"}, {"metadata", {{"name", "lenet-worker-1"}, {"namespace", kNamespace}}}});
  Reconcile();
  RunPods();
  LookWhenAsked(100);
  EXPECT_EQ(Condition("Blocked"), "True NameConflict");
  EXPECT_TRUE(server_.Get(kube::kEndpointSlices, kNamespace, "lenet").has_value());
  EXPECT_EQ(std::count(events_.begin(), events_.end(), "NameConflict"), 1);
  server_.Remove(kube::kPods, kNamespace, "lenet-worker-1");
  LookWhenAsked(70);
  EXPECT_EQ(Condition("Blocked"), "False NoObstacle");
}

}  // namespace
}  // namespace downpour::controller
