#include "operator/planner/failure.h"

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "operator/api/pod_template.h"
#include "operator/planner/avoid_nodes.h"
#include "operator/planner/elastic.h"
#include "operator/planner/leaving.h"
#include "operator/planner/replication.h"
#include "operator/planner/ring.h"
#include "operator/planner/status.h"

namespace downpour::planner {
namespace {

constexpr std::size_t kFailuresForPeople = 10;
constexpr int kBadInputExitCode = 2;
constexpr int kAbortedExitCode = 128 + 6;
// How long a worker's exit 0 waits for the coordinator's next word, and how long an answer may have been on its way.
constexpr double kDismissalSeconds = 10;
constexpr double kAnswerSeconds = 1;

// Reasons by which the platform says that it ended the pod.
constexpr const char* kInfrastructureReasons[] = {
    "Evicted",      "NodeLost",     "Preempted",   "Preempting",
    "Shutdown",     "NodeShutdown", "Terminated",  "UnexpectedAdmissionError",
    "NodeAffinity", "OutOfcpu",     "OutOfmemory", "Deleted"};

// The node, and nobody's wish, ended the pod.
bool IsNodeDisruption(const std::string& reason) {
  return reason == "DeletionByTaintManager" || reason == "DeletionByPodGC" || reason == "TerminationByKubelet";
}

const char* ActionName(api::RestartAction action) {
  switch (action) {
    case api::RestartAction::kIgnore:
      return "Ignore";
    case api::RestartAction::kReplace:
      return "Replace";
    case api::RestartAction::kRestoreRole:
      return "RestoreRole";
    case api::RestartAction::kRestartJob:
      return "RestartJob";
    case api::RestartAction::kFailJob:
      break;
  }
  return "FailJob";
}

// Of the one that has the exit code; `container` is "init container fetch".
std::string ContainerName(const Instance& instance) {
  const std::string& container = instance.container;
  return container.empty() ? api::kContainerName : container.substr(container.rfind(' ') + 1);
}

bool Matches(const api::FailureRule& rule, const Instance& instance) {
  const auto contains = [](const auto& values, const auto& value) {
    return std::find(values.begin(), values.end(), value) != values.end();
  };
  if (!rule.roles.empty() && !contains(rule.roles, instance.role)) return false;
  if (!rule.on_container_reasons.empty() && !contains(rule.on_container_reasons, instance.reason)) return false;
  if (rule.on_exit_codes) {
    if (rule.on_exit_codes->container_name.value_or(ContainerName(instance)) != ContainerName(instance)) return false;
    // As in a Job's podFailurePolicy, 0 matches neither operator.
    if (instance.exit_code.value_or(0) == 0 ||
        contains(rule.on_exit_codes->values, *instance.exit_code) != rule.on_exit_codes->in) {
      return false;
    }
  }
  return rule.on_pod_conditions.empty() ||
         std::any_of(rule.on_pod_conditions.begin(), rule.on_pod_conditions.end(), [&instance](const auto& wanted) {
           return std::any_of(instance.conditions.begin(), instance.conditions.end(), [&wanted](const auto& seen) {
             return seen.type == wanted.type && seen.status == wanted.status;
           });
         });
}

bool InWindow(const api::FailureRecord& record, const api::FailurePolicy& policy, double now) {
  return policy.window_seconds == 0 || record.time > now - policy.window_seconds;
}

int CountedFailures(const api::TrainingJobStatus& status, const api::FailurePolicy& policy, double now) {
  return static_cast<int>(
      std::count_if(status.recent_failures.begin(), status.recent_failures.end(),
                    [&](const api::FailureRecord& record) { return record.counted && InWindow(record, policy, now); }));
}

int CountedFailures(const api::TrainingJobStatus& status, const api::FailurePolicy& policy, double now, api::Role role,
                    int index) {
  return static_cast<int>(std::count_if(
      status.recent_failures.begin(), status.recent_failures.end(), [&](const api::FailureRecord& record) {
        return record.counted && record.role == role && record.index == index && InWindow(record, policy, now);
      }));
}

// Keeps the counted failures inside the window, which the limits bound, and the newest uncounted one of each role and
// index.
void AppendRecent(Context& context, const api::FailureRecord& record) {
  auto& recent = context.status.recent_failures;
  std::erase_if(recent, [&](const api::FailureRecord& old) {
    const bool superseded = !old.counted && !record.counted && old.role == record.role && old.index == record.index;
    return superseded || !InWindow(old, context.job.spec.failure_policy, context.now);
  });
  recent.push_back(record);
}

std::string WindowText(const api::FailurePolicy& policy) {
  return policy.window_seconds == 0 ? "in the life of the job" : absl::StrCat("within ", policy.window_seconds, " s");
}

// The failure that exceeds a limit is not followed by a restart.
void CheckLimits(Context& context, const Instance& instance, const Cause& cause) {
  const api::FailurePolicy& policy = context.job.spec.failure_policy;
  const std::string name = InstanceName(instance.role, instance.index);
  const int of_replica = CountedFailures(context.status, policy, context.now, instance.role, instance.index);
  if (of_replica > policy.max_restarts_per_replica) {
    context.FailJob("RestartLimitExceeded",
                    absl::StrCat(name, " failed ", of_replica, " times ", WindowText(policy),
                                 ", more than maxRestartsPerReplica = ", policy.max_restarts_per_replica,
                                 "; last cause: ", cause.description));
    return;
  }
  const int of_job = CountedFailures(context.status, policy, context.now);
  if (of_job > policy.max_restarts) {
    context.FailJob("RestartLimitExceeded",
                    absl::StrCat("the roles of the job failed ", of_job, " times ", WindowText(policy),
                                 ", more than maxRestarts = ", policy.max_restarts, "; the last was ", name,
                                 ", cause: ", cause.description));
  }
}

// What a failure that is followed by a restart says about the state of the training.
void ExplainLoss(Context& context, const Instance& instance, const Cause& cause, const std::string& message) {
  const std::string name = InstanceName(instance.role, instance.index);
  const bool may_hold = instance.role == api::Role::kParameterServer && instance.phase != InstancePhase::kPending &&
                        TrainingHasBegun(context);
  if (may_hold && HoldsNothing(context, instance.index)) {
    context.Emit(false, "PsLeft", absl::StrCat(message, "; it held nothing"));
    return;
  }
  // What it had nobody else has.
  const bool last = IsAllReduce(context.job.spec) && instance.role == api::Role::kWorker &&
                    instance.phase != InstancePhase::kPending && TrainingHasBegun(context) &&
                    !WorkersHoldAll(context) && !IsTrue(context.status, kParametersLost);
  const bool divided = context.job.spec.elastic.has_value() && context.job.spec.elastic->state_copies.has_value();
  if (may_hold && IsTrue(context.status, kProtected)) {
    ReportFailover(context, absl::StrCat(name, " ended (", cause.description, ")"));
  } else if (may_hold) {
    ReportParametersLost(context, absl::StrCat(name, " ended (", cause.description, ")"));
  } else if (last) {
    context.Emit(true, "WorkerLost", message);
    ReportParametersLost(context, absl::StrCat(divided ? "no worker that is left has all of the optimizer's state, "
                                                       : "no worker is left that holds them, ",
                                               name, " ended (", cause.description, ")"));
    context.SetCondition(kRecovering, true, "WorkersLost", message);
  } else {
    context.Emit(true, absl::StrCat(EventPrefix(instance.role), "Lost"), message);
  }
  if (instance.role != api::Role::kWorker) {
    context.SetCondition(kRecovering, true, absl::StrCat(EventPrefix(instance.role), "Lost"), message);
  }
}

std::uint64_t UpdatesApplied(const Context& context) {
  const std::uint64_t told = context.report() == nullptr ? 0 : context.report()->updates_applied;
  const std::uint64_t stored = context.status.progress.has_value() ? context.status.progress->step : 0;
  return std::max(told, stored);
}

// A role whose every instance that was given out was live when the status was stored, and which lacks one altogether
// now, lost it without a trace. Where the stored count is short, the missing one was never seen to start.
void CountVanished(Context& context) {
  for (const api::Role role : kStartOrder) {
    const int desired = DesiredReplicas(context.job.spec, role);
    int started = 0;  // not what is desired: that may have grown since
    for (int index = 0; index < desired; ++index) {
      if (IsParked(context.status, role, index)) continue;
      started += static_cast<int>(context.job.status.incarnations.count(InstanceName(role, index)));
    }
    if (RoleStatusOf(context.job.status, role).replicas < started) continue;
    for (int index = 0; index < desired; ++index) {
      if (IsParked(context.status, role, index)) continue;
      const auto given_out = context.status.incarnations.find(InstanceName(role, index));
      const bool seen =
          std::any_of(context.observed.instances.begin(), context.observed.instances.end(),
                      [&](const Instance& instance) { return instance.role == role && instance.index == index; });
      if (seen || given_out == context.status.incarnations.end()) continue;
      Instance vanished;
      vanished.role = role;
      vanished.index = index;
      vanished.incarnation = given_out->second;
      vanished.phase = InstancePhase::kFailed;
      vanished.reason = "Deleted";
      RecordFailure(context, vanished, ClassifyCause(vanished));
      if (IsTrue(context.status, kFailureTarget)) return;
    }
  }
}

}  // namespace

Cause ClassifyCause(const Instance& instance) {
  for (const api::PodConditionRule& condition : instance.conditions) {
    if (condition.type == "DisruptionTarget" && condition.status == "True") {
      return {"DisruptionTarget", "disrupted by the platform", true, IsNodeDisruption(instance.disruption)};
    }
  }
  for (const char* reason : kInfrastructureReasons) {
    if (instance.reason != reason) continue;
    const bool wish = instance.reason == "Preempted" || instance.reason == "Preempting" || instance.reason == "Deleted";
    return {instance.reason, absl::StrCat("the platform says ", reason), true, !wish};
  }
  const std::string where = instance.container.empty() ? "" : absl::StrCat(" in the ", instance.container);
  if (instance.reason == "OOMKilled") return {"OOMKilled", absl::StrCat("out of memory", where), false};
  if (instance.terminating) return {"Deleted", "deleted by somebody else", true, false};
  if (instance.phase == InstancePhase::kSucceeded) {
    return {"UnexpectedExit", "exited before the job was finished", false};
  }
  if (!instance.exit_code) return {"Unknown", "no exit code known", false};
  const int code = *instance.exit_code;
  if (code > 128 && code <= 128 + 64) {
    return {absl::StrCat("Killed by signal ", code - 128), absl::StrCat("killed by signal ", code - 128, where), false};
  }
  return {absl::StrCat("Exit code ", code), absl::StrCat("exit code ", code, where), false};
}

Verdict DecideAction(const api::FailurePolicy& policy, const Instance& instance, const Cause& cause) {
  for (const api::FailureRule& rule : policy.rules) {
    if (!Matches(rule, instance)) continue;
    const bool counted = rule.counts_towards_limit && rule.action != api::RestartAction::kIgnore;
    return {rule.action, counted, rule.name};
  }
  if (cause.infrastructure) return {api::RestartAction::kReplace, false, ""};
  const bool ours = instance.container.empty();  // what the code of another container means nobody knows
  if (ours && instance.phase == InstancePhase::kFailed && instance.exit_code == kBadInputExitCode) {
    return {api::RestartAction::kFailJob, true, ""};
  }
  return {};
}

double BackoffSeconds(const api::Backoff& backoff, int counted_failures) {
  if (counted_failures < 2) return 0;
  double seconds = backoff.initial_seconds;
  for (int i = 2; i < counted_failures && seconds < backoff.max_seconds; ++i) seconds *= 2;
  return std::min<double>(seconds, backoff.max_seconds);
}

double EarliestStart(const api::TrainingJobStatus& status, const api::FailurePolicy& policy, api::Role role, int index,
                     double now) {
  const double backoff = BackoffSeconds(policy.backoff, CountedFailures(status, policy, now, role, index));
  double earliest = now;
  for (const api::FailureRecord& record : status.recent_failures) {
    if (record.role != role || record.index != index) continue;
    earliest = std::max(earliest, record.time + (record.counted ? backoff : policy.backoff.initial_seconds));
  }
  return earliest;
}

void RecordFailure(Context& context, const Instance& instance, const Cause& cause) {
  Verdict verdict = DecideAction(context.job.spec.failure_policy, instance, cause);
  // Others train with the same input: what one worker finds wrong is wrong where it runs, and must not end them.
  const bool trains = instance.role == api::Role::kWorker && context.status.last_progress_step > 0;
  if (verdict.action == api::RestartAction::kFailJob && verdict.rule.empty() && trains) verdict = {};
  std::string message = absl::StrCat(InstanceName(instance.role, instance.index), " ended: ", cause.description);
  // Who was killed had no last word: its newest line is about something else. Who gave up itself (SIGABRT) said why.
  const int code = instance.exit_code.value_or(0);
  const bool had_last_word = !instance.last_log_line.empty() && (code < 128 || code == kAbortedExitCode);
  if (had_last_word) absl::StrAppend(&message, "; its last line: ", instance.last_log_line);

  api::FailureRecord record;
  record.time = context.now;
  record.role = instance.role;
  record.index = instance.index;
  record.incarnation = instance.incarnation;
  record.uid = instance.uid;
  record.cause = cause.name;
  record.platform = cause.infrastructure;
  record.container = instance.container;
  record.exit_code = instance.exit_code;
  record.counted = verdict.counted;
  record.message = message;
  record.node = instance.node;
  if (had_last_word) record.last_log_line = instance.last_log_line;
  AppendRecent(context, record);
  RecordNodeFault(context, instance, cause);

  if (verdict.action == api::RestartAction::kFailJob) {
    if (verdict.rule.empty()) {
      context.FailJob("BadInput", absl::StrCat(message, "; that means bad input, which repeating cannot help"));
    } else {
      context.FailJob("FailurePolicyRule", absl::StrCat(message, "; the rule ", verdict.rule, " says FailJob"));
    }
  } else if (verdict.counted) {
    CheckLimits(context, instance, cause);
  }
  const bool failed = IsTrue(context.status, kFailureTarget);
  record.action = ActionName(failed ? api::RestartAction::kFailJob : verdict.action);
  context.status.recent_failures.back().action = record.action;
  AppendFailure(context.status, record);
  if (failed) return;

  if (!context.status.recovery.has_value() || context.status.recovery->last_duration_seconds.has_value()) {
    context.status.recovery.emplace();
    context.status.recovery->last_start_time = context.now;
    context.status.recovery->step = UpdatesApplied(context);
    if (instance.finished_time.has_value()) {
      context.status.recovery->phases.detect = std::max(0.0, context.now - *instance.finished_time);
    }
  }
  // Another replacement has to come first.
  context.status.recovery->phases.schedule.reset();
  context.status.recovery->phases.start.reset();
  context.status.recovery->last_cause = record.cause;
  context.status.recovery->last_role = record.role;
  ++context.status.restarts_total;
  ++RoleStatusOf(context.status, instance.role).restarts;
  if (verdict.counted) ++context.status.restarts_counted;
  if (verdict.action == api::RestartAction::kRestartJob) {
    context.Emit(true, "JobRestarting", message);
    context.SetCondition(kRestarting, true, "FailurePolicyRule",
                         absl::StrCat(message, "; the rule ", verdict.rule, " says RestartJob"));
  } else {
    ExplainLoss(context, instance, cause, message);
  }
}

void AppendFailure(api::TrainingJobStatus& status, const api::FailureRecord& record) {
  if (status.failures.size() >= kFailuresForPeople) status.failures.erase(status.failures.begin());
  status.failures.push_back(record);
}

bool MayBeDismissed(Context& context, const Instance& instance) {
  if (instance.role != api::Role::kWorker || instance.phase != InstancePhase::kSucceeded) return false;
  const CoordinatorReport* report = context.report();
  if (report != nullptr && report->phase == CoordinatorPhase::kFinishing) return true;
  double deadline = context.observed.answer_due;
  if (report != nullptr) {
    if (!instance.finished_time || report->received_time > *instance.finished_time + kAnswerSeconds) return false;
    deadline = std::max(deadline, *instance.finished_time + kDismissalSeconds);
  }
  if (context.now >= deadline) return false;
  context.WakeAt(deadline);
  return true;
}

void CountFailures(Context& context) {
  CountVanished(context);
  // Oldest first, then in the order of starting, so that the list's own order does not matter.
  std::vector<const Instance*> ended;
  for (const Instance& instance : context.observed.instances) {
    if (context.IsAccounted(instance)) continue;
    if (IsLive(instance) && !instance.terminating) continue;
    if (!instance.terminating && MayBeDismissed(context, instance)) continue;
    ended.push_back(&instance);
  }
  const auto order = [](const Instance* instance) {
    return std::make_tuple(instance->finished_time.value_or(0), static_cast<int>(instance->role), instance->index,
                           instance->incarnation);
  };
  std::stable_sort(ended.begin(), ended.end(),
                   [&order](const Instance* a, const Instance* b) { return order(a) < order(b); });
  for (const Instance* instance : ended) {
    if (IsTrue(context.status, kFailureTarget)) return;
    context.Account(*instance);
    RecordFailure(context, *instance, ClassifyCause(*instance));
  }
}

}  // namespace downpour::planner
