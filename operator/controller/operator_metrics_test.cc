#include "operator/controller/operator_metrics.h"

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/planner/conditions.h"
#include "tests/support/training_job.h"

namespace downpour::controller {
namespace {

using kube::Json;
using ::testing::HasSubstr;
using ::testing::Not;

class OperatorMetricsTest : public ::testing::Test {
 protected:
  OperatorMetricsTest() {
    before_.meta.uid = "uid";
    before_.meta.creation_time = 1000;
  }

  // The value of a series as it is served; nothing if it is not.
  std::optional<double> Value(const std::string& series) const {
    const std::string text = registry_.Text();
    for (const std::string& line : std::vector<std::string>(absl::StrSplit(text, '\n'))) {
      if (line.substr(0, series.size()) == series && line.substr(series.size(), 1) == " ") {
        return std::stod(line.substr(series.size() + 1));
      }
    }
    return std::nullopt;
  }

  // Stores `status_`, as the reconciler does.
  void Store(double now, const std::vector<kube::Store<Pod>::Pointer>& pods = {}) {
    metrics_.OnStatus(before_, status_, pods, now);
    before_.job.status = status_;
  }

  void Set(const char* type, bool value, double now, const std::string& reason = "") {
    std::erase_if(status_.conditions, [type](const api::Condition& one) { return one.type == type; });
    status_.conditions.push_back({type, value, reason, "", now, 1});
  }

  void Fail(const std::string& cause, bool counted, double now, const std::string& action = "Replace") {
    api::FailureRecord failure;
    failure.time = now;
    failure.uid = absl::StrCat("pod-", now);
    failure.cause = cause;
    failure.counted = counted;
    failure.action = action;
    status_.recent_failures.push_back(failure);
    ++status_.restarts_total;
  }

