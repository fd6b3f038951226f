#include "operator/controller/reconciler.h"

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/controller/testing/reconciler_fixture.h"
#include "tests/support/seeds.h"

namespace downpour::controller {
namespace {

using kube::FakeApiServer;
using kube::Json;
using ::testing::HasSubstr;

TEST_F(ReconcilerTest, AJobOfAllReduceHasNoParameterServers) {
  CreateJob(1, 2, {{"strategy", "AllReduce"}, {"parameterServer", nullptr}});
  Settle();
  EXPECT_EQ(PodNames(), (std::vector<std::string>{"lenet-coordinator-0", "lenet-worker-0", "lenet-worker-1"}));
  RunPods();
  Report(v1::PHASE_TRAINING, 10);
  v1::RingProgress& ring = *gateway_.answer->reply.mutable_ring();
  ring.set_members(2);
  ring.set_wanted(2);
  Settle();
  EXPECT_EQ(Condition("RingFormed"), "False Forming");
  EXPECT_FALSE(gateway_.question.has_ps());
  EXPECT_EQ(gateway_.question.mode().workers(), 2u);
  const absl::Duration watched = gateway_.periods.ask;
  ring.set_formed(true);
  ring.set_formed_count(1);
  ring.set_updates_per_step(2);
  Settle();
  EXPECT_EQ(Condition("RingFormed"), "True Formed");
  EXPECT_EQ(Condition("Ready"), "True AllMembersReady");
  EXPECT_EQ(Status().at("phase"), "Running");
  EXPECT_EQ(Status().at("ring").at("members"), 2);
  EXPECT_EQ(Status().at("ring").at("updatesPerStep"), 2);
  EXPECT_EQ(Status().at("parameterServer").value("summary", ""), "") << "the column stays empty";
  EXPECT_LT(watched, gateway_.periods.ask) << "what it waits for is heard of at once";
  now_ += 120;
  Settle();
  EXPECT_TRUE(server_.List(kube::kPodDisruptionBudgets).empty());
  EndPod("lenet-worker-1", 137);
  Settle();
  RunPods();
  EXPECT_EQ(PodNames(), (std::vector<std::string>{"lenet-coordinator-0", "lenet-worker-0", "lenet-worker-1"}));
  Report(v1::PHASE_DONE, 100);
  Settle();
  EXPECT_EQ(Condition("SuccessCriteriaMet"), "True TrainingFinished");
}

TEST_F(ReconcilerTest, AJobGoesFromNothingToComplete) {
  CreateJob(2, 3);
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(PodNames(), (std::vector<std::string>{"lenet-coordinator-0", "lenet-ps-0", "lenet-ps-1", "lenet-worker-0",
                                                  "lenet-worker-1", "lenet-worker-2"}));
  EXPECT_TRUE(server_.Get(kube::kServices, kNamespace, kServiceName).has_value());
  EXPECT_FALSE(server_.Get(kube::kEndpointSlices, kNamespace, "lenet").has_value())
      << "there is no address yet to find";
  EXPECT_EQ(Status().at("incarnations").at("worker-2"), 1);
  RunPods();
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(Published(), "10.0.0.1");
  Settle();
  EXPECT_EQ(Status().at("phase"), "Starting");
  EXPECT_EQ(gateway_.followed, "10.0.0.1:7070");
  Report(v1::PHASE_TRAINING, 10);
  Settle();
  EXPECT_EQ(Status().at("phase"), "Running");
  EXPECT_FALSE(server_.Get(kube::kPodDisruptionBudgets, kNamespace, "lenet-ps").has_value()) << "little to lose yet";
  now_ += 60;
  Settle();
  EXPECT_TRUE(server_.Get(kube::kPodDisruptionBudgets, kNamespace, "lenet-ps").has_value());
  EXPECT_EQ(Status().at("worker").at("summary"), "3/3");
  EXPECT_EQ(Status().at("progress").at("percent"), 10);
  EXPECT_THAT(Status().at("worker").at("selector").get<std::string>(), HasSubstr("role=worker"));
  now_ += 20;
  Report(v1::PHASE_DONE, 100);
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(Condition("SuccessCriteriaMet"), "True TrainingFinished");
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(gateway_.finished, (std::set<api::Role>{api::Role::kCoordinator, api::Role::kParameterServer}))
      << "only once the outcome is stored";
  for (const std::string& name : PodNames()) EndPod(name, 0);
  Settle();
  EXPECT_EQ(Condition("Complete"), "True TrainingFinished");
  RunPods();
  Settle();
  EXPECT_TRUE(PodNames().empty()) << "podCleanup.onSuccess: All";
  EXPECT_EQ(Status().at("progress").at("percent"), 100);
}

TEST_F(ReconcilerTest, TheLifeOfAJobTakesAPodsWritesAndEight) {
  CreateJob(2, 8);
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  RunPods();
  Settle();
  Report(v1::PHASE_TRAINING, 10);
  Settle();
  now_ += 60;
  Report(v1::PHASE_TRAINING, 50);
  Settle();
  EXPECT_TRUE(server_.Get(kube::kPodDisruptionBudgets, kNamespace, "lenet-ps").has_value());
  Report(v1::PHASE_DONE, 100);
  Settle();
  for (const std::string& name : PodNames()) {
    EndPod(name, 0);
    Refresh();
    ASSERT_TRUE(Reconcile().status.ok());
  }
  Settle();
  EXPECT_EQ(Condition("Complete"), "True TrainingFinished");
  EXPECT_TRUE(PodNames().empty());
  EXPECT_EQ(Status().at("worker").at("succeeded"), 8) << "what they did stays to be read";
  EXPECT_EQ(status_writes_["essential"], 4) << "begins, is ready, has succeeded, is complete";
  const int by_the_clock = status_writes_["progress"] + status_writes_["picture"];
  EXPECT_LE(by_the_clock, 3);
  constexpr int kService = 1;  // which all jobs of a namespace share
  constexpr int kWarning = 1;  // that the model of a job without a volume is temporary
  EXPECT_EQ(Condition("OutputTemporary"), "True NoVolume");
  EXPECT_LE(Writes() - by_the_clock - kService - kWarning + static_cast<int>(events_.size()), 11 + 8);
}

TEST_F(ReconcilerTest, CheckpointsThatWouldGoWithThePodsAreToldAtTheStart) {
  CreateJob(1, 1, {{"checkpoint", {{"uri", "/ckpt"}}}});
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(Condition("CheckpointTemporary"), "True NoVolume");
  EXPECT_EQ(std::count(events_.begin(), events_.end(), "CheckpointTemporary"), 1);
}

TEST_F(ReconcilerTest, TheStatusIsStoredBeforeAPodIsMade) {
  CreateJob();
  server_.Inject("PUT", "/status", FakeApiServer::Refuse(409, "Conflict", "changed"), -1);
  Refresh();
  EXPECT_TRUE(absl::IsAborted(Reconcile().status));
  EXPECT_TRUE(PodNames().empty());
  server_.ClearFaults();
  EXPECT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(PodNames().size(), 4u);
}

TEST_F(ReconcilerTest, AJobThatChangesWhileItsPodsAreMadeGetsNoMoreOfThem) {
  CreateJob(1, 40);
  const auto suspend = [this](bool whether) { ChangeSpec([whether](Json& spec) { spec["suspend"] = whether; }); };
  after_status_ = [&] {
    suspend(true);
    Fill(jobs_, kube::kTrainingJobs);
  };
  Refresh();
  EXPECT_TRUE(Reconcile().status.ok());
  EXPECT_TRUE(PodNames().empty());
  Settle();
  EXPECT_TRUE(PodNames().empty());
  EXPECT_EQ(kube::FindText(Status(), {"phase"}), "Suspended");
  suspend(false);
  Settle();
  EXPECT_EQ(PodNames().size(), 42u);

  // One that is deleted likewise. It stays as long as a finalizer wants it to.
  ChangeSpec([](Json& spec) { spec["worker"]["replicas"] = 60; });
  after_status_ = [&] {
    server_.Modify(kube::kTrainingJobs, kNamespace, "lenet",
                   [](Json& job) { job["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"; });
    Fill(jobs_, kube::kTrainingJobs);
  };
  Refresh();
  EXPECT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(PodNames().size(), 42u);
}

TEST_F(ReconcilerTest, AModeThatIsWantedIsToldAndAskedAfterUntilItIsInForce) {
  BringToTraining();
  gateway_.answer->reply.mutable_mode()->set_mode(v1::ASYNC);
  Settle();
  EXPECT_EQ(Status().at("update").at("mode"), "Async");
  EXPECT_EQ(gateway_.question.mode().mode(), v1::ASYNC);
  const absl::Duration at_rest = gateway_.periods.ask;
  const std::uint64_t revision = gateway_.question.mode().revision();
  ChangeSpec([](Json& spec) { spec["update"] = {{"mode", "Synchronous"}, {"updatesPerStep", 4}}; });
  Settle();
  EXPECT_EQ(gateway_.question.mode().mode(), v1::SYNCHRONOUS);
  EXPECT_EQ(gateway_.question.mode().updates_per_step(), 4u);
  EXPECT_GT(gateway_.question.mode().revision(), revision);
  EXPECT_LT(gateway_.periods.ask, at_rest);
  EXPECT_EQ(PodNames().size(), 4u) << "nobody is restarted for it";
  now_ += 1;
  Report(v1::PHASE_TRAINING, 20);
  gateway_.answer->reply.mutable_mode()->set_mode(v1::SYNCHRONOUS);
  gateway_.answer->reply.mutable_mode()->set_updates_per_step(4);
  Settle();
  EXPECT_EQ(Status().at("update").at("updatesPerStep"), 4);
  EXPECT_EQ(gateway_.periods.ask, at_rest);
}

TEST_F(ReconcilerTest, AStaleCacheIsNotActedOn) {
  CreateJob();
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  const int writes = Writes();
  // The caches have not seen the pods nor the status.
  for (int i = 0; i < 3; ++i) {
    const ReconcileResult result = Reconcile();
    EXPECT_TRUE(result.status.ok());
    EXPECT_TRUE(result.requeue_after.has_value());
  }
  EXPECT_EQ(stale_, 3);
  EXPECT_EQ(Writes(), writes);
}

TEST_F(ReconcilerTest, APodThatVanishesIsCountedOnceWhateverElseHappened) {
  BringToTraining();
  // While nothing is heard: one worker is deleted, another fails, and the job grows.
  server_.Remove(kube::kPods, kNamespace, "lenet-worker-0");
  EndPod("lenet-worker-1", 3);
  server_.Modify(kube::kTrainingJobs, kNamespace, "lenet", [](Json& job) {
    job["spec"]["worker"]["replicas"] = 4;
    job["metadata"]["generation"] = 2;
  });
  Refresh();
  server_.Inject("PUT", "/status", FakeApiServer::Refuse(409, "Conflict", "changed"), 1);
  EXPECT_TRUE(absl::IsAborted(Reconcile().status)) << "it is not forgotten over a status that could not be stored";
  Settle();
  RunPods();
  Settle();
  EXPECT_EQ(Status().at("restarts").at("total"), 2);
  std::map<std::string, std::string> causes;
  const Json status = Status();
  for (const Json& failure : status.at("failures")) {
    causes[absl::StrCat("worker-", failure.at("index").get<int>())] = failure.at("cause").get<std::string>();
  }
  EXPECT_EQ(causes, (std::map<std::string, std::string>{{"worker-0", "Deleted"}, {"worker-1", "Exit code 3"}}));
  // One that is asked to leave vanishes too, and nobody counts it.
  server_.Modify(kube::kTrainingJobs, kNamespace, "lenet", [](Json& job) {
    job["spec"]["worker"]["replicas"] = 1;
    job["metadata"]["generation"] = 3;
  });
  Settle();
  RunPods();
  Settle();
  EXPECT_EQ(Status().at("restarts").at("total"), 2);
}

TEST_F(ReconcilerTest, AnEndThatWasSeenIsNotForgottenOverAConflict) {
  BringToTraining();
  EndPod("lenet-worker-1", 3);
  Refresh();
  server_.Inject("PUT", "/status", FakeApiServer::Refuse(409, "Conflict", "changed"), 1);
  EXPECT_TRUE(absl::IsAborted(Reconcile().status));
  server_.Remove(kube::kPods, kNamespace, "lenet-worker-1");
  Settle();
  const Json status = Status();
  ASSERT_EQ(status.at("failures").size(), 1u);
  EXPECT_EQ(status.at("failures")[0].at("cause"), "Exit code 3");
  EXPECT_EQ(status.at("restarts").at("counted"), 1);
}

TEST_F(ReconcilerTest, AFailedPodIsReplacedAndItsCauseIsTold) {
  CreateJob();
  Settle();
  RunPods();
  Settle();
  EndPod("lenet-worker-1", 3);
  Settle();
  RunPods();
  Settle();
  const Json failure = Status().at("failures").at(0);
  EXPECT_EQ(failure.at("exitCode"), 3);
  EXPECT_EQ(failure.at("action"), "Replace");
  EXPECT_THAT(failure.at("message").get<std::string>(), HasSubstr("the last words"));
  EXPECT_EQ(Status().at("restarts").at("total"), 1);
  EXPECT_EQ(Status().at("incarnations").at("worker-1"), 2);
  const std::optional<Json> pod = server_.Get(kube::kPods, kNamespace, "lenet-worker-1");
  ASSERT_TRUE(pod.has_value());
  EXPECT_EQ(pod->at("metadata").at("labels").at(kIncarnationLabel), "2");
  EXPECT_EQ(std::count(events_.begin(), events_.end(), "WorkerLost"), 1);
}

TEST_F(ReconcilerTest, ScalingTouchesNoOtherPod) {
  CreateJob(1, 3);
  Settle();
  RunPods();
  Settle();
  std::map<std::string, std::string> uids;
  const auto note = [&] {
    for (const Json& pod : server_.List(kube::kPods)) {
      const auto [known, fresh] =
          uids.emplace(kube::FindText(pod, {"metadata", "name"}), kube::FindText(pod, {"metadata", "uid"}));
      EXPECT_EQ(known->second, kube::FindText(pod, {"metadata", "uid"})) << known->first;
    }
  };
  note();
  for (const int replicas : {5, 1}) {
    server_.Modify(kube::kTrainingJobs, kNamespace, "lenet",
                   [replicas](Json& job) { job["spec"]["worker"]["replicas"] = replicas; });
    Settle();
    RunPods();
    Settle();
    note();
    EXPECT_EQ(PodNames().size(), static_cast<std::size_t>(2 + replicas));
  }
  EXPECT_EQ(Status().at("restarts").at("total"), 0) << "a worker that is not wanted did not fail";
}

TEST_F(ReconcilerTest, AStatusThatCannotBeStoredIsNotTriedAgainAtOnce) {
  BringToTraining();
  Report(v1::PHASE_DONE, 100);
  server_.Inject("PUT", "/status", FakeApiServer::Refuse(500, "InternalError", "no"), -1);
  Refresh();
  const ReconcileResult result = Reconcile();
  EXPECT_FALSE(result.status.ok()) << "the queue backs off";
  EXPECT_GE(result.requeue_after.value_or(absl::InfiniteDuration()), absl::Seconds(1));
}

TEST_F(ReconcilerTest, AJobThatHasEndedGoesWhenItsTimeIsOver) {
  CreateJob(1, 2, {{"ttlSecondsAfterFinished", 120}, {"podCleanup", {{"worker", {{"onSuccess", "None"}}}}}});
  Settle();
  RunPods();
  Report(v1::PHASE_DONE, 100);
  Settle();
  for (const std::string& name : PodNames()) EndPod(name, 0);
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  Refresh();
  const ReconcileResult result = Reconcile();
  EXPECT_EQ(Condition("Complete"), "True TrainingFinished");
  EXPECT_EQ(PodNames(), (std::vector<std::string>{"lenet-worker-0", "lenet-worker-1"}));
  ASSERT_TRUE(result.requeue_after.has_value());
  EXPECT_LE(*result.requeue_after, absl::Seconds(120));
  now_ += 120;
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  EXPECT_FALSE(server_.Get(kube::kTrainingJobs, kNamespace, "lenet").has_value());
}

TEST_F(ReconcilerTest, JobsOfSomebodyElseAreLeftAlone) {
  CreateJob(1, 1, {{"managedBy", "kueue.x-k8s.io/multikueue"}});
  Refresh();
  EXPECT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(Writes(), 0);
}

// Random ends of pods, refusals and broken connections, caches that lag, and an operator that is killed at any moment:
// incarnations are never used twice, are stored before they are used, and in the end everything runs.
TEST_F(ReconcilerTest, WhateverHappensIncarnationsAreUniqueAndTheJobComesBack) {
  for (std::uint32_t seed = 0; seed < Seeds(25); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    for (const std::string& name : PodNames()) server_.Remove(kube::kPods, kNamespace, name);
    server_.Remove(kube::kTrainingJobs, kNamespace, "lenet");
    gateway_ = FakeGateway();
    const Json more = {{"failurePolicy", {{"maxRestarts", 1000}, {"maxRestartsPerReplica", 1000}}},
                       {"progressDeadlineSeconds", 0}};
    Restart();
    CreateJob(2, 3, more);
    std::set<std::string> seen_uids;
    std::map<std::string, int> newest;  // incarnation by pod name
    const auto check = [&] {
      const Json incarnations = Status().value("incarnations", Json::object());
      for (const Json& pod : server_.List(kube::kPods)) {
        const std::string name = kube::FindText(pod, {"metadata", "name"});
        const int incarnation = std::stoi(kube::FindText(pod, {"metadata", "labels", kIncarnationLabel}));
        const std::string instance = name.substr(std::string("lenet-").size());
        ASSERT_GE(incarnations.value(instance, 0), incarnation) << name << " was made before its number was stored";
        if (!seen_uids.insert(kube::FindText(pod, {"metadata", "uid"})).second) continue;
        ASSERT_GT(incarnation, newest[name]) << name << " used a number twice";
        newest[name] = incarnation;
      }
    };
    for (int step = 0; step < 60; ++step) {
      switch (random() % 8) {
        case 0:
          RunPods();
          break;
        case 1: {
          const std::vector<std::string> names = PodNames();
          if (!names.empty()) EndPod(names[random() % names.size()], random() % 2 == 0 ? 1 : 137);
          break;
        }
        case 2: {
          const std::vector<std::string> names = PodNames();
          if (!names.empty()) server_.Remove(kube::kPods, kNamespace, names[random() % names.size()]);
          break;
        }
        case 3:
          server_.Inject(random() % 2 == 0 ? "POST" : "PUT", "",
                         random() % 2 == 0 ? FakeApiServer::Refuse(409, "Conflict", "changed")
                                           : FakeApiServer::End(FakeApiServer::Reaction::End::kReset));
          break;
        case 4:
          Restart();
          break;
        default:
          if (random() % 4 != 0) Refresh();
          now_ += static_cast<double>(random() % 20);
          static_cast<void>(Reconcile());
      }
      ASSERT_NO_FATAL_FAILURE(check());
    }
    server_.ClearFaults();
    for (int i = 0; i < 40; ++i) {
      now_ += 400;  // past every back-off
      // The platform collects what was made for the job before, on the strength of a cache that was behind.
      const std::optional<Json> slice = server_.Get(kube::kEndpointSlices, kNamespace, "lenet");
      const std::string uid = kube::ReadMeta(*server_.Get(kube::kTrainingJobs, kNamespace, "lenet")).uid;
      if (slice.has_value() && kube::ReadMeta(*slice).controller_uid != uid) {
        server_.Remove(kube::kEndpointSlices, kNamespace, "lenet");
      }
      Refresh();
      static_cast<void>(Reconcile());
      RunPods();
      ASSERT_NO_FATAL_FAILURE(check());
    }
    EXPECT_EQ(PodNames().size(), 6u) << Status().at("conditions").dump().substr(0, 2000);
    for (const Json& pod : server_.List(kube::kPods)) EXPECT_EQ(kube::FindText(pod, {"status", "phase"}), "Running");
  }
}

}  // namespace
}  // namespace downpour::controller
