#include "operator/planner/success.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "operator/planner/output.h"

namespace downpour::planner {
namespace {

// From SuccessCriteriaMet until processes that have not ended by themselves are stopped.
constexpr double kFinishGraceSeconds = 30;

constexpr char kFinishedReason[] = "TrainingFinished";
constexpr char kFinishedMessage[] = "training is finished and the model is stored";

std::string LatePart() { return absl::StrCat("; ", kFinishGraceSeconds, " s later these have not ended: "); }

// With how it came to its end, if that was a question; the coordinator may be gone meanwhile.
std::string FinishedMessage(const Context& context) {
  const std::string& message = FindCondition(context.status, kSuccessCriteriaMet)->message;
  return message.substr(0, message.find(LatePart()));
}

}  // namespace

void DetectOutcome(Context& context) {
  const CoordinatorReport* report = context.report();
  if (report == nullptr) return;
  if (report->phase == CoordinatorPhase::kDone) {
    for (const std::string& warning : report->warnings) context.Emit(true, "TrainingIncomplete", warning);
    context.status.output = report->model;
    context.SetCondition(kSuccessCriteriaMet, true, kFinishedReason,
                         absl::StrCat(kFinishedMessage, report->outcome.empty() ? "" : "; ", report->outcome));
    context.WakeAt(context.now);
  } else if (report->phase == CoordinatorPhase::kFailed) {
    context.FailJob(report->failure_reason.empty() ? "TrainingFailed" : report->failure_reason,
                    report->message.empty() ? "the coordinator reports failure" : report->message);
  }
}

void Finish(Context& context) {
  std::vector<Instance> live;  // but for the one that stays
  std::copy_if(context.observed.instances.begin(), context.observed.instances.end(), std::back_inserter(live),
               [&context](const Instance& instance) { return IsLive(instance) && !KeepsModel(context, instance); });
  const std::string finished = FinishedMessage(context);
  if (live.empty()) {
    const std::string outcome = finished.substr(std::min(finished.size(), sizeof(kFinishedMessage) - 1));
    context.SetCondition(kSuccessCriteriaMet, true, kFinishedReason, finished);
    context.SetCondition(kComplete, true, kFinishedReason,
                         absl::StrCat("training is finished and every process has ended", outcome));
    context.status.completion_time = context.now;
    context.Emit(false, "JobSucceeded", absl::StrCat("training is finished", outcome));
    BeginToKeepModel(context);
    return;
  }
  const double deadline =
      FindCondition(context.status, kSuccessCriteriaMet)->last_transition_time + kFinishGraceSeconds;
  const bool late = context.now >= deadline;
  if (!late) {
    context.WakeAt(deadline);
  } else {
    context.SetCondition(kSuccessCriteriaMet, true, kFinishedReason,
                         absl::StrCat(finished, LatePart(), WhatIsLive(live)));
  }
  bool tell = false;
  for (const Instance& instance : live) {
    if (late || instance.terminating) {
      context.Stop(instance, absl::StrCat("has not ended ", kFinishGraceSeconds, " s after the end of training"));
    } else if (instance.role != api::Role::kWorker) {
      tell = true;
    }
  }
  if (!tell) return;
  Action finish;
  finish.type = ActionType::kFinish;
  finish.role = api::Role::kCoordinator;
  finish.reason = "the outcome is stored";
  context.actions.push_back(finish);
}

void Abort(Context& context) {
  const api::Condition target = *FindCondition(context.status, kFailureTarget);
  if (context.AnyLive()) {
    context.StopAll(target.message);
    return;
  }
  context.SetCondition(kFailed, true, target.reason, target.message);
  context.status.completion_time = context.now;
  context.Emit(true, "JobFailed", target.message);
}

}  // namespace downpour::planner
