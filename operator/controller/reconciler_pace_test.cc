#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "operator/controller/testing/reconciler_fixture.h"
#include "operator/controller/turn.h"

namespace downpour::controller {
namespace {

using kube::FakeApiServer;
using kube::Json;

TEST_F(ReconcilerTest, AWriteForAnotherReasonDoesNotPutOffWhenProgressIsWritten) {
  BringToTraining();
  const kube::Json promised = Status().at("progress").at("nextUpdateTime");
  now_ += 5;
  EndPod("lenet-worker-1", 3);
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  ASSERT_EQ(Status().at("restarts").at("total"), 1);
  EXPECT_EQ(Status().at("progress").at("nextUpdateTime"), promised);
}

TEST_F(ReconcilerTest, WhatIsForPeopleOnlyWaitsItsTurn) {
  const auto status_writes = [this] {
    const std::vector<FakeApiServer::Request> requests = server_.requests();
    return std::count_if(requests.begin(), requests.end(), [](const FakeApiServer::Request& one) {
      return one.method == "PUT" && one.path.ends_with("/status");
    });
  };
  // As if there were a thousand jobs.
  options_.pace.write_spacing *= 1000;
  options_.pace.ask_spacing *= 1000;
  Restart();
  BringToTraining();
  auto before = status_writes();
  const double ready = now_;
  double unprotected = 0;
  for (int second = 0; second < 400; ++second) {
    now_ += 1;
    Report(v1::PHASE_TRAINING, static_cast<std::uint64_t>(11 + second / 8));
    Refresh();
    ASSERT_TRUE(Reconcile().status.ok());
    if (!server_.Get(kube::kPodDisruptionBudgets, kNamespace, "lenet-ps").has_value()) unprotected = now_;
  }
  EXPECT_GT(unprotected - ready, 200) << "so does the disruption budget, which had a minute to wait";
  EXPECT_GE(status_writes() - before, 1);
  EXPECT_LE(status_writes() - before, 3) << "a thousand jobs share four writes a second";
  EXPECT_EQ(gateway_.periods.ask, absl::Seconds(50));
  const kube::Json progress = Status().at("progress");
  const auto time = [&progress](const char* name) { return *kube::ParseTime(progress.at(name).get<std::string>()); };
  const std::string uid = jobs_.All().front()->meta.uid;
  EXPECT_NEAR(time("nextUpdateTime"), NextTurn(uid, 250, time("lastUpdateTime")) + 50, 1);
  EXPECT_NEAR(time("nextUpdateTime") - time("lastUpdateTime"), 250 + 50, 2) << "a second late, and cut to seconds";
  // Nor does a leader that is new write all of them at once.
  before = status_writes();
  Restart();
  Report(v1::PHASE_TRAINING, 90);
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(status_writes() - before, 0);
  // What matters does not wait.
  before = status_writes();
  EndPod("lenet-worker-1", 3);
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(status_writes() - before, 1);
  EXPECT_EQ(Status().at("restarts").at("total"), 1);
}

TEST_F(ReconcilerTest, AWorkerThatExitsMakesTheNextQuestionSoon) {
  options_.pace.ask_spacing *= 1000;  // as if there were a thousand jobs
  Restart();
  BringToTraining();
  ASSERT_EQ(gateway_.periods.ask, absl::Seconds(50));
  EndPod("lenet-worker-0", 0);  // its coordinator has dismissed it, which nobody has heard of yet
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(gateway_.periods.ask, absl::Seconds(1));
}

TEST_F(ReconcilerTest, CoordinatorsOfManyJobsThatStartAreAskedLessOften) {
  constexpr int kJobs = 40;
  options_.pace.ask_spacing = absl::Milliseconds(100);
  Restart();
  const std::vector<std::string> names = CreateJobs(kJobs);
  ReconcileAll(names);
  RunPods();
  ReconcileAll(names);
  EXPECT_EQ(gateway_.periods.ask, absl::Seconds(3.9)) << "all but the one that is looked at are known to start";
  Report(v1::PHASE_TRAINING, 10);
  ReconcileAll(names);
  EXPECT_EQ(gateway_.periods.ask, absl::Seconds(10)) << "at rest";
  // One that recovers is not held up by all those that are at rest.
  EndPod("job-7-worker-0", 3);
  Refresh();
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(Reconcile("team/job-7").status.ok());
  EXPECT_EQ(gateway_.periods.ask, absl::Seconds(1));
}

TEST_F(ReconcilerTest, ACoordinatorIsAskedFromTheMomentInWhichItHasAnAddress) {
  CreateJob(1, 2);
  Settle();
  EXPECT_EQ(gateway_.followed, "");
  server_.Modify(kube::kPods, kNamespace, "lenet-coordinator-0", [](Json& pod) {
    pod["status"] = {{"phase", "Running"}, {"podIP", "10.0.0.1"}};
  });
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(gateway_.followed, "10.0.0.1:7070");
  EXPECT_EQ(gateway_.periods.ask, absl::Seconds(1));
  // One that has answered and waits for a replacement is asked often.
  RunPods();
  Report(v1::PHASE_TRAINING, 10);
  Settle();
  EXPECT_EQ(gateway_.periods.ask, absl::Seconds(10));
  EndPod("lenet-worker-1", 3);
  Settle();
  EXPECT_EQ(gateway_.periods.ask, absl::Seconds(1));
}

TEST_F(ReconcilerTest, WhyAPodEndedIsAskedBeforeItCountsAsAFailureHoweverManyJobsMove) {
  options_.pace.ask_spacing = absl::Seconds(1);
  Restart();
  const std::vector<std::string> names = CreateJobs(40);
  ReconcileAll(names);
  RunPods();
  ReconcileAll(names);
  EXPECT_EQ(gateway_.periods.ask, absl::Seconds(10)) << "no less often than at rest";
  EndPod("job-39-worker-0", 0);
  ReconcileAll(names);
  EXPECT_EQ(gateway_.periods.ask, absl::Seconds(3));
}

// Asked every hundred seconds while it trains, and more often from the moment in which something happens.
TEST_F(ReconcilerTest, AJobThatBeginsToMoveIsAskedBeforeItCountsAsHung) {
  options_.pace.ask_interval_at_rest = absl::Seconds(100);
  Restart();
  CreateJob(1, 2, {{"progressDeadlineSeconds", 60}});
  Settle();
  RunPods();
  Report(v1::PHASE_TRAINING, 10);
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(gateway_.periods.ask, absl::Seconds(100));
  now_ += 80;
  EndPod("lenet-worker-0", 3);
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(gateway_.periods.ask, absl::Seconds(1));
  EXPECT_EQ(Condition("FailureTarget"), "");
  now_ += 30;
  Refresh();
  ASSERT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(Condition("FailureTarget"), "True ProgressDeadlineExceeded") << "there was no answer";
}

TEST_F(ReconcilerTest, AClockThatWasAheadDoesNotSilenceAJob) {
  BringToTraining();
  now_ += 3600;
  Report(v1::PHASE_TRAINING, 20);
  Settle();
  EXPECT_EQ(Status().at("progress").at("step"), 20);
  now_ -= 3600;
  for (const bool anew : {false, true}) {
    if (anew) Restart();
    now_ += 100;
    const int step = Status().at("progress").at("step").get<int>() + 10;
    Report(v1::PHASE_TRAINING, static_cast<std::uint64_t>(step));
    Refresh();
    EXPECT_TRUE(Reconcile().status.ok());
    EXPECT_EQ(Status().at("progress").at("step"), step) << anew;
  }
}

}  // namespace
}  // namespace downpour::controller
