#include "operator/controller/operator_metrics.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "operator/api/manifest.h"
#include "operator/kube/wait.h"
#include "operator/planner/conditions.h"

namespace downpour::controller {
namespace {

using service::Labels;
using Jobs = std::vector<kube::Store<JobRecord>::Pointer>;

const std::vector<double> kShort = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15,
                                    0.25,  0.5,    1,     2.5,  5,     10,   30,    60};
const std::vector<double> kLong = {1, 2.5, 5, 10, 20, 30, 60, 120, 300, 900, 3600};

const Labels kController = {{"controller", "trainingjob"}};
const Labels kQueue = {{"controller", "trainingjob"}, {"name", "trainingjob"}};

// Of metrics that begin at 0 in one place and count in another.
struct Name {
  const char* name;
  const char* help;
};
constexpr Name kReconciles = {"controller_runtime_reconcile_total", "Reconciliations by result."};
constexpr Name kReconcileErrors = {"controller_runtime_reconcile_errors_total", "Reconciliations that failed."};
constexpr Name kReconcilePanics = {"controller_runtime_reconcile_panics_total",
                                   "Reconciliations that ended with an exception."};
constexpr Name kReconcileTime = {"controller_runtime_reconcile_time_seconds",
                                 "How long passes took to decide; what they decide is carried out after."};
constexpr Name kQueueTime = {"workqueue_queue_duration_seconds", "How long keys waited in the queue."};
constexpr Name kWorkTime = {"workqueue_work_duration_seconds",
                            "How long keys were worked on, until what was decided was carried out."};
constexpr Name kRequests = {"rest_client_requests_total", "Requests to the API server."};
constexpr Name kStaleSkips = {"downpour_stale_sync_skips_total",
                              "Reconciliations put off: a cache lacks a write of our own."};
constexpr Name kStatusWrites = {"downpour_status_writes_total",
                                "Statuses stored; news: what they say that the one before did not."};
constexpr Name kCreated = {"trainingjob_created_total", "Jobs whose first status was stored."};
constexpr Name kFinished = {"trainingjob_finished_total", "Jobs that ended."};
constexpr Name kRestarts = {"trainingjob_restarts_total", "Replacements of pods that ended too early."};
constexpr Name kLostUpdates = {"trainingjob_lost_updates_total", "Updates that were applied and lost again."};
constexpr Name kCheckpointFailing = {"trainingjob_jobs_checkpoint_failing",
                                     "Jobs whose newest checkpoint could not be made."};
constexpr Name kCheckpointOverdue = {
    "trainingjob_jobs_checkpoint_overdue",
    "Jobs that have trained for three of their intervals, and whose newest checkpoint is older than that."};
constexpr Name kRecovery = {"trainingjob_recovery_seconds",
                            "From the end of a member until the first new update; phase: total, and its parts."};
constexpr Name kFirstPod = {"trainingjob_first_pod_seconds", "From the making of a job until its first pod runs."};
constexpr Name kReadyTime = {"trainingjob_ready_seconds", "From the making of a job until all its members train."};
constexpr Name kGoodput = {"trainingjob_goodput_ratio",
                           "Share of a job's time that went into updates which still count. Opt-in."};

constexpr const char* kRoles[] = {"coordinator", "ps", "worker"};
// planner/failure.cc names them. What ends a pod may be anything; a label may not.
constexpr const char* kCauses[] = {"DisruptionTarget", "Evicted",    "NodeLost",
                                   "Preempted",        "Preempting", "Shutdown",
                                   "NodeShutdown",     "Terminated", "UnexpectedAdmissionError",
                                   "NodeAffinity",     "OutOfcpu",   "OutOfmemory",
                                   "Deleted",          "OOMKilled",  "UnexpectedExit",
                                   "PendingTimeout",   "Unknown",    "ExitCode",
                                   "Signal",           "Other"};
constexpr const char* kFailureReasons[] = {
    "RestartLimitExceeded",     "BadInput",       "FailurePolicyRule", "DeadlineExceeded",
    "ProgressDeadlineExceeded", "TrainingFailed", "DataShardFailed",   "ModelNotFinite"};
constexpr const char* kBlockedReasons[] = {
    "QuotaExceeded", "NameConflict", "Forbidden", "Refused", "NamespaceTerminating", "NamespaceGone", "TemplateInvalid",
    "SpecInvalid",   "ServerError",  "PodsWait",  "Other"};

// `text` if it is one of `known`, else Other.
template <std::size_t count>
std::string OneOf(const char* const (&known)[count], const std::string& text) {
  return std::find(std::begin(known), std::end(known), text) != std::end(known) ? text : "Other";
}

std::string CauseLabel(const std::string& cause) {
  if (absl::StartsWith(cause, "Exit code ")) return "ExitCode";
  if (absl::StartsWith(cause, "Killed by signal ")) return "Signal";
  return OneOf(kCauses, cause);
}

Labels RestartLabels(const std::string& role, const std::string& cause, bool counted) {
  return {{"role", role}, {"cause", cause}, {"counted", counted ? "true" : "false"}};
}

Labels RecoveryLabels(const std::string& role, const std::string& cause, const std::string& phase) {
  return {{"role", role}, {"cause", cause}, {"phase", phase}};
}

std::string CodeLabel(int code) { return code == 0 ? "<error>" : absl::StrCat(code); }

Labels RequestLabels(const std::string& method, int code, const std::string& host) {
  return {{"method", method}, {"code", CodeLabel(code)}, {"host", host}};
}

// Why a job cannot go on though nobody suspended it; nothing if it can.
std::optional<std::string> BlockedReason(const api::TrainingJobStatus& status) {
  if (planner::IsOver(status)) return std::nullopt;
  if (planner::IsTrue(status, planner::kSpecInvalid)) return planner::kSpecInvalid;
  if (planner::IsTrue(status, planner::kTemplateInvalid)) return planner::kTemplateInvalid;
  if (planner::IsTrue(status, planner::kBlocked)) {
    return OneOf(kBlockedReasons, planner::FindCondition(status, planner::kBlocked)->reason);
  }
  const api::Condition* scheduled = planner::FindCondition(status, planner::kScheduled);
  if (scheduled != nullptr && !scheduled->status) return "PodsWait";
  return std::nullopt;
}

bool CheckpointIsOverdue(const api::TrainingJob& job, double now) {
  constexpr int kIntervals = 3;
  const api::TrainingJobStatus& status = job.status;
  const api::Condition* ready = planner::FindCondition(status, planner::kReady);
  if (!job.spec.checkpoint.has_value() || status.phase != "Running" || ready == nullptr || !ready->status) return false;
  double newest = ready->last_transition_time;
  if (status.checkpoint.has_value()) newest = std::max(newest, status.checkpoint->time.value_or(0));
  return now - newest > kIntervals * job.spec.checkpoint->interval_seconds;
}

// When the wait for a job began. One that was suspended waited for whoever resumed it, not for the platform.
double WaitBegan(const JobRecord& before, const api::TrainingJobStatus& after, double now) {
  const bool was_suspended = planner::FindCondition(after, planner::kSuspended) != nullptr;
  return (was_suspended ? after.start_time : before.meta.creation_time).value_or(now);
}

// For the first time since its start: `Ready` was false before the start, and has been ever since.
bool BecomesReady(const api::TrainingJobStatus& before, const api::TrainingJobStatus& after) {
  const api::Condition* ready = planner::FindCondition(before, planner::kReady);
  return ready != nullptr && !ready->status && after.start_time.has_value() &&
         ready->last_transition_time <= *after.start_time && planner::IsTrue(after, planner::kReady);
}

bool RunsFirstPod(const api::TrainingJobStatus& before, const api::TrainingJobStatus& after) {
  const bool none = before.phase.empty() || before.phase == "Pending" || before.phase == "Suspended";
  return none && (after.phase == "Starting" || after.phase == "Running") && after.restarts_total == 0;
}

}  // namespace

