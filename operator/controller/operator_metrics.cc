#include "operator/controller/operator_metrics.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "operator/api/manifest.h"
#include "operator/planner/conditions.h"

namespace downpour::controller {
namespace {

using service::Labels;

const std::vector<double> kShort = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};
const std::vector<double> kLong = {0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600};

const Labels kQueue = {{"name", "trainingjob"}};

}  // namespace

OperatorMetrics::OperatorMetrics(service::Metrics* metrics) : metrics_(metrics) {
  // So that a rate over them is 0 and not absent before the first.
  for (const char* result : {"success", "error", "requeue_after"}) {
    metrics_->Increment("controller_runtime_reconcile_total", "Reconciliations by result.",
                        {{"controller", "trainingjob"}, {"result", result}}, 0);
  }
  metrics_->Increment("controller_runtime_reconcile_errors_total", "Reconciliations that failed.",
                      {{"controller", "trainingjob"}}, 0);
  metrics_->Increment("downpour_stale_sync_skips_total", "Reconciliations put off: a cache lacks a write of our own.",
                      {}, 0);
  metrics_->Increment("trainingjob_created_total", "Jobs whose first status was stored.", {}, 0);
  SetLeading(false);
}

void OperatorMetrics::OnRequest(const std::string& method, int code, absl::Duration taken) {
  metrics_->Increment("rest_client_requests_total", "Requests to the API server.",
                      {{"method", method}, {"code", code == 0 ? "<error>" : absl::StrCat(code)}});
  metrics_->Observe("rest_client_request_duration_seconds", "Duration of requests to the API server.",
                    {{"verb", method}}, kShort, absl::ToDoubleSeconds(taken));
}

void OperatorMetrics::OnReconciled(bool error, bool requeue, absl::Duration waited, absl::Duration taken) {
  metrics_->Increment("controller_runtime_reconcile_total", "Reconciliations by result.",
                      {{"controller", "trainingjob"},
                       {"result", error     ? "error"
                                  : requeue ? "requeue_after"
                                            : "success"}});
  if (error) {
    metrics_->Increment("controller_runtime_reconcile_errors_total", "Reconciliations that failed.",
                        {{"controller", "trainingjob"}});
  }
  metrics_->Observe("controller_runtime_reconcile_time_seconds", "Duration of reconciliations.",
                    {{"controller", "trainingjob"}}, kShort, absl::ToDoubleSeconds(taken));
  metrics_->Observe("workqueue_queue_duration_seconds", "How long keys waited in the queue.", kQueue, kShort,
                    absl::ToDoubleSeconds(waited));
  metrics_->Observe("workqueue_work_duration_seconds", "How long keys were worked on.", kQueue, kShort,
                    absl::ToDoubleSeconds(taken));
}

void OperatorMetrics::OnStale() {
  metrics_->Increment("downpour_stale_sync_skips_total", "Reconciliations put off: a cache lacks a write of our own.",
                      {});
}

void OperatorMetrics::OnStatus(const JobRecord& before, const api::TrainingJobStatus& after, double now) {
  const api::TrainingJobStatus& old = before.job.status;
  if (old.phase.empty()) metrics_->Increment("trainingjob_created_total", "Jobs whose first status was stored.", {});
  for (const auto& [type, result] :
       {std::pair{planner::kComplete, "succeeded"}, std::pair{planner::kFailed, "failed"}}) {
    if (planner::IsTrue(old, type) || !planner::IsTrue(after, type)) continue;
    metrics_->Increment("trainingjob_finished_total", "Jobs that ended.",
                        {{"result", result}, {"reason", planner::FindCondition(after, type)->reason}});
  }
  for (const api::FailureRecord& failure : after.failures) {
    const bool known = std::any_of(old.failures.begin(), old.failures.end(), [&failure](const api::FailureRecord& one) {
      return one.uid == failure.uid && one.time == failure.time && one.index == failure.index;
    });
    if (known || failure.action == "FailJob") continue;
    metrics_->Increment("trainingjob_restarts_total", "Replacements of pods that ended too early.",
                        {{"role", std::string(api::ToString(failure.role))},
                         {"cause", failure.cause},
                         {"counted", failure.counted ? "true" : "false"}});
  }
  if (after.recovery.has_value() && after.recovery->last_duration_seconds.has_value() &&
      (!old.recovery.has_value() || !old.recovery->last_duration_seconds.has_value())) {
    metrics_->Observe("trainingjob_recovery_seconds", "From the end of a member until all are back and train.",
                      {{"role", std::string(api::ToString(after.recovery->last_role))}}, kLong,
                      now - after.recovery->last_start_time);
  }
  if (!planner::IsTrue(old, planner::kReady) && planner::IsTrue(after, planner::kReady) && after.restarts_total == 0 &&
      before.meta.creation_time.has_value()) {
    metrics_->Observe("trainingjob_ready_seconds", "From the making of a job until all its members train.", {}, kLong,
                      now - *before.meta.creation_time);
  }
}

void OperatorMetrics::SetLeading(bool leading) {
  metrics_->SetGauge("leader_election_master_status", "1: this process leads.", {{"name", "downpour-operator"}},
                     leading ? 1 : 0);
}

void OperatorMetrics::Publish(const WorkQueueCounters& queue, const kube::Store<JobRecord>& jobs,
                              const kube::Store<Pod>& pods) {
  metrics_->SetGauge("workqueue_depth", "Keys that wait.", kQueue, static_cast<double>(queue.depth));
  metrics_->SetGauge("controller_runtime_active_workers", "Keys being worked on.", {{"controller", "trainingjob"}},
                     static_cast<double>(queue.processing));
  metrics_->SetCounter("workqueue_adds_total", "Keys added.", kQueue, static_cast<double>(queue.adds));
  metrics_->SetCounter("workqueue_retries_total", "Keys added again after an error.", kQueue,
                       static_cast<double>(queue.retries));
  std::map<std::string, int> phases = {{"Pending", 0},   {"Starting", 0},  {"Running", 0},   {"Recovering", 0},
                                       {"Finishing", 0}, {"Suspended", 0}, {"Succeeded", 0}, {"Failed", 0}};
  for (const auto& job : jobs.All()) {
    ++phases[job->job.status.phase.empty() ? "Pending" : job->job.status.phase];
  }
  for (const auto& [phase, count] : phases) {
    metrics_->SetGauge("trainingjob_jobs", "Jobs by phase.", {{"phase", phase}}, count);
  }
  std::map<std::pair<std::string, std::string>, int> counts;
  for (const char* role : {"coordinator", "ps", "worker"}) {
    for (const char* phase : {"Pending", "Running", "Succeeded", "Failed"}) counts[{role, phase}] = 0;
  }
  for (const auto& pod : pods.All()) {
    ++counts[{std::string(api::ToString(pod->role)), pod->phase.empty() ? "Pending" : pod->phase}];
  }
  for (const auto& [key, count] : counts) {
    metrics_->SetGauge("trainingjob_pods", "Pods of jobs.", {{"role", key.first}, {"phase", key.second}}, count);
  }
}

void OperatorMetrics::PublishWatch(const std::string& resource, const kube::ReflectorState& state) {
  const double age = state.synced ? absl::ToDoubleSeconds(absl::Now() - state.last_contact) : 0;
  metrics_->SetGauge("downpour_watch_last_event_age_seconds", "Since the API server was last heard of.",
                     {{"resource", resource}}, age);
}

}  // namespace downpour::controller
