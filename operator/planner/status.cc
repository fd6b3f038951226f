#include "operator/planner/status.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "operator/planner/checkpoint.h"
#include "operator/planner/devices.h"
#include "operator/planner/elastic.h"
#include "operator/planner/output.h"
#include "operator/planner/replication.h"
#include "operator/planner/ring.h"
#include "operator/planner/training_course.h"
#include "operator/planner/update_mode.h"

namespace downpour::planner {
namespace {

// The reason of ParametersLost carries the generation that was lost, as nothing else in the status does; without a
// number where the coordinator never said it.
constexpr char kPsLostInGeneration[] = "PsLostInGeneration";
constexpr char kWorkersLostInGeneration[] = "WorkersLostInGeneration";  // of all-reduce

constexpr char kRolledBack[] = "RolledBack";  // reason and event

constexpr double kProgressInterval = 10;  // seconds

std::uint64_t LostGeneration(const api::Condition& lost) {
  std::uint64_t generation = 0;
  for (const std::string_view prefix : {kPsLostInGeneration, kWorkersLostInGeneration}) {
    if (!lost.reason.starts_with(prefix)) continue;
    std::from_chars(lost.reason.data() + prefix.size(), lost.reason.data() + lost.reason.size(), generation);
  }
  return generation;
}

// Whether whoever plans has not heard the coordinator yet, as when it is new, and need not have: what was stored before
// then still holds of what runs. Unknown is never zero.
bool KnowsFromBefore(const Context& context) {
  return context.report() == nullptr && context.now < context.observed.answer_due &&
         IsWorking(context.LiveInstance(api::Role::kCoordinator, 0));
}

// The coordinator takes itself for a replacement by its number, which may be the second without there having been a
// first.
bool Recovers(const Context& context, const CoordinatorReport& report) {
  if (report.phase != CoordinatorPhase::kRecovering) return false;
  const api::TrainingJobStatus& status = context.job.status;  // not with what is about to be counted
  return report.parameters_lost || report.updates_applied > 0 || status.last_progress_step > 0 ||
         status.coordinator.restarts > 0 || status.parameter_server.restarts > 0;
}

// What a recovery lost, once training goes on with less than before it. `generation` began with `restoration`, if
// that is there.
void NoteLosses(Context& context, const CoordinatorReport& report) {
  std::optional<api::RecoveryStatus>& recovery = context.status.recovery;
  if (!recovery.has_value() || recovery->last_duration_seconds.has_value()) return;
  const std::optional<Restoration>& restoration = report.restoration;
  const std::uint64_t kept = restoration.has_value() ? restoration->updates : 0;
  if (!recovery->lost_updates.has_value()) {
    if (restoration.has_value() && restoration->lost_updates.has_value()) {
      recovery->lost_updates = *restoration->lost_updates;
    } else {
      recovery->lost_updates = recovery->step > kept ? recovery->step - kept : 0;
    }
  }
  recovery->step = std::min(recovery->step, kept);
  if (!restoration.has_value()) return;
  recovery->restored_from = restoration->checkpoint;
  recovery->skipped = restoration->skipped;
  const std::optional<api::CheckpointStatus>& newest = context.status.checkpoint;
  if (restoration->lost_seconds.has_value()) {
    recovery->lost_seconds = std::llround(*restoration->lost_seconds);
  } else if (newest.has_value() && newest->newest == restoration->checkpoint && newest->time.has_value()) {
    recovery->lost_seconds = std::llround(std::max(0.0, recovery->last_start_time - *newest->time));
  }
}

void RollBack(Context& context, const CoordinatorReport& report) {
  NoteLosses(context, report);
  const Restoration& restoration = *report.restoration;
  std::string lost;
  if (const std::optional<api::RecoveryStatus>& recovery = context.status.recovery; recovery.has_value()) {
    if (recovery->lost_updates.has_value()) absl::StrAppend(&lost, "; lost ", *recovery->lost_updates, " updates");
    if (recovery->lost_seconds.has_value()) absl::StrAppend(&lost, ", ", *recovery->lost_seconds, " s of training");
  }
  const std::string message =
      absl::StrCat("training went on from ", restoration.checkpoint, " (update ", restoration.updates, lost,
                   ") under generation ", report.generation, SkippedText(restoration));
  context.Emit(true, kRolledBack, message);
  context.ClearCondition(kParametersLost, kRolledBack, message);
  NoteResumed(context, restoration, kRolledBack);
}

void UpdateParametersLost(Context& context) {
  const api::Condition* lost = FindCondition(context.status, kParametersLost);
  const CoordinatorReport* report = TrainingReport(context);
  if (lost == nullptr || !lost->status || report == nullptr || report->received_time <= lost->last_transition_time ||
      !HoldersWork(context)) {
    return;
  }
  // A coordinator that was lost as well knows nothing of earlier generations and may count from the first again.
  const bool same_coordinator =
      context.LiveInstance(api::Role::kCoordinator, 0)->created_time <= lost->last_transition_time;
  // Standbys took over although not every slice had one, or the ps held nothing: the coordinator has met the one that
  // took its place.
  // So it is where some worker was still there that nobody here knew of.
  const bool all_reduce = IsAllReduce(context.job.spec);
  const bool there = all_reduce ? report->ring.has_value() && report->ring->formed &&
                                      context.status.worker.ready >= report->ring->members
                                : !report->placed_ps.empty() && MissingPs(context, report->placed_ps).empty();
  if (same_coordinator && report->generation > 0 && report->generation == LostGeneration(*lost) && there) {
    const std::string message =
        absl::StrCat("nothing was lost: training went on under generation ", report->generation);
    context.Emit(false, "ParametersKept", message);
    context.ClearCondition(kParametersLost, "ParametersKept", message);
    return;
  }
  if (same_coordinator && report->generation <= LostGeneration(*lost)) return;
  if (report->restoration.has_value()) return RollBack(context, *report);
  const std::string message = absl::StrCat(
      "training started again under generation ", report->generation,
      context.job.spec.checkpoint.has_value() ? ", from the beginning: there was no checkpoint to go back to" : "");
  context.Emit(false, "TrainingStartedAgain", message);
  context.ClearCondition(kParametersLost, "TrainingStartedAgain", message);
}

void UpdateRecovering(Context& context) {
  const CoordinatorReport* report = CurrentReport(context);
  if (report != nullptr && Recovers(context, *report) && !IsTrue(context.status, kRecovering)) {
    context.SetCondition(kRecovering, true, "CoordinatorRecovering", report->message);
    return;
  }
  const api::Condition* recovering = FindCondition(context.status, kRecovering);
  if (recovering == nullptr || !recovering->status || IsTrue(context.status, kParametersLost)) return;
  const CoordinatorReport* training = TrainingReport(context);
  if (training == nullptr || training->received_time <= recovering->last_transition_time || !HoldersWork(context)) {
    return;
  }
  context.Emit(false, "Recovered", "the coordinator reports training again");
  context.ClearCondition(kRecovering, "Recovered", "the coordinator reports training again");
}

void UpdateRoleCounts(Context& context) {
  const bool from_before = KnowsFromBefore(context);
  for (const api::Role role : kStartOrder) {
    api::RoleStatus& counts = RoleStatusOf(context.status, role);
    const int ready_before = counts.ready;
    int running = 0;
    api::RoleStatus fresh;
    fresh.restarts = counts.restarts;
    fresh.selector = std::move(counts.selector);
    counts = std::move(fresh);
    counts.desired = DesiredReplicas(context.job.spec, role);
    for (int index = 0; index < counts.desired; ++index) {
      // A live instance stands for its index; where there is none, the newest one that ended does.
      const Instance* current = context.LiveInstance(role, index);
      for (const Instance& instance : context.observed.instances) {
        if (instance.role != role || instance.index != index || (current != nullptr && IsLive(*current))) continue;
        if (current == nullptr || instance.incarnation > current->incarnation) current = &instance;
      }
      if (current == nullptr) continue;
      if (current->phase == InstancePhase::kSucceeded || (IsOver(context.status) && KeepsModel(context, *current))) {
        ++counts.succeeded;
      } else if (current->phase == InstancePhase::kFailed) {
        ++counts.failed;
      } else if (current->terminating) {
        ++counts.terminating;
      } else {
        if (current->phase == InstancePhase::kPending) ++counts.pending;
        if (current->phase == InstancePhase::kRunning) {
          ++running;
          if (current->ready) ++counts.ready;
        }
        if (!context.IsAccounted(*current)) ++counts.replicas;
      }
    }
    if (from_before) counts.ready = std::min(ready_before, running);
    if (role == api::Role::kParameterServer && IsAllReduce(context.job.spec)) continue;  // there are none
    counts.summary = absl::StrCat(counts.ready, "/", counts.desired);
  }
}

// A member that joined or left raises the epoch.
void UpdateMembership(Context& context) {
  bool changed = context.status.incarnations != context.job.status.incarnations;
  for (const api::Role role : kStartOrder) {
    changed = changed || RoleStatusOf(context.status, role).ready != RoleStatusOf(context.job.status, role).ready;
  }
  if (changed) ++context.status.membership.epoch;
}

std::vector<api::TestMetricStatus> ToStatus(const std::vector<TestMetric>& metrics) {
  std::vector<api::TestMetricStatus> status;
  status.reserve(metrics.size());
  for (const TestMetric& metric : metrics) status.push_back({metric.name, absl::StrFormat("%.4f", metric.value)});
  return status;
}

// From the newest report, at most every kProgressInterval: readers want to see it move, not every step.
void UpdateProgress(Context& context) {
  const CoordinatorReport* report = context.report();
  if (report == nullptr || report->updates_expected == 0) return;
  const std::optional<api::ProgressStatus>& before = context.status.progress;
  std::vector<api::TestMetricStatus> metrics = ToStatus(report->test_metrics);
  // The last evaluation is made after the last update.
  const bool ends = report->phase == CoordinatorPhase::kDone && before.has_value() &&
                    (before->step != report->updates_applied || before->percent < 100 ||
                     (!metrics.empty() && metrics != before->test_metrics));
  // A new generation counts from the beginning, which is stored at once: what was lost is read off these two. Before it
  // trains, a coordinator does not know yet what the parameter servers have.
  const bool falls = before.has_value() && report->updates_applied < before->step;
  if (falls && report->phase != CoordinatorPhase::kTraining) return;
  if (before.has_value() && !ends && !falls) {
    // Less than none where the clock of whoever stored it was ahead.
    const double age = report->received_time - before->last_update_time;
    if (before->step == report->updates_applied || (age >= 0 && age < kProgressInterval)) return;
  }
  api::ProgressStatus progress;
  progress.step = report->updates_applied;
  progress.total_steps = report->updates_expected;
  progress.percent = static_cast<int>(100 * report->updates_applied / report->updates_expected);
  progress.epoch = report->epoch;
  progress.last_update_time = report->received_time;
  if (report->samples_per_second > 0) {
    progress.samples_per_second = absl::StrFormat("%.0f", report->samples_per_second);
  } else if (before.has_value()) {
    progress.samples_per_second = before->samples_per_second;  // the workers have left: what it was
  }
  if (report->loss.has_value()) {
    progress.loss = absl::StrFormat("%.4f", *report->loss);
  } else if (before.has_value() && !falls) {
    progress.loss = before->loss;  // likewise
  }
  if (report->test_accuracy.has_value()) progress.test_accuracy = absl::StrFormat("%.4f", *report->test_accuracy);
  progress.test_metrics = std::move(metrics);
  // The mean since the start: it does not jump with every pause. What a checkpoint holds was not done since then.
  const api::Condition* const resumed = FindCondition(context.status, kResumed);
  const bool counts_from_checkpoint = resumed != nullptr && resumed->status && report->restoration.has_value() &&
                                      report->updates_applied >= report->restoration->updates;
  const std::uint64_t made = report->updates_applied - (counts_from_checkpoint ? report->restoration->updates : 0);
  const double since = counts_from_checkpoint ? resumed->last_transition_time : *context.status.start_time;
  const double elapsed = report->received_time - since;
  if (made >= 2 && elapsed > 0) {
    const double left = static_cast<double>(report->updates_expected - report->updates_applied);
    progress.eta_seconds = std::llround(elapsed * left / static_cast<double>(made));
  }
  context.status.progress = std::move(progress);
}

// The parts until all members were ready, read off the instances of the role that came last. A scale-down may have made
// the lost one needless.
void NoteReady(const Context& context, api::RecoveryStatus& recovery) {
  std::optional<double> started;
  for (const Instance& instance : context.observed.instances) {
    // Of pods whole seconds are known.
    if (instance.role != recovery.last_role || !instance.started_time.has_value() ||
        instance.created_time < std::floor(recovery.last_start_time)) {
      continue;
    }
    started = std::max(started.value_or(0), *instance.started_time);
  }
  if (!started.has_value()) return;
  recovery.phases.schedule = std::max(0.0, *started - recovery.last_start_time);
  recovery.phases.start = std::max(0.0, context.now - std::max(*started, recovery.last_start_time));
}

void UpdateRecovery(Context& context) {
  std::optional<api::RecoveryStatus>& recovery = context.status.recovery;
  if (!recovery.has_value() || recovery->last_duration_seconds.has_value()) return;
  const CoordinatorReport* report = TrainingReport(context);
  const bool heard = report != nullptr && report->received_time > recovery->last_start_time;
  if (heard && report->updates_applied < recovery->step) NoteLosses(context, *report);
  if (!IsTrue(context.status, kReady)) return;
  if (!recovery->phases.start.has_value()) NoteReady(context, *recovery);
  const bool goes_on = heard && !IsTrue(context.status, kParametersLost) &&
                       (report->updates_applied > recovery->step || report->phase != CoordinatorPhase::kTraining);
  if (!goes_on) return;
  recovery->phases.restore = std::max(0.0, context.now - FindCondition(context.status, kReady)->last_transition_time);
  recovery->last_duration_seconds = std::llround(context.now - recovery->last_start_time);
}

void UpdateReady(Context& context) {
  if (IsTrue(context.status, kSuccessCriteriaMet)) {
    context.ClearCondition(kReady, "Finished", "training is over");
    return;
  }
  const api::RoleStatus& ps = context.status.parameter_server;
  const api::RoleStatus& worker = context.status.worker;
  const int given_up = CountGivenUp(context.status);
  const bool members = ps.ready == ps.desired && worker.ready >= worker.desired - given_up;
  const bool trains = KnowsFromBefore(context) ? IsTrue(context.status, kReady) : TrainingReport(context) != nullptr;
  const bool ready =
      members && trains && !IsTrue(context.status, kFailureTarget) && !context.observed.deletion_requested;
  context.SetCondition(
      kReady, ready,
      ready     ? "AllMembersReady"
      : members ? "NotTraining"
                : "MembersMissing",
      absl::StrCat(IsAllReduce(context.job.spec) ? "" : absl::StrCat("ps ", ps.ready, "/", ps.desired, ", "),
                   "workers ", worker.ready, "/", worker.desired,
                   given_up > 0 ? absl::StrCat(", ", given_up, " given up") : ""));
}

// One condition for all that wait: "2 of 3 workers: Unschedulable: 0/1 nodes are available".
void UpdateScheduled(Context& context) {
  std::string message;
  std::string reason;
  for (const api::Role role : kStartOrder) {
    int waiting = 0;
    std::string why;
    for (const Instance& instance : context.observed.instances) {
      if (instance.role != role || instance.phase != InstancePhase::kPending || instance.waiting_reason.empty())
        continue;
      ++waiting;
      if (why.empty()) why = instance.waiting_reason;
    }
    if (waiting == 0) continue;
    if (reason.empty()) reason = why.substr(0, why.find(':'));
    absl::StrAppend(&message, message.empty() ? "" : "; ", waiting, " of ", DesiredReplicas(context.job.spec, role),
                    " ", absl::AsciiStrToLower(EventPrefix(role)), role == api::Role::kWorker ? "s: " : ": ", why);
  }
  if (message.empty()) {
    if (FindCondition(context.status, kScheduled) != nullptr) {
      context.SetCondition(kScheduled, true, "NothingWaits", "no instance waits for the platform");
    }
    return;
  }
  context.SetCondition(kScheduled, false, reason, message);
}

void UpdateClamped(Context& context) {
  const int wanted = context.job.spec.worker.replicas;
  const int desired = DesiredReplicas(context.job.spec, api::Role::kWorker);
  if (wanted == desired) {
    context.ClearCondition(kClamped, "WithinBounds", "worker.replicas is taken as it is");
    return;
  }
  if (!context.job.spec.elastic.has_value()) {
    context.SetCondition(kClamped, true, "NoWorkers",
                         absl::StrCat("worker.replicas = ", wanted, " is taken as ", desired,
                                      ": without workers nothing would train; suspend: true stops a job"));
    return;
  }
  context.SetCondition(
      kClamped, true, "OutsideElasticBounds",
      absl::StrCat("worker.replicas = ", wanted, " is taken as ", desired, ": elastic allows ",
                   context.job.spec.elastic->min_replicas, " to ", context.job.spec.elastic->max_replicas));
}

void UpdateBlocked(Context& context) {
  if (!context.observed.obstacle.has_value()) {
    context.ClearCondition(kBlocked, "NoObstacle", "the platform accepts what is asked of it");
    return;
  }
  const Obstacle& obstacle = *context.observed.obstacle;
  const api::Condition* before = FindCondition(context.status, kBlocked);
  if (before == nullptr || !before->status || before->reason != obstacle.reason) {
    context.Emit(true, obstacle.reason, obstacle.message);
  }
  context.SetCondition(kBlocked, true, obstacle.reason, obstacle.message);
}

// What the condition of this type gives as its reason.
std::string ReasonOf(const Context& context, std::string_view type) {
  return FindCondition(context.status, type)->reason;
}

void UpdatePhase(Context& context) {
  api::TrainingJobStatus& status = context.status;
  status.reason.clear();
  const auto enter = [&status](std::string phase, std::string reason) {
    status.phase = std::move(phase);
    status.reason = std::move(reason);
  };
  if (IsTrue(status, kComplete)) return enter("Succeeded", "");
  if (IsTrue(status, kFailed)) return enter("Failed", ReasonOf(context, kFailed));
  if (IsTrue(status, kSuccessCriteriaMet)) return enter("Finishing", "");
  if (IsTrue(status, kFailureTarget)) return enter("Finishing", ReasonOf(context, kFailureTarget));
  if (IsTrue(status, kSuspended)) return enter("Suspended", ReasonOf(context, kSuspended));
  if (IsTrue(status, kRestarting)) return enter("Recovering", ReasonOf(context, kRestarting));
  if (IsTrue(status, kRecovering)) return enter("Recovering", ReasonOf(context, kRecovering));
  if (const CoordinatorReport* report = TrainingReport(context)) {
    if (report->phase != CoordinatorPhase::kTraining) return enter("Finishing", "");
    return enter("Running", IsWanted(status, kSuspendRequest) ? kMakingCheckpoint : "");
  }
  if (KnowsFromBefore(context) && (status.phase == "Running" || status.phase == "Finishing")) return;
  for (const char* type : {kTemplateInvalid, kBlocked}) {
    if (IsTrue(status, type)) return enter("Pending", ReasonOf(context, type));
  }
  const bool any_runs = std::any_of(context.observed.instances.begin(), context.observed.instances.end(),
                                    [](const Instance& instance) { return instance.phase == InstancePhase::kRunning; });
  enter(any_runs ? "Starting" : "Pending", "");
}

}  // namespace

bool IsWorking(const Instance* instance) {
  return instance != nullptr && instance->phase == InstancePhase::kRunning && !instance->terminating;
}

bool HoldersWork(const Context& context) {
  if (IsAllReduce(context.job.spec)) return WorkersHoldAll(context);
  // New ones may have none yet, and needless ones still have one.
  if (const CoordinatorReport* report = TrainingReport(context); report != nullptr && !report->placed_ps.empty()) {
    return std::all_of(report->placed_ps.begin(), report->placed_ps.end(), [&context](int index) {
      return IsWorking(context.LiveInstance(api::Role::kParameterServer, index));
    });
  }
  const int desired = DesiredReplicas(context.job.spec, api::Role::kParameterServer);
  for (int index = 0; index < desired; ++index) {
    if (!IsWorking(context.LiveInstance(api::Role::kParameterServer, index))) return false;
  }
  return true;
}

const CoordinatorReport* CurrentReport(const Context& context) {
  const CoordinatorReport* report = context.report();
  const Instance* coordinator = context.LiveInstance(api::Role::kCoordinator, 0);
  if (report == nullptr || !IsWorking(coordinator) || report->received_time < coordinator->created_time) return nullptr;
  return report;
}

const CoordinatorReport* TrainingReport(const Context& context) {
  const CoordinatorReport* report = CurrentReport(context);
  if (report == nullptr) return nullptr;
  const bool trains = report->phase == CoordinatorPhase::kTraining || report->phase == CoordinatorPhase::kFinishing ||
                      report->phase == CoordinatorPhase::kDone;
  return trains ? report : nullptr;
}

bool TrainingHasBegun(const Context& context) {
  if (context.status.last_progress_step > 0) return true;
  const CoordinatorReport* report = context.report();
  return report != nullptr && (Recovers(context, *report) || report->phase == CoordinatorPhase::kTraining ||
                               report->phase == CoordinatorPhase::kFinishing);
}

void ReportParametersLost(Context& context, const std::string& what) {
  std::string consequence =
      " and no checkpoint is configured; training starts again from the beginning under a new generation";
  if (context.job.spec.checkpoint.has_value()) {
    const std::string newest = NewestCheckpoint(context);
    consequence = newest.empty()
                      ? "; no checkpoint of this job is known: training goes back to one that can be read, if there "
                        "is one, else to the beginning, under a new generation"
                      : absl::StrCat("; training goes back to ", newest, " under a new generation");
  }
  const std::string message =
      absl::StrCat(HasStandbys(context.job.spec) ? "parameters may be lost, as not every slice had a standby in sync: "
                                                 : "parameters were lost: ",
                   what, consequence);
  // What was resumed is gone.
  context.ClearCondition(kResumed, "ParametersLost", message);
  const bool all_reduce = IsAllReduce(context.job.spec);
  const std::string reason = all_reduce ? "WorkersLost" : "PsLost";
  context.Emit(true, reason, message);
  const CoordinatorReport* report = context.report();
  const char* const in_generation = all_reduce ? kWorkersLostInGeneration : kPsLostInGeneration;
  context.SetCondition(kParametersLost, true,
                       report == nullptr ? reason : absl::StrCat(in_generation, report->generation), message);
}

void UpdateStatus(Context& context) {
  // What the members did stays to be read when their pods are gone.
  if (IsOver(context.job.status)) return;
  UpdateRoleCounts(context);
  UpdateParametersLost(context);
  UpdateCheckpoint(context);
  UpdateRecovering(context);
  UpdateScheduled(context);
  UpdateBlocked(context);
  UpdateClamped(context);
  UpdateReady(context);
  UpdateModeInForce(context);
  UpdateReplication(context);
  UpdateRing(context);
  UpdateDevices(context);
  UpdateTrainingCourse(context);
  UpdateMembership(context);
  UpdateProgress(context);
  UpdateRecovery(context);
  UpdatePhase(context);
}

}  // namespace downpour::planner