OperatorMetrics::OperatorMetrics(service::Metrics* metrics, int workers, std::string api_server)
    : metrics_(metrics), api_server_(std::move(api_server)) {
  // What is there from the beginning counts its first event as an increase; a series that appears with 1 does not.
  const auto zero = [this](const Name& metric, const Labels& labels) {
    metrics_->Increment(metric.name, metric.help, labels, 0);
  };
  const auto empty = [this](const Name& metric, const Labels& labels, const std::vector<double>& buckets) {
    metrics_->DeclareHistogram(metric.name, metric.help, labels, buckets);
  };
  for (const char* result : {"success", "error", "requeue_after"}) {
    zero(kReconciles, {{"controller", "trainingjob"}, {"result", result}});
  }
  zero(kReconcileErrors, kController);
  zero(kReconcilePanics, kController);
  empty(kReconcileTime, kController, kShort);
  empty(kQueueTime, kQueue, kShort);
  empty(kWorkTime, kQueue, kShort);
  for (const char* method : {"GET", "POST", "PUT", "PATCH", "DELETE"}) {
    zero(kRequests, RequestLabels(method, 0, api_server_));
  }
  zero(kStaleSkips, {});
  for (const char* news : {"essential", "picture", "progress"}) zero(kStatusWrites, {{"news", news}});
  zero(kCreated, {});
  zero(kFinished, {{"result", "succeeded"}, {"reason", "TrainingFinished"}});
  for (const char* reason : kFailureReasons) zero(kFinished, {{"result", "failed"}, {"reason", reason}});
  for (const char* role : kRoles) {
    for (const char* cause : kCauses) {
      for (const bool counted : {false, true}) zero(kRestarts, RestartLabels(role, cause, counted));
      empty(kRecovery, RecoveryLabels(role, cause, "total"), kLong);
    }
  }
  zero(kLostUpdates, {});
  empty(kFirstPod, {}, kLong);
  empty(kReadyTime, {}, kLong);
  metrics_->SetGauge("controller_runtime_max_concurrent_reconciles", "Jobs worked on at a time, but for those held up.",
                     kController, workers);
  SetLeading(false);
}

