#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/clock.h"
#include "cli/commands.h"
#include "cli/grpc_life.h"
#include "cli/job_view.h"
#include "cli/render/live_view.h"
#include "cli/run_folder.h"
#include "cli/run_loop.h"
#include "cli/run_overview.h"
#include "cli/run_view.h"
#include "cli/why/explanation.h"
#include "operator/job/report.h"

namespace downpour::cli {
namespace {

constexpr int kMostColumns = 100;
constexpr int kMostLines = 23;  // of a terminal of 24, the prompt takes one

absl::StatusOr<Situation> LookAtRun(const std::string& root, double now) {
  const absl::StatusOr<RunOverview> overview = ReadRunOverview(root, now);
  if (!overview.ok()) return overview.status();
  absl::StatusOr<api::TrainingJob> job = ReadRunJob(root);
  if (!job.ok()) return job.status();
  Situation situation;
  situation.subject = absl::StrCat("run ", overview->name);
  situation.logs_command = absl::StrCat("downpour logs ", root);
  situation.job = *std::move(job);
  situation.created_time = now - overview->age_seconds;
  if (!overview->running) {
    situation.outcome = overview->phase;
    situation.outcome_message = overview->message;
    if (overview->phase == kLost) {
      situation.outcome_message = "the process that ran it is gone and left no result; a run cannot be resumed";
    }
  }
  const absl::StatusOr<RunState> state = ReadRunState(root);
  if (!state.ok()) {
    situation.gaps.emplace_back(state.status().message());
    return situation;
  }
  situation.job.status = state->status;
  std::optional<v1::ProgressReply> reply;
  if (overview->running && StartGrpc().ok()) {
    absl::StatusOr<v1::ProgressReply> answer = AskRun(root, state->job_uid);
    if (answer.ok()) {
      situation.coordinator_message = answer->message();
      reply = *std::move(answer);
      // What is stored may be older.
      if (reply->has_ring()) situation.job.status.ring = job::ToReport(*reply, now).ring;
    }
  }
  situation.instances = Observe(state->processes, reply, now).instances;
  return situation;
}

// What may not be read is said; it is no reason to say nothing.
template <typename T>
std::optional<T> Try(absl::StatusOr<T> read, const char* what, std::vector<std::string>* gaps) {
  if (read.ok()) return *std::move(read);
  gaps->push_back(absl::StrCat(what, ": ", read.status().message()));
  return std::nullopt;
}

absl::StatusOr<Situation> LookAtJob(const Target& target) {
  const absl::StatusOr<std::unique_ptr<Cluster>> cluster = OpenForJob(target);
  if (!cluster.ok()) return cluster.status();
  const absl::StatusOr<controller::JobRecord> record = (*cluster)->GetJob(target.name);
  if (!record.ok()) return record.status();
  std::vector<std::string> gaps;
  Situation situation = MakeJobSituation(*record, Try((*cluster)->ListPods(*record), "pods", &gaps));
  situation.events = Try((*cluster)->ListWarnings(*record), "events", &gaps).value_or(std::vector<SituationEvent>());
  situation.gaps.insert(situation.gaps.end(), gaps.begin(), gaps.end());
  return situation;
}

}  // namespace

int WhyCommand(const Target& target) {
  const SystemClock clock;
  absl::StatusOr<Situation> situation = absl::UnknownError("");
  if (target.cluster.given()) {
    situation = LookAtJob(target);
  } else {
    const absl::StatusOr<std::string> root = ChooseRun(target.name, /*running=*/false);
    situation = root.ok() ? LookAtRun(*root, clock.Now()) : root.status();
  }
  if (!situation.ok()) return Complain(situation.status());
  const std::optional<TerminalSize> size = ReadTerminalSize(STDOUT_FILENO);
  const int columns = size.has_value() ? std::min(size->columns, kMostColumns) : kMostColumns;
  const int lines = size.has_value() ? std::min(size->rows - 1, kMostLines) : kMostLines;
  std::cout << ExplanationText(Explain(*situation, clock.Now()), columns, lines, WantsColour(STDOUT_FILENO))
            << std::flush;
  return kExitDone;
}

}  // namespace downpour::cli
