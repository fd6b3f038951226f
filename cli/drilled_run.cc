#include "cli/drilled_run.h"

#include <signal.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/audit.h"
#include "cli/process_handle.h"
#include "cli/run_loop.h"
#include "cli/run_overview.h"
#include "operator/api/manifest.h"

namespace downpour::cli {
namespace {

DrillProgress ToProgress(const v1::ProgressReply& reply, double word) {
  DrillProgress progress;
  progress.word = word;
  progress.generation = reply.view().generation();
  progress.updates = reply.updates_applied();
  if (reply.has_restoration()) {
    progress.restored = reply.restoration().updates();
    if (reply.restoration().has_lost_updates()) progress.lost = reply.restoration().lost_updates();
  }
  return progress;
}

// When the coordinator last heard of this start; it counts it as a member.
double HeardOf(const Process& process, const v1::ProgressReply& reply, double reply_time) {
  const std::string role(api::ToString(process.role));
  for (const v1::MemberProgress& member : reply.members()) {
    if (member.role() == role && static_cast<int>(member.index()) == process.index) {
      return reply_time - static_cast<double>(member.silent_milliseconds()) / 1000;
    }
  }
  return reply_time;  // the coordinator itself
}

// What the audit at the end of the run came to. kNotFound: there was none.
absl::StatusOr<LedgerSummary> ReadEndedLedger(const std::string& file, const api::TrainingJobSpec& spec) {
  const absl::StatusOr<std::string> text = ReadFile(file);
  if (!text.ok()) return text.status();
  const nlohmann::json document = nlohmann::json::parse(*text, nullptr, false);
  if (!document.is_object() || !document.contains("ledger") || !document["ledger"].is_object()) {
    return absl::NotFoundError(absl::StrCat(file, ": has no ledger"));
  }
  const nlohmann::json& ledger = document["ledger"];
  LedgerSummary summary;
  summary.of_workers = LedgerRole(spec) == api::Role::kWorker;
  const std::pair<const char*, std::uint64_t*> fields[] = {{"expected", &summary.expected},
                                                           {"applied", &summary.applied},
                                                           {"missing", &summary.missing},
                                                           {"duplicated", &summary.duplicated},
                                                           {"skipped", &summary.skipped}};
  for (const auto& [name, value] : fields) {
    if (!ledger.contains(name) || !ledger[name].is_number_unsigned()) {
      return absl::InvalidArgumentError(absl::StrCat(file, ": ledger.", name, ": expected a number"));
    }
    *value = ledger[name].get<std::uint64_t>();
  }
  return summary;
}

}  // namespace

DrillLook MakeRunLook(const RunState& state, const std::optional<v1::ProgressReply>& reply, double reply_time,
                      const std::function<bool(const Process&)>& is_there) {
  DrillLook look;
  look.now = reply_time;
  look.training = reply.has_value() && reply->phase() == v1::PHASE_TRAINING;
  look.members.reserve(state.processes.size());
  for (const Process& process : state.processes) {
    DrillMember member;
    member.id = process.uid;
    member.role = process.role;
    member.index = process.index;
    member.alive = process.running() && !process.stop_requested && is_there(process);
    member.member = IsReady(process, reply, reply_time);
    if (member.member) member.heard = HeardOf(process, *reply, reply_time);
    look.members.push_back(std::move(member));
  }
  if (reply.has_value()) look.progress = ToProgress(*reply, reply_time);
  return look;
}

DrilledRun::DrilledRun(std::string root, bool pause, const Clock& clock)
    : root_(std::move(root)), pause_(pause), clock_(clock), last_act_([this] {
        if (const int stopped = stopped_.load(); stopped >= 0) static_cast<void>(SignalProcess(stopped, SIGCONT));
      }) {}

absl::StatusOr<DrillLook> DrilledRun::Look() {
  if (!RunIsHeld(root_)) {
    const absl::StatusOr<RunOverview> overview = ReadRunOverview(root_, clock_.Now());
    if (!overview.ok()) return overview.status();
    DrillLook look;
    look.now = clock_.Now();
    look.outcome = overview->phase;
    return look;
  }
  absl::StatusOr<RunState> state = ReadRunState(root_);
  if (!state.ok()) return state.status();
  state_ = *std::move(state);
  std::optional<v1::ProgressReply> reply;
  if (absl::StatusOr<v1::ProgressReply> answer = AskRun(root_, state_.job_uid); answer.ok()) reply = *std::move(answer);
  return MakeRunLook(state_, reply, clock_.Now(), [](const Process& process) {
    const std::optional<std::uint64_t> ticks = StartTicks(process.pid);
    return ticks.has_value() && (process.start_ticks == 0 || *ticks == process.start_ticks);
  });
}

absl::Status DrilledRun::Break(const DrillAttack& attack) {
  const std::string& id = attack.victims.front().id;
  const auto found = std::find_if(state_.processes.begin(), state_.processes.end(),
                                  [&id](const Process& process) { return process.uid == id; });
  if (found == state_.processes.end()) return absl::NotFoundError(absl::StrCat(id, " is gone"));
  if (found->start_ticks == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(RunPaths{root_}.Status(), ": does not say when process ", found->pid,
                     " began, so another may have its number: the run was started by an earlier version"));
  }
  absl::StatusOr<FileDescriptor> process = OpenProcess(found->pid, found->start_ticks);
  if (!process.ok()) return process.status();
  if (!pause_) return SignalProcess(process->get(), SIGKILL);
  stopped_.store(process->get());  // before it: a program that is ended by force in between lets it go on
  absl::Status status = SignalProcess(process->get(), SIGSTOP);
  static_cast<void>(process->Release());
  if (!status.ok()) LetGoOn();
  return status;
}

void DrilledRun::LetGoOn() {
  const int stopped = stopped_.load();
  if (stopped < 0) return;
  static_cast<void>(SignalProcess(stopped, SIGCONT));  // it may have been replaced meanwhile
  stopped_.store(-1);
  const FileDescriptor closed(stopped);
}

absl::StatusOr<LedgerSummary> DrilledRun::ReadLedger(bool over) {
  const RunPaths paths{root_};
  const absl::StatusOr<api::TrainingJob> job = ReadRunJob(root_);
  if (!job.ok()) return job.status();
  if (over) return ReadEndedLedger(paths.Summary(), job->spec);
  return AuditRun(paths, job->spec, state_.job_uid, state_.status, state_.processes, AuditMoment::kUnderWay);
}

}  // namespace downpour::cli