void OperatorMetrics::OnRequest(const std::string& method, int code, absl::Duration taken) {
  metrics_->Increment(kRequests.name, kRequests.help, RequestLabels(method, code, api_server_));
  metrics_->Observe("rest_client_request_duration_seconds", "Duration of requests to the API server.",
                    {{"verb", method}, {"host", api_server_}}, kShort, absl::ToDoubleSeconds(taken));
}

void OperatorMetrics::OnRateLimited(const std::string& method, absl::Duration waited) {
  metrics_->Observe("rest_client_rate_limiter_duration_seconds",
                    "How long requests waited for the operator's own limit; those that did not wait are left out.",
                    {{"verb", method}, {"host", api_server_}}, kShort, absl::ToDoubleSeconds(waited));
}

void OperatorMetrics::OnRetry(const std::string& method, int code) {
  metrics_->Increment("rest_client_request_retries_total", "Requests sent again, by the code that was the reason.",
                      {{"verb", method}, {"code", CodeLabel(code)}, {"host", api_server_}});
}

void OperatorMetrics::OnPass(absl::Duration waited, absl::Duration taken) {
  metrics_->Observe(kReconcileTime.name, kReconcileTime.help, kController, kShort, absl::ToDoubleSeconds(taken));
  metrics_->Observe(kQueueTime.name, kQueueTime.help, kQueue, kShort, absl::ToDoubleSeconds(waited));
}

void OperatorMetrics::OnReconciled(bool error, bool requeue, absl::Duration taken) {
  metrics_->Increment(kReconciles.name, kReconciles.help,
                      {{"controller", "trainingjob"},
                       {"result", error     ? "error"
                                  : requeue ? "requeue_after"
                                            : "success"}});
  if (error) metrics_->Increment(kReconcileErrors.name, kReconcileErrors.help, kController);
  metrics_->Observe(kWorkTime.name, kWorkTime.help, kQueue, kShort, absl::ToDoubleSeconds(taken));
}

void OperatorMetrics::OnPanic() { metrics_->Increment(kReconcilePanics.name, kReconcilePanics.help, kController); }

void OperatorMetrics::OnStale() { metrics_->Increment(kStaleSkips.name, kStaleSkips.help, {}); }

void OperatorMetrics::OnStatusWrite(std::string_view news) {
  metrics_->Increment(kStatusWrites.name, kStatusWrites.help, {{"news", std::string(news)}});
}

