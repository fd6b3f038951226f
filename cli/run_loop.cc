#include "cli/run_loop.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/audit.h"
#include "operator/job/report.h"
#include "operator/job/training_config.h"
#include "operator/planner/conditions.h"
#include "operator/planner/context.h"
#include "operator/planner/ring.h"

namespace downpour::cli {
namespace {

constexpr double kAskInterval = 0.2;
constexpr double kAskIntervalAtStart = 0.05;  // until the first update: each answer may let the next role start
constexpr double kFinishInterval = 1;
constexpr double kFarewell = 2;  // for workers that have not heard from the coordinator that the job is over
constexpr double kStopGrace = 5;
constexpr double kHandOverGrace = 30;  // of a worker that has a part of a divided state
constexpr double kKillLimit = 10;      // for the kernel to end what was killed
constexpr double kLedgerInterval = 1;

class RunLoop {
 public:
  RunLoop(api::TrainingJob job, std::string job_uid, double start_time, const RunParts& parts)
      : job_(std::move(job)), job_uid_(std::move(job_uid)), start_time_(start_time), parts_(parts) {}

  RunOutcome Run() {
    RunOutcome outcome = Work();
    absl::Status status = EndProcesses();
    if (status.ok()) status = Store();
    // What failed first is the cause of what failed after it.
    if (!status.ok() && outcome.phase != kFailed) {
      outcome.phase = kFailed;
      outcome.message = std::string(status.message());
    }
    outcome.ledger = ledger_;
    if (outcome.phase == kSucceeded && !ledger_.has_value() && !ledger_error_.ok()) {
      // Silence of a process says nothing about its tables; tables that contradict themselves do.
      if (!AuditMayPass(ledger_error_)) outcome.phase = kFailed;
      outcome.message = absl::StrCat("the ledger could not be read: ", ledger_error_.message());
    }
    return outcome;
  }

 private:
  RunOutcome Work() {
    while (true) {
      parts_.processes.Poll();
      TakeChange();
      absl::Status status = TakeAnswer();
      if (!status.ok()) return {kFailed, std::string(status.message()), false, {}};
      const double now = parts_.clock.Now();
      planner::Observed observed = Observe(parts_.processes.List(), reply_, reply_time_);
      if (observed.report.has_value()) observed.report->told = answered_;
      const planner::Plan plan = planner::MakePlan(job_, observed, now);
      status = CarryOut(plan, now);
      DismissWorkers(now);
      if (!status.ok()) return {kFailed, std::string(status.message()), false, {}};
      Show();
      if (std::optional<RunOutcome> outcome = FinalOutcome(job_.status); outcome.has_value()) {
        outcome->bad_input = outcome->phase == kFailed && bad_input_;
        if (outcome->phase == kSucceeded && reply_.has_value()) outcome->message = job::OutcomeOf(*reply_);
        return *outcome;
      }
      AskIfDue(observed.instances);
      double wait = std::max(0.0, next_ask_ - parts_.clock.Now());
      if (plan.requeue_after.has_value()) wait = std::min(wait, std::max(0.0, *plan.requeue_after));
      if (parts_.waiter.Wait(wait, parts_.coordinator.wake_descriptor()) > 0) {
        return {kStopped, StoppedMessage(), false, {}};
      }
    }
  }

  void TakeChange() {
    const absl::StatusOr<std::optional<api::TrainingJob>> change = parts_.take_change(job_);
    if (!change.ok()) {
      parts_.recorder.AddEvent(parts_.clock.Now(), /*warning=*/true, "NotScaled",
                               std::string(change.status().message()));
    }
    if (!change.ok() || !change->has_value()) return;
    const auto counts = [&](const char* name, api::Role role) {
      return absl::StrCat(name, planner::DesiredReplicas(job_.spec, role), " -> ",
                          planner::DesiredReplicas((*change)->spec, role));
    };
    const bool ring = planner::IsAllReduce(job_.spec);
    parts_.recorder.AddEvent(parts_.clock.Now(), /*warning=*/false, "Scaled",
                             absl::StrCat(ring ? "" : counts("ps ", api::Role::kParameterServer) + ", ",
                                          counts("workers ", api::Role::kWorker)));
    job_.metadata = (*change)->metadata;
    job_.spec = (*change)->spec;
    next_ask_ = 0;
  }

  // Who stops a run that did not get going wants to know why it did not.
  std::string StoppedMessage() const {
    const bool trained = reply_.has_value() && reply_->updates_applied() > 0;
    if (trained || job_.status.failures.empty()) return "stopped by the user";
    return absl::StrCat("stopped by the user before the first update; the newest failure: ",
                        job_.status.failures.back().message);
  }

