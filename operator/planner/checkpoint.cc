#include "operator/planner/checkpoint.h"

#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "operator/api/rfc3339.h"
#include "operator/planner/status.h"

namespace downpour::planner {
namespace {

constexpr int kRequestSeconds = 60;  // without onDisruption

// What tells one restoration from another.
std::string ResumedFrom(const Restoration& restoration) {
  return absl::StrCat("resumed from ", restoration.checkpoint, " at update ", restoration.updates);
}

// What the coordinator that runs says of its store.
const CheckpointReport* Report(const Context& context) {
  const CoordinatorReport* report = CurrentReport(context);
  return report != nullptr && report->checkpoint.has_value() ? &*report->checkpoint : nullptr;
}

void UpdateFailing(Context& context, const CheckpointReport& report) {
  if (report.error.empty()) {
    // A coordinator that is new has not tried yet.
    if (report.written > 0) context.ClearCondition(kCheckpointFailing, "Written", "the newest checkpoint was written");
    return;
  }
  const std::string newest = NewestCheckpoint(context);
  const std::string message = absl::StrCat("the newest checkpoint could not be made: ", report.error,
                                           newest.empty() ? "; there is none yet, so a loss costs all progress"
                                                          : absl::StrCat("; training can go back to ", newest));
  if (!IsTrue(context.status, kCheckpointFailing)) context.Emit(true, kCheckpointFailing, message);
  context.SetCondition(kCheckpointFailing, true, "WriteFailed", message);
}

void UpdateResumed(Context& context) {
  const CoordinatorReport* report = TrainingReport(context);
  if (report == nullptr || !report->restoration.has_value() || IsTrue(context.status, kParametersLost)) return;
  const std::string from = ResumedFrom(*report->restoration);
  const api::Condition* told = FindCondition(context.status, kResumed);
  if (told != nullptr && told->status && told->message.compare(0, from.size(), from) == 0) return;
  context.Emit(false, kResumed,
               absl::StrCat(from, report->updates_expected > 0 ? absl::StrCat(" of ", report->updates_expected) : "",
                            SkippedText(*report->restoration)));
  NoteResumed(context, *report->restoration, "FromCheckpoint");
}

}  // namespace

void AnnounceCheckpoints(Context& context) {
  const std::string& templates = context.observed.temporary_checkpoints;
  if (templates.empty()) {
    context.ClearCondition(kCheckpointTemporary, "Kept", "checkpoints outlive the pods");
    return;
  }
  const std::string message = absl::StrCat(
      "checkpoints go to ", context.job.spec.checkpoint->uri,
      ", which is in no volume that outlives its pod: they go with it. To keep them, mount one volume there "
      "in ",
      templates, ", or let them go to s3://BUCKET/PREFIX");
  if (!IsTrue(context.status, kCheckpointTemporary)) context.Emit(true, kCheckpointTemporary, message);
  context.SetCondition(kCheckpointTemporary, true, "NoVolume", message);
}

void UpdateCheckpoint(Context& context) {
  if (const CheckpointReport* report = Report(context)) {
    std::optional<api::CheckpointStatus>& known = context.status.checkpoint;
    if (!known.has_value() && (!report->newest.empty() || report->failed > 0)) known.emplace();
    if (known.has_value()) {
      // What a coordinator has not looked for yet may be there all the same. Its age is told with each answer, and
      // means the same time each time.
      if (!report->newest.empty() && known->newest != report->newest) {
        known->newest = report->newest;
        known->updates = report->updates;
        known->time = report->time;
      }
      known->failures = report->failed;
      known->error = report->error;
    }
    UpdateFailing(context, *report);
  }
  UpdateResumed(context);
  // Nothing waits for one any more.
  if (IsSettled(context.status) || context.observed.deletion_requested) context.status.checkpoint_request.reset();
}

std::string NewestCheckpoint(const Context& context) {
  const std::optional<api::CheckpointStatus>& known = context.status.checkpoint;
  if (!known.has_value() || known->newest.empty()) return "";
  return absl::StrCat("the newest checkpoint, ", known->newest, " (update ", known->updates,
                      known->time.has_value() ? absl::StrCat(", of ", api::FormatTime(std::round(*known->time))) : "",
                      ")");
}

void NoteResumed(Context& context, const Restoration& restoration, std::string reason) {
  context.SetCondition(kResumed, true, std::move(reason),
                       absl::StrCat(ResumedFrom(restoration), SkippedText(restoration)));
}

std::string SkippedText(const Restoration& restoration) {
  if (restoration.skipped.empty()) return "";
  return absl::StrCat("; newer ones were not used: ", absl::StrJoin(restoration.skipped, "; "));
}

RequestOutcome WantCheckpoint(Context& context, std::string_view kind, const std::string& name) {
  std::optional<api::CheckpointRequestStatus>& wanted = context.status.checkpoint_request;
  if (!IsWanted(context.status, kind)) wanted = {name, context.now};
  const CheckpointReport* report = Report(context);
  if (report != nullptr && report->request == wanted->name) {
    if (report->request_state == RequestState::kDone) return RequestOutcome::kMade;
    if (report->request_state == RequestState::kFailed) return RequestOutcome::kNotMade;
  }
  const double deadline = wanted->since + RequestSeconds(*context.job.spec.checkpoint);
  if (context.now >= deadline) return RequestOutcome::kLate;
  context.WakeAt(deadline);
  return RequestOutcome::kPending;
}

void UnwantCheckpoint(Context& context, std::string_view kind) {
  if (IsWanted(context.status, kind)) context.status.checkpoint_request.reset();
}

bool IsWanted(const api::TrainingJobStatus& status, std::string_view kind) {
  return status.checkpoint_request.has_value() && status.checkpoint_request->name.compare(0, kind.size(), kind) == 0;
}

int RequestSeconds(const api::CheckpointSpec& spec) {
  return spec.on_disruption.has_value() ? spec.on_disruption->timeout_seconds : kRequestSeconds;
}

std::string WhyNotMade(const Context& context, RequestOutcome outcome) {
  if (outcome == RequestOutcome::kLate) {
    return absl::StrCat("the checkpoint was not made within ", RequestSeconds(*context.job.spec.checkpoint), " s");
  }
  const CheckpointReport* report = Report(context);
  const std::string why =
      report == nullptr || report->error.empty() ? "the coordinator does not say why" : report->error;
  return absl::StrCat("the checkpoint failed: ", why);
}

}  // namespace downpour::planner