void OperatorMetrics::OnStatus(const JobRecord& before, const api::TrainingJobStatus& after, const Pods& pods,
                               double now) {
  const api::TrainingJobStatus& old = before.job.status;
  if (old.phase.empty()) metrics_->Increment(kCreated.name, kCreated.help, {});
  for (const auto& [type, result] :
       {std::pair{planner::kComplete, "succeeded"}, std::pair{planner::kFailed, "failed"}}) {
    if (planner::IsTrue(old, type) || !planner::IsTrue(after, type)) continue;
    metrics_->Increment(kFinished.name, kFinished.help,
                        {{"result", result}, {"reason", planner::FindCondition(after, type)->reason}});
  }
  // Not status.failures: of more than ten in one step it has the last ten.
  const std::vector<api::FailureRecord>& seen = old.recent_failures;
  for (const api::FailureRecord& failure : after.recent_failures) {
    const bool known = std::any_of(seen.begin(), seen.end(), [&failure](const api::FailureRecord& one) {
      return one.uid == failure.uid && one.time == failure.time && one.index == failure.index;
    });
    if (known || failure.action == "FailJob") continue;
    metrics_->Increment(
        kRestarts.name, kRestarts.help,
        RestartLabels(std::string(api::ToString(failure.role)), CauseLabel(failure.cause), failure.counted));
  }
  if (after.recovery.has_value() && after.recovery->last_duration_seconds.has_value() &&
      (!old.recovery.has_value() || !old.recovery->last_duration_seconds.has_value())) {
    ObserveRecovery(*after.recovery);
  }
  const auto lost = [](const api::TrainingJobStatus& status) {
    return status.recovery.has_value() ? status.recovery->lost_updates : std::nullopt;
  };
  const bool another = old.recovery.has_value() && after.recovery.has_value() &&
                       old.recovery->last_start_time != after.recovery->last_start_time;
  if (lost(after).has_value() && (another || lost(after) != lost(old))) {
    metrics_->Increment(kLostUpdates.name, kLostUpdates.help, {}, static_cast<double>(*lost(after)));
  }
  const double wait_began = WaitBegan(before, after, now);
  if (RunsFirstPod(old, after)) {
    // The phase is stored a while later. Pods know whole seconds.
    double first = now;
    for (const PodPointer& pod : pods) first = std::min(first, pod->started_time.value_or(now));
    metrics_->Observe(kFirstPod.name, kFirstPod.help, {}, kLong, std::max(0.0, first - wait_began));
  }
  if (BecomesReady(old, after)) {
    // That it is ready may be stored a while later.
    const double since = planner::FindCondition(after, planner::kReady)->last_transition_time;
    metrics_->Observe(kReadyTime.name, kReadyTime.help, {}, kLong, std::max(0.0, since - wait_began));
  }
}

void OperatorMetrics::ObserveRecovery(const api::RecoveryStatus& recovery) {
  const auto observe = [this, &recovery](const char* phase, std::optional<double> seconds) {
    if (!seconds.has_value()) return;
    metrics_->Observe(
        kRecovery.name, kRecovery.help,
        RecoveryLabels(std::string(api::ToString(recovery.last_role)), CauseLabel(recovery.last_cause), phase), kLong,
        std::max(0.0, *seconds));
  };
  const api::RecoveryPhases& phases = recovery.phases;
  observe("total", phases.detect.value_or(0) + static_cast<double>(recovery.last_duration_seconds.value_or(0)));
  observe("detect", phases.detect);
  observe("schedule", phases.schedule);
  observe("start", phases.start);
  observe("restore", phases.restore);
}

void OperatorMetrics::SetLeading(bool leading) {
  metrics_->SetGauge("leader_election_master_status", "1: this process leads.", {{"name", "downpour-operator"}},
                     leading ? 1 : 0);
}