  service::Metrics registry_;
  OperatorMetrics metrics_{&registry_, 8, "10.0.0.1:443"};
  JobRecord before_;
  api::TrainingJobStatus status_;
};

TEST_F(OperatorMetricsTest, WhatAnAlertWaitsForIsThereBeforeItHappens) {
  for (const char* series : {"trainingjob_created_total", "trainingjob_lost_updates_total",
                             "trainingjob_ready_seconds_count", "trainingjob_first_pod_seconds_count",
                             R"(trainingjob_finished_total{reason="RestartLimitExceeded",result="failed"})",
                             R"(trainingjob_finished_total{reason="TrainingFinished",result="succeeded"})",
                             R"(trainingjob_restarts_total{cause="OOMKilled",counted="true",role="worker"})",
                             R"(trainingjob_recovery_seconds_count{cause="NodeLost",phase="total",role="ps"})",
                             R"(controller_runtime_reconcile_total{controller="trainingjob",result="error"})",
                             R"(controller_runtime_reconcile_errors_total{controller="trainingjob"})",
                             R"(controller_runtime_reconcile_panics_total{controller="trainingjob"})",
                             R"(workqueue_work_duration_seconds_count{controller="trainingjob",name="trainingjob"})",
                             R"(leader_election_master_status{name="downpour-operator"})"}) {
    EXPECT_EQ(Value(series), 0) << series;
  }
  EXPECT_EQ(Value(R"(controller_runtime_max_concurrent_reconciles{controller="trainingjob"})"), 8);
}

TEST_F(OperatorMetricsTest, NamesAndLabelsAreThoseOfControllerRuntime) {
  metrics_.OnRequest("GET", 200, absl::Milliseconds(3));
  metrics_.OnRequest("GET", 0, absl::Milliseconds(3));
  metrics_.OnRateLimited("POST", absl::Milliseconds(40));
  metrics_.OnRetry("PUT", 429);
  for (int i = 0; i < 3; ++i) metrics_.OnPass(absl::Milliseconds(1), absl::Milliseconds(2));
  metrics_.OnReconciled(false, true, absl::Milliseconds(2));
  metrics_.OnReconciled(true, false, absl::Milliseconds(2));
  metrics_.OnPanic();
  metrics_.SetLeading(true);
  const kube::Store<JobRecord> jobs(DecodeJob, nullptr, nullptr);
  const kube::Store<Pod> pods(DecodePod, nullptr, nullptr);
  metrics_.Publish({5, 2, 3, 70, 4, absl::Seconds(9), absl::Seconds(6)}, jobs, pods, 0);
  const std::pair<const char*, double> expected[] = {
      {R"(rest_client_requests_total{code="200",host="10.0.0.1:443",method="GET"})", 1},
      {R"(rest_client_requests_total{code="<error>",host="10.0.0.1:443",method="GET"})", 1},
      {R"(rest_client_request_duration_seconds_count{host="10.0.0.1:443",verb="GET"})", 2},
      {R"(rest_client_rate_limiter_duration_seconds_sum{host="10.0.0.1:443",verb="POST"})", 0.04},
      {R"(rest_client_request_retries_total{code="429",host="10.0.0.1:443",verb="PUT"})", 1},
      {R"(controller_runtime_reconcile_total{controller="trainingjob",result="requeue_after"})", 1},
      {R"(controller_runtime_reconcile_total{controller="trainingjob",result="error"})", 1},
      {R"(controller_runtime_reconcile_errors_total{controller="trainingjob"})", 1},
      {R"(controller_runtime_reconcile_panics_total{controller="trainingjob"})", 1},
      {R"(controller_runtime_reconcile_time_seconds_count{controller="trainingjob"})", 3},
      {R"(controller_runtime_active_workers{controller="trainingjob"})", 3},
      {R"(workqueue_depth{controller="trainingjob",name="trainingjob",priority="0"})", 3},
      {R"(workqueue_depth{controller="trainingjob",name="trainingjob",priority="-100"})", 2},
      {R"(workqueue_adds_total{controller="trainingjob",name="trainingjob"})", 70},
      {R"(workqueue_retries_total{controller="trainingjob",name="trainingjob"})", 4},
      {R"(workqueue_queue_duration_seconds_count{controller="trainingjob",name="trainingjob"})", 3},
      {R"(workqueue_work_duration_seconds_count{controller="trainingjob",name="trainingjob"})", 2},
      {R"(workqueue_unfinished_work_seconds{controller="trainingjob",name="trainingjob"})", 9},
      {R"(workqueue_longest_running_processor_seconds{controller="trainingjob",name="trainingjob"})", 6},
      {R"(leader_election_master_status{name="downpour-operator"})", 1}};
  for (const auto& [series, value] : expected) EXPECT_EQ(Value(series), value) << series;
}

TEST_F(OperatorMetricsTest, AJobFromItsMakingToItsEnd) {
  status_.phase = "Pending";
  status_.start_time = 1001;
  Set(planner::kReady, false, 1001);
  Store(1001);
  EXPECT_EQ(Value("trainingjob_created_total"), 1);
  status_.phase = "Starting";
  Store(1004);
  status_.phase = "Running";
  Store(1006);
  EXPECT_EQ(Value("trainingjob_first_pod_seconds_count"), 1);
  EXPECT_EQ(Value("trainingjob_first_pod_seconds_sum"), 4);
  EXPECT_EQ(Value("trainingjob_ready_seconds_count"), 0);
  Set(planner::kReady, true, 1009);
  Store(1009);
  EXPECT_EQ(Value("trainingjob_ready_seconds_sum"), 9);
  Set(planner::kComplete, true, 2000, "TrainingFinished");
  Store(2000);
  Store(2001);
  EXPECT_EQ(Value("trainingjob_created_total"), 1);
  EXPECT_EQ(Value(R"(trainingjob_finished_total{reason="TrainingFinished",result="succeeded"})"), 1);
}

TEST_F(OperatorMetricsTest, AJobBecomesReadyOnce) {
  status_.phase = "Running";
  status_.start_time = 1001;
  Set(planner::kReady, false, 1001);
  Store(1001);
  Set(planner::kReady, true, 1010);
  Store(1040);                        // where many are, it is stored a while later
  Set(planner::kReady, false, 5000);  // scaled up
  Store(5000);
  Set(planner::kReady, true, 5003);
  Store(5003);
  EXPECT_EQ(Value("trainingjob_ready_seconds_count"), 1);
  EXPECT_EQ(Value("trainingjob_ready_seconds_sum"), 10);
}

TEST_F(OperatorMetricsTest, TheTimeAJobWasSuspendedIsNotItsWait) {
  status_.phase = "Suspended";
  Set(planner::kSuspended, true, 1000);
  Set(planner::kReady, false, 1000);
  Store(1000);
  Set(planner::kSuspended, false, 9000);
  status_.phase = "Pending";
  status_.start_time = 9000;
  Store(9000);
  status_.phase = "Starting";
  Store(9002);
  Set(planner::kReady, true, 9007);
  Store(9007);
  EXPECT_EQ(Value("trainingjob_first_pod_seconds_sum"), 2);
  EXPECT_EQ(Value("trainingjob_ready_seconds_sum"), 7);
}

TEST_F(OperatorMetricsTest, FailuresAreCountedOnceByABoundedCause) {
  Fail("Deleted", false, 1);
  Fail("Exit code 3", true, 2);
  Fail("Exit code 4", true, 3);
  Fail("Killed by signal 9", true, 4);
  Fail("whatever a runtime may say", true, 5);
  Fail("OOMKilled", true, 6, "FailJob");
  Store(10);
  Store(11);
  const auto restarts = [this](const std::string& cause, const std::string& counted) {
    return Value(
        absl::StrCat("trainingjob_restarts_total{cause=\"", cause, "\",counted=\"", counted, "\",role=\"worker\"}"));
  };
  EXPECT_EQ(restarts("Deleted", "false"), 1);
  EXPECT_EQ(restarts("ExitCode", "true"), 2);
  EXPECT_EQ(restarts("Signal", "true"), 1);
  EXPECT_EQ(restarts("Other", "true"), 1);
  EXPECT_EQ(restarts("OOMKilled", "true"), 0) << "it was not replaced";
  EXPECT_THAT(registry_.Text(), Not(HasSubstr("whatever")));
}

TEST_F(OperatorMetricsTest, ANodeThatTakesManyPodsAlongIsCountedWhole) {
  for (int i = 0; i < 25; ++i) Fail("NodeLost", false, 100 + i);
  Store(200);
  EXPECT_EQ(Value(R"(trainingjob_restarts_total{cause="NodeLost",counted="false",role="worker"})"), 25);
}

TEST_F(OperatorMetricsTest, ARecoveryCountsOnceItIsOverByItsPhases) {
  status_.recovery.emplace();
  status_.recovery->last_cause = "Killed by signal 9";
  status_.recovery->last_role = api::Role::kParameterServer;
  status_.recovery->phases.detect = 1.5;
  Store(2001);
  status_.recovery->phases.schedule = 2.5;
  status_.recovery->phases.start = 7;
  Store(2010);
  const auto phase = [this](const std::string& name, const std::string& suffix) {
    return Value(
        absl::StrCat("trainingjob_recovery_seconds_", suffix, R"({cause="Signal",phase=")", name, R"(",role="ps"})"));
  };
  EXPECT_EQ(phase("total", "count"), 0);
  status_.recovery->last_duration_seconds = 20;
  status_.recovery->phases.restore = 10.5;
  Store(2021);
  Store(2022);
  EXPECT_EQ(phase("total", "count"), 1);
  EXPECT_EQ(phase("total", "sum"), 21.5);
  EXPECT_EQ(phase("detect", "sum"), 1.5);
  EXPECT_EQ(phase("schedule", "sum"), 2.5);
  EXPECT_EQ(phase("start", "sum"), 7);
  EXPECT_EQ(phase("restore", "sum"), 10.5);
}

TEST_F(OperatorMetricsTest, WhatIsNotKnownOfARecoveryIsNotCounted) {
  status_.recovery.emplace();
  status_.recovery->last_cause = "Deleted";
  status_.recovery->last_duration_seconds = 3;
  Store(2000);
  EXPECT_EQ(Value(R"(trainingjob_recovery_seconds_count{cause="Deleted",phase="total",role="worker"})"), 1);
  EXPECT_THAT(registry_.Text(), Not(HasSubstr("phase=\"start\"")));
}

TEST_F(OperatorMetricsTest, LostUpdatesAreThoseOfEachRecovery) {
  const char* const series = "trainingjob_lost_updates_total";
  status_.recovery.emplace().last_start_time = 1;
  Store(1);
  EXPECT_EQ(Value(series), 0) << "not known yet";
  status_.recovery->lost_updates = 12;
  Store(2);
  status_.recovery->last_duration_seconds = 3;
  Store(3);
  EXPECT_EQ(Value(series), 12);
  status_.recovery->last_start_time = 9;
  Store(4);
  EXPECT_EQ(Value(series), 24) << "another one lost as many";
}

class OperatorMetricsJobsTest : public OperatorMetricsTest {
 protected:
  void Fill(const std::vector<Json>& objects) {
    jobs_.OnListBegin();
    for (const Json& object : objects) jobs_.OnListed(object);
    jobs_.OnListEnd("1");
  }

