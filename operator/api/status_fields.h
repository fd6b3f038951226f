#ifndef DOWNPOUR_OPERATOR_API_STATUS_FIELDS_H_
#define DOWNPOUR_OPERATOR_API_STATUS_FIELDS_H_

#include <limits>

#include "operator/api/field_names.h"
#include "operator/api/field_rules.h"
#include "operator/api/text_checks.h"
#include "operator/api/training_job.h"

// The fields of a status; see fields.h.
namespace downpour::api::schema {

inline constexpr Integer kCount{0, std::numeric_limits<int>::max()};

template <class Visitor>
void Fields(Visitor& v, Condition& s) {
  v.Field("type", s.type, Text{AnyText});
  v.Field("status", s.status, Choice(kTruth));
  v.Field("reason", s.reason, Text{AnyText});
  v.Field("message", s.message, Text{AnyText});
  v.Field("lastTransitionTime", s.last_transition_time, Time{});
  v.Field("observedGeneration", s.observed_generation, Integer{});
}

template <class Visitor>
void Fields(Visitor& v, FailureRecord& s) {
  v.Field("time", s.time, Time{});
  v.Field("role", s.role, Choice(kRoles));
  v.Field("index", s.index, kCount);
  v.Field("incarnation", s.incarnation, kCount);
  v.Field("uid", s.uid, Text{AnyText});
  v.Field("cause", s.cause, Text{AnyText});
  v.Field("container", s.container, Text{AnyText});
  v.Field("exitCode", s.exit_code, Integer{std::numeric_limits<int>::min(), std::numeric_limits<int>::max()});
  v.Field("action", s.action, Text{AnyText});
  v.Field("counted", s.counted, Flag{});
  v.Field("platform", s.platform, Flag{});
  v.Field("message", s.message, Text{AnyText});
  v.Field("node", s.node, Text{AnyText});
  v.Field("lastLogLine", s.last_log_line, Text{AnyText});
}

template <class Visitor>
void Fields(Visitor& v, AbsentWorker& s) {
  v.Field("index", s.index, kCount);
  v.Field("state", s.state, Choice(kAbsenceStates));
  v.Field("since", s.since, Time{});
}

template <class Visitor>
void Fields(Visitor& v, NodeStatus& s) {
  v.Field("name", s.name, Text{AnyText});
  v.Field("faultTimes", s.fault_times, ListOf<Time>{});
  v.Field("avoidedUntil", s.avoided_until, Time{});
}

template <class Visitor>
void Fields(Visitor& v, RoleStatus& s) {
  v.Field("desired", s.desired, kCount);
  v.Field("replicas", s.replicas, kCount);
  v.Field("pending", s.pending, kCount);
  v.Field("ready", s.ready, kCount);
  v.Field("succeeded", s.succeeded, kCount);
  v.Field("failed", s.failed, kCount);
  v.Field("terminating", s.terminating, kCount);
  v.Field("restarts", s.restarts, kCount);
  v.Field("summary", s.summary, Text{AnyText});
  v.Field("selector", s.selector, Text{AnyText});
}

template <class Visitor>
void Fields(Visitor& v, MembershipStatus& s) {
  v.Field("epoch", s.epoch, Integer{});
}

template <class Visitor>
void Fields(Visitor& v, RecoveryPhases& s) {
  v.Field("detect", s.detect, Number{});
  v.Field("schedule", s.schedule, Number{});
  v.Field("start", s.start, Number{});
  v.Field("restore", s.restore, Number{});
}

template <class Visitor>
void Fields(Visitor& v, CheckpointStatus& s) {
  v.Field("newest", s.newest, Text{AnyText});
  v.Field("updates", s.updates, Integer{});
  v.Field("time", s.time, Time{});
  v.Field("failures", s.failures, kCount);
  v.Field("error", s.error, Text{AnyText});
}

template <class Visitor>
void Fields(Visitor& v, CheckpointRequestStatus& s) {
  v.Field("name", s.name, Text{AnyText});
  v.Field("since", s.since, Time{});
}

template <class Visitor>
void Fields(Visitor& v, RecoveryStatus& s) {
  v.Field("lastCause", s.last_cause, Text{AnyText});
  v.Field("lastRole", s.last_role, Choice(kRoles));
  v.Field("lastStartTime", s.last_start_time, Time{});
  v.Field("lastDurationSeconds", s.last_duration_seconds, Integer{});
  v.Field("phases", s.phases, Object{});
  v.Field("step", s.step, Integer{});
  v.Field("restoredFrom", s.restored_from, Text{AnyText});
  v.Field("lostUpdates", s.lost_updates, Integer{});
  v.Field("lostSeconds", s.lost_seconds, Integer{});
  v.Field("skipped", s.skipped, ListOf<Text>{{AnyText}});
}

template <class Visitor>
void Fields(Visitor& v, TestMetricStatus& s) {
  v.Field("name", s.name, Text{AnyText});
  v.Field("value", s.value, Text{AnyText});
}

template <class Visitor>
void Fields(Visitor& v, ProgressStatus& s) {
  v.Field("step", s.step, Integer{});
  v.Field("totalSteps", s.total_steps, Integer{});
  v.Field("percent", s.percent, Integer{0, 100});
  v.Field("samplesPerSecond", s.samples_per_second, Text{AnyText});
  v.Field("etaSeconds", s.eta_seconds, Integer{});
  v.Field("lastUpdateTime", s.last_update_time, Time{});
  v.Field("nextUpdateTime", s.next_update_time, Time{});
  v.Field("epoch", s.epoch, kCount);
  v.Field("loss", s.loss, Text{AnyText});
  v.Field("testAccuracy", s.test_accuracy, Text{AnyText});
  v.Field("testMetrics", s.test_metrics, ListOf<Object>{});
}

template <class Visitor>
void Fields(Visitor& v, UpdateModeStatus& s) {
  v.Field("mode", s.mode, Choice(kUpdateModes));
  v.Field("staleness", s.staleness, kCount);
  v.Field("updatesPerStep", s.updates_per_step, kCount);
}

template <class Visitor>
void Fields(Visitor& v, SlicesStatus& s) {
  v.Field("total", s.total, kCount);
  v.Field("inSync", s.in_sync, kCount);
  v.Field("moving", s.moving, kCount);
  v.Field("parameterServers", s.parameter_servers, ListOf<Integer>{kCount});
}

template <class Visitor>
void Fields(Visitor& v, RingStatus& s) {
  v.Field("members", s.members, kCount);
  v.Field("wanted", s.wanted, kCount);
  v.Field("formed", s.formed, Flag{});
  v.Field("formedCount", s.formed_count, kCount);
  v.Field("updatesPerStep", s.updates_per_step, kCount);
  v.Field("message", s.message, Text{AnyText});
}

template <class Visitor>
void Fields(Visitor& v, LeavingParameterServer& s) {
  v.Field("index", s.index, kCount);
  v.Field("since", s.since, Time{});
}

template <class Visitor>
void Fields(Visitor& v, BestModelStatus& s) {
  v.Field("epoch", s.epoch, kCount);
  v.Field("reason", s.reason, Text{AnyText});
  v.Field("path", s.path, Text{AnyText});
}

template <class Visitor>
void Fields(Visitor& v, TrainingStatus& s) {
  v.Field("stopReason", s.stop_reason, Text{AnyText});
  v.Field("rateReason", s.rate_reason, Text{AnyText});
  v.Field("best", s.best, Object{});
}

template <class Visitor>
void Fields(Visitor& v, OutputStatus& s) {
  v.Field("path", s.path, Text{AnyText});
  v.Field("worker", s.worker, kCount);
  v.Field("incarnation", s.incarnation, kCount);
  v.Field("keptUntil", s.kept_until, Time{});
}

struct RestartCounts {
  int& total;
  int& counted;
};
template <class Visitor>
void Fields(Visitor& v, RestartCounts& s) {
  v.Field("total", s.total, kCount);
  v.Field("counted", s.counted, kCount);
}

template <class Visitor>
void Fields(Visitor& v, TrainingJobStatus& s) {
  RestartCounts restarts{s.restarts_total, s.restarts_counted};
  v.Field("observedGeneration", s.observed_generation, Integer{});
  v.Field("phase", s.phase, Text{AnyText});
  v.Field("reason", s.reason, Text{AnyText});
  v.Field("conditions", s.conditions, ListOf<Object>{});
  v.Field("startTime", s.start_time, Time{});
  v.Field("completionTime", s.completion_time, Time{});
  v.Field("coordinator", s.coordinator, Object{});
  v.Field("parameterServer", s.parameter_server, Object{});
  v.Field("worker", s.worker, Object{});
  v.Field("restarts", restarts, Object{});
  v.Field("membership", s.membership, Object{});
  v.Field("recovery", s.recovery, Object{});
  v.Field("progress", s.progress, Object{});
  v.Field("update", s.update, Object{});
  v.Field("slices", s.slices, Object{});
  v.Field("leavingParameterServers", s.leaving_parameter_servers, ListOf<Object>{});
  v.Field("ring", s.ring, Object{});
  v.Field("training", s.training, Object{});
  v.Field("output", s.output, Object{});
  v.Field("checkpoint", s.checkpoint, Object{});
  v.Field("checkpointRequest", s.checkpoint_request, Object{});
  v.Field("incarnations", s.incarnations, MapOf<Integer>{AnyText, kCount});
  v.Field("recentFailures", s.recent_failures, ListOf<Object>{});
  v.Field("failures", s.failures, ListOf<Object>{});
  v.Field("countedUids", s.counted_uids, ListOf<Text>{{AnyText}});
  v.Field("absentWorkers", s.absent_workers, ListOf<Object>{});
  v.Field("nodes", s.nodes, ListOf<Object>{});
  v.Field("lastProgressTime", s.last_progress_time, Time{});
  v.Field("lastProgressStep", s.last_progress_step, Integer{});
}

}  // namespace downpour::api::schema

#endif  // DOWNPOUR_OPERATOR_API_STATUS_FIELDS_H_