void OperatorMetrics::Publish(const WorkQueueCounters& queue, const kube::Store<JobRecord>& jobs,
                              const kube::Store<Pod>& pods, double now) {
  // The priorities that controller-runtime gives to what a start finds, and to the rest.
  for (const auto& [priority, depth] :
       {std::pair{"0", queue.depth - queue.low_depth}, std::pair{"-100", queue.low_depth}}) {
    Labels labels = kQueue;
    labels["priority"] = priority;
    metrics_->SetGauge("workqueue_depth", "Keys that wait.", labels, static_cast<double>(depth));
  }
  metrics_->SetGauge("workqueue_unfinished_work_seconds", "What the keys being worked on have taken until now.", kQueue,
                     absl::ToDoubleSeconds(queue.unfinished));
  metrics_->SetGauge("workqueue_longest_running_processor_seconds", "The longest of them.", kQueue,
                     absl::ToDoubleSeconds(queue.longest_running));
  metrics_->SetGauge("controller_runtime_active_workers", "Keys being worked on.", kController,
                     static_cast<double>(queue.processing));
  metrics_->SetCounter("workqueue_adds_total", "Keys added.", kQueue, static_cast<double>(queue.adds));
  metrics_->SetCounter("workqueue_retries_total", "Keys added again after an error.", kQueue,
                       static_cast<double>(queue.retries));
  const Jobs all = jobs.All();
  PublishJobs(all, now);
  PublishGoodput(all, now);
  std::map<std::pair<std::string, std::string>, int> counts;
  for (const char* role : kRoles) {
    for (const char* phase : {"Pending", "Running", "Succeeded", "Failed", "Unknown"}) counts[{role, phase}] = 0;
  }
  for (const auto& pod : pods.All()) {
    ++counts[{std::string(api::ToString(pod->role)), pod->phase.empty() ? "Pending" : pod->phase}];
  }
  for (const auto& [key, count] : counts) {
    metrics_->SetGauge("trainingjob_pods", "Pods of jobs.", {{"role", key.first}, {"phase", key.second}}, count);
  }
}

void OperatorMetrics::PublishJobs(const Jobs& jobs, double now) {
  std::map<std::string, int> phases = {{"Pending", 0},   {"Starting", 0},  {"Running", 0},   {"Recovering", 0},
                                       {"Finishing", 0}, {"Suspended", 0}, {"Succeeded", 0}, {"Failed", 0}};
  std::map<std::string, int> blocked;
  for (const char* reason : kBlockedReasons) blocked[reason] = 0;
  int failing = 0;
  int overdue = 0;
  for (const kube::Store<JobRecord>::Pointer& job : jobs) {
    if (!job->managed_here) continue;
    const api::TrainingJobStatus& status = job->job.status;
    ++phases[status.phase.empty() ? "Pending" : status.phase];
    if (const std::optional<std::string> reason = BlockedReason(status)) ++blocked[*reason];
    if (!planner::IsOver(status) && planner::IsTrue(status, planner::kCheckpointFailing)) ++failing;
    if (CheckpointIsOverdue(job->job, now)) ++overdue;
  }
  for (const auto& [phase, count] : phases) {
    metrics_->SetGauge("trainingjob_jobs", "Jobs by phase.", {{"phase", phase}}, count);
  }
  for (const auto& [reason, count] : blocked) {
    metrics_->SetGauge("trainingjob_jobs_blocked", "Jobs that cannot go on, by reason.", {{"reason", reason}}, count);
  }
  metrics_->SetGauge(kCheckpointFailing.name, kCheckpointFailing.help, {}, failing);
  metrics_->SetGauge(kCheckpointOverdue.name, kCheckpointOverdue.help, {}, overdue);
}

void OperatorMetrics::PublishGoodput(const Jobs& jobs, double now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::set<std::string> asked;
  for (const kube::Store<JobRecord>::Pointer& job : jobs) {
    const kube::ObjectMeta& meta = job->meta;
    const auto annotation = meta.annotations.find(kGoodputAnnotation);
    if (annotation == meta.annotations.end() || annotation->second != "true") continue;
    asked.insert(meta.uid);
    auto& [labels, goodput] = goodputs_[meta.uid];
    labels = {{"job_namespace", meta.namespace_name}, {"job_name", meta.name}};
    goodput.Look(job->job.status, now);
    if (const std::optional<double> ratio = goodput.ratio()) {
      metrics_->SetGauge(kGoodput.name, kGoodput.help, labels, *ratio);
    }
  }
  std::erase_if(goodputs_, [this, &asked](const auto& entry) {
    if (asked.count(entry.first) != 0) return false;
    metrics_->RemoveGauge(kGoodput.name, entry.second.first);
    return true;
  });
}

void OperatorMetrics::PublishWatch(const std::string& resource, const kube::ReflectorState& state) {
  const double age = state.synced ? absl::ToDoubleSeconds(kube::MonotonicNow() - state.last_contact) : 0;
  metrics_->SetGauge("downpour_watch_last_event_age_seconds", "Since the API server was last heard of.",
                     {{"resource", resource}}, age);
}

}  // namespace downpour::controller