  static Json Job(const std::string& name, const std::string& phase, const Json& conditions = Json::array(),
                  const Json& annotations = Json::object()) {
    Json job = TrainingJobObject("team", name);
    job["metadata"].update({{"uid", absl::StrCat("uid-", name)}, {"annotations", annotations}});
    job["status"] = {{"phase", phase}, {"conditions", conditions}};
    return job;
  }

  static Json ManagedElsewhere(const std::string& name) {
    Json job = Job(name, "Running");
    job["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue";
    return job;
  }

  static Json Condition(const std::string& type, bool status, const std::string& reason) {
    return Json::array({{{"type", type},
                         {"status", status ? "True" : "False"},
                         {"reason", reason},
                         {"message", ""},
                         {"lastTransitionTime", "2026-01-02T03:04:05Z"}}});
  }

  void Publish(double now) { metrics_.Publish({}, jobs_, pods_, now); }

  kube::Store<JobRecord> jobs_{DecodeJob, [](const JobRecord&) { return std::string(); },
                               [](const auto&, const auto&) {}};
  kube::Store<Pod> pods_{DecodePod, [](const Pod&) { return std::string(); }, [](const auto&, const auto&) {}};
};

TEST_F(OperatorMetricsJobsTest, JobsByPhaseAndWhyTheyWait) {
  Fill({Job("a", "Running"), Job("b", "Running"), Job("c", "Pending", Condition("Blocked", true, "QuotaExceeded")),
        Job("d", "Pending", Condition("Blocked", true, "a new word")),
        Job("e", "Pending", Condition("Scheduled", false, "Unschedulable")),
        Job("f", "Running", Condition("Scheduled", true, "NothingWaits")),
        Job("g", "Pending", Condition("TemplateInvalid", true, "Refused")), ManagedElsewhere("h")});
  Publish(1000);
  EXPECT_EQ(Value(R"(trainingjob_jobs{phase="Running"})"), 3);
  EXPECT_EQ(Value(R"(trainingjob_jobs{phase="Pending"})"), 4);
  EXPECT_EQ(Value(R"(trainingjob_jobs{phase="Failed"})"), 0);
  EXPECT_EQ(Value(R"(trainingjob_jobs_blocked{reason="QuotaExceeded"})"), 1);
  EXPECT_EQ(Value(R"(trainingjob_jobs_blocked{reason="PodsWait"})"), 1);
  EXPECT_EQ(Value(R"(trainingjob_jobs_blocked{reason="TemplateInvalid"})"), 1);
  EXPECT_EQ(Value(R"(trainingjob_jobs_blocked{reason="Other"})"), 1);
  EXPECT_EQ(Value(R"(trainingjob_jobs_blocked{reason="NameConflict"})"), 0);
  EXPECT_EQ(Value(R"(trainingjob_pods{phase="Running",role="worker"})"), 0);
}

TEST_F(OperatorMetricsJobsTest, CheckpointsThatFailOrDoNotCome) {
  const auto saving = [](const std::string& name, const std::string& phase, const char* newest) {
    Json job = Job(name, phase, Condition("Ready", true, "AllMembersReady"));
    job["spec"]["checkpoint"] = {{"uri", "/ckpt"}, {"intervalSeconds", 60}};
    if (newest != nullptr) job["status"]["checkpoint"] = {{"newest", "/ckpt/a/1"}, {"time", newest}};
    return job;
  };
  // Ready since 03:04:05, and it is 03:10:00.
  Fill({saving("a", "Running", nullptr), saving("b", "Running", "2026-01-02T03:06:30Z"),
        saving("c", "Running", "2026-01-02T03:07:30Z"), saving("d", "Suspended", nullptr),
        Job("e", "Running", Condition("Ready", true, "AllMembersReady")),
        Job("f", "Running", Condition("CheckpointFailing", true, "WriteFailed"))});
  Publish(1767323400);
  EXPECT_EQ(Value("trainingjob_jobs_checkpoint_overdue"), 2) << "a and b";
  EXPECT_EQ(Value("trainingjob_jobs_checkpoint_failing"), 1);
}

TEST_F(OperatorMetricsJobsTest, GoodputOfJobsThatAskForIt) {
  const Json asks = {{kGoodputAnnotation, "true"}};
  const char* series = R"(trainingjob_goodput_ratio{job_name="a",job_namespace="team"})";
  Fill({Job("a", "Running", Json::array(), asks), Job("b", "Running")});
  Publish(1000);
  Publish(1010);
  EXPECT_EQ(Value(series), 1);
  Fill({Job("a", "Starting", Json::array(), asks), Job("b", "Running")});
  Publish(1020);
  EXPECT_EQ(Value(series), 0.5);
  EXPECT_THAT(registry_.Text(), Not(HasSubstr("job_name=\"b\"")));
  Fill({Job("b", "Running")});
  Publish(1030);
  EXPECT_EQ(Value(series), std::nullopt) << "a job that is gone leaves no series behind";
}

}  // namespace
}  // namespace downpour::controller