  absl::Status TakeAnswer() {
    std::optional<absl::StatusOr<v1::ProgressReply>> answer = parts_.coordinator.Take();
    if (!answer.has_value() || !answer->ok()) return absl::OkStatus();  // its age tells the planner
    reply_ = **std::move(answer);
    reply_time_ = parts_.clock.Now();
    answered_ = told_;
    for (const std::string& line :
         parts_.recorder.AddProgress(reply_time_, *reply_, FirstCoordinatorStart(), job_.status.restarts_total)) {
      if (absl::Status status = parts_.append_metrics(line); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  std::optional<double> FirstCoordinatorStart() const {
    for (const Process& process : parts_.processes.List()) {
      if (process.role == api::Role::kCoordinator && process.incarnation == 1) return process.created_time;
    }
    return std::nullopt;
  }

  void AskIfDue(const std::vector<planner::Instance>& instances) {
    const double now = parts_.clock.Now();
    if (now < next_ask_) return;
    v1::ProgressRequest question = job::MakeQuestion(job_uid_, job_.status, instances);
    *question.mutable_ps() = job::ToWantedPs(job_);
    if (parts_.coordinator.Ask(question)) told_ = job::ToldBy(question);
    const bool started = reply_.has_value() && reply_->updates_applied() > 0;
    next_ask_ = now + (started ? kAskInterval : kAskIntervalAtStart);
  }

  absl::Status CarryOut(const planner::Plan& plan, double now) {
    const int restarts_before = job_.status.restarts_total;
    job_.status = plan.status;
    bool started = false;
    for (const planner::Action& action : plan.actions) {
      switch (action.type) {
        case planner::ActionType::kStoreStatus:
          if (absl::Status status = Store(); !status.ok()) return status;
          break;
        case planner::ActionType::kStart:
          if (absl::Status status = Start(action); !status.ok()) return status;
          started = true;
          break;
        case planner::ActionType::kStop:
          parts_.processes.Stop(action.uid, job_.spec.elastic.has_value() && job_.spec.elastic->state_copies.has_value()
                                                ? kHandOverGrace
                                                : kStopGrace);
          break;
        case planner::ActionType::kForceStop:
          parts_.processes.Stop(action.uid, 0);
          break;
        case planner::ActionType::kRemove:     // an ended process leaves nothing but its log
        case planner::ActionType::kDeleteJob:  // the run's folder is the user's
          break;
        case planner::ActionType::kFinish:
          Finish(now);
          break;
      }
    }
    // Who takes over waits for the word that somebody ended.
    if (plan.status.restarts_total != restarts_before) next_ask_ = 0;
    const std::vector<Process> processes = parts_.processes.List();
    parts_.recorder.AddProcesses(processes);
    if (job_.status.recovery.has_value()) parts_.recorder.AddRecovery(*job_.status.recovery);
    for (const Process& process : processes) {
      if (!process.running() && process.exit_code == kBadInputExitCode) bad_input_ = true;
    }
    for (const planner::Event& event : plan.events) {
      parts_.recorder.AddEvent(now, event.warning, event.reason, event.message);
    }
    // The numbers of the new processes, for people and for `top`; nothing depends on them.
    return started ? Store() : absl::OkStatus();
  }

  absl::Status Store() { return parts_.store({job_uid_, start_time_, job_.status, parts_.processes.List()}); }

  absl::Status Start(const planner::Action& action) {
    if (action.role == api::Role::kCoordinator) parts_.coordinator.Reset();
    return parts_.processes.Start(parts_.make_process(action.role, action.index, action.incarnation));
  }

  // The tables are read before anyone is told to exit: they go with the processes.
  void Finish(double now) {
    if (now < next_finish_) return;
    if (!ledger_settled_) {
      if (!ledger_asked_.has_value()) ledger_asked_ = now;
      absl::StatusOr<LedgerSummary> ledger = parts_.read_ledger();
      if (ledger.ok()) {
        ledger_ = *ledger;
      } else {
        ledger_error_ = ledger.status();
        const double answered = parts_.clock.Now();
        if (AuditMayChange(ledger_error_) && answered < *ledger_asked_ + parts_.audit_patience) {
          next_finish_ = answered + kLedgerInterval;
          return;
        }
      }
      ledger_settled_ = true;
    }
    std::vector<Process> running = parts_.processes.List();
    std::erase_if(running, [](const Process& process) { return !process.running(); });
    parts_.finish(running);
    if (!finish_time_.has_value()) finish_time_ = now;
    next_finish_ = parts_.clock.Now() + kFinishInterval;
  }

  // Once the coordinator is gone nobody tells the workers that the job is over.
  void DismissWorkers(double now) {
    if (!finish_time_.has_value() || now < *finish_time_ + kFarewell) return;
    std::vector<Process> running = parts_.processes.List();
    std::erase_if(running, [](const Process& process) { return !process.running(); });
    const bool only_workers = std::all_of(running.begin(), running.end(),
                                          [](const Process& process) { return process.role == api::Role::kWorker; });
    if (only_workers) parts_.processes.StopAll(kStopGrace);
  }

  // Asks every process that is left to stop, and kills what does not: at once when the user asks again.
  absl::Status EndProcesses() {
    parts_.processes.StopAll(kStopGrace);
    const double limit = parts_.clock.Now() + kStopGrace + kKillLimit;
    while (true) {
      parts_.processes.Poll();
      parts_.recorder.AddProcesses(parts_.processes.List());
      Show();
      if (!parts_.processes.AnyRunning()) return absl::OkStatus();
      if (parts_.clock.Now() >= limit) return absl::DeadlineExceededError("some processes could not be killed");
      const double wait = parts_.processes.NextDeadline().value_or(kAskInterval);
      if (parts_.waiter.Wait(std::min(wait, kAskInterval), -1) > 0) parts_.processes.StopAll(0);
    }
  }

  void Show() {
    Snapshot snapshot =
        MakeSnapshot(start_time_, parts_.clock.Now(), job_.status, parts_.processes.List(), reply_, reply_time_);
    // Who was a member once does not start again because a new coordinator has not heard of it yet.
    for (ProcessView& process : snapshot.processes) {
      const auto member = std::make_pair(process.name, process.incarnation);
      if (process.state == "running") members_.insert(member);
      if (process.state == "starting" && members_.count(member) != 0) process.state = "running";
    }
    parts_.view.Show(snapshot, parts_.recorder.history());
  }

  api::TrainingJob job_;
  const std::string job_uid_;
  const double start_time_;
  const RunParts& parts_;

  std::optional<v1::ProgressReply> reply_;
  double reply_time_ = 0;
  planner::ToldOfPs told_;      // with the newest question
  planner::ToldOfPs answered_;  // with the question that `reply_` answers
  double next_ask_ = 0;
  bool bad_input_ = false;
  std::set<std::pair<std::string, int>> members_;  // name and incarnation of each process that was ready once

  std::optional<double> finish_time_;  // when they were told first
  double next_finish_ = 0;
  std::optional<double> ledger_asked_;  // when first
  bool ledger_settled_ = false;         // read, or given up
  std::optional<LedgerSummary> ledger_;
  absl::Status ledger_error_;
};

}  // namespace

RunOutcome RunJob(api::TrainingJob job, const std::string& job_uid, double start_time, const RunParts& parts) {
  return RunLoop(std::move(job), job_uid, start_time, parts).Run();
}

bool IsReady(const Process& process, const std::optional<v1::ProgressReply>& reply, double reply_time) {
  if (!process.running() || !reply.has_value() || reply_time < process.created_time) return false;
  return process.role == api::Role::kCoordinator ||
         job::IsMember(*reply, process.role, process.index, process.incarnation);
}

planner::Observed Observe(const std::vector<Process>& processes, const std::optional<v1::ProgressReply>& reply,
                          double reply_time) {
  planner::Observed observed;
  for (const Process& process : processes) {
    planner::Instance instance;
    instance.uid = process.uid;
    instance.role = process.role;
    instance.index = process.index;
    instance.incarnation = process.incarnation;
    instance.phase = process.running()        ? planner::InstancePhase::kRunning
                     : process.exit_code == 0 ? planner::InstancePhase::kSucceeded
                                              : planner::InstancePhase::kFailed;
    instance.terminating = process.running() && process.stop_requested;
    instance.ready = IsReady(process, reply, reply_time);
    instance.created_time = process.created_time;
    instance.started_time = process.created_time;
    instance.finished_time = process.finished_time;
    if (!process.running()) instance.exit_code = process.exit_code;
    if (instance.phase == planner::InstancePhase::kFailed) {
      instance.reason = "Error";
      instance.last_log_line = process.last_log_line;
    }
    observed.instances.push_back(std::move(instance));
  }
  if (reply.has_value()) observed.report = job::ToReport(*reply, reply_time);
  return observed;
}

Snapshot MakeSnapshot(double start_time, double now, const api::TrainingJobStatus& status,
                      const std::vector<Process>& processes, const std::optional<v1::ProgressReply>& reply,
                      double reply_time) {
  Snapshot snapshot;
  snapshot.seconds = now - start_time;
  snapshot.status = status;
  snapshot.progress = reply;
  if (reply.has_value()) snapshot.progress_age_seconds = now - reply_time;
  for (const Process& process : processes) {
    ProcessView view;
    view.name = process.name;
    view.role = process.role;
    view.index = process.index;
    view.incarnation = process.incarnation;
    view.pid = process.pid;
    view.state = !process.running()                    ? "ended"
                 : process.stop_requested              ? "stopping"
                 : IsReady(process, reply, reply_time) ? "running"
                                                       : "starting";
    view.restarts = process.incarnation - 1;
    view.log_path = process.log_path;
    snapshot.processes.push_back(std::move(view));
  }
  return snapshot;
}

std::optional<RunOutcome> FinalOutcome(const api::TrainingJobStatus& status) {
  if (planner::IsTrue(status, planner::kComplete)) return RunOutcome{kSucceeded, "", false, {}};
  if (!planner::IsTrue(status, planner::kFailed)) return std::nullopt;
  const api::Condition& failed = *planner::FindCondition(status, planner::kFailed);
  return RunOutcome{kFailed, failed.message.empty() ? failed.reason : failed.message, false, {}};
}

}  // namespace downpour::cli
