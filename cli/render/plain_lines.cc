#include "cli/render/plain_lines.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/render/format.h"
#include "cli/render/test_metrics.h"
#include "operator/api/manifest.h"

namespace downpour::cli {
namespace {

constexpr double kSilentSeconds = 5;

// What the snapshot says of the job in a few words: the part whose change is worth a line.
std::string Describe(const Snapshot& snapshot) {
  std::string text = snapshot.status.phase.empty() ? "Pending" : CleanText(snapshot.status.phase);
  if (snapshot.progress.has_value()) {
    const std::string word = PhaseWord(snapshot.progress->phase());
    if (!absl::EqualsIgnoreCase(word, text)) absl::StrAppend(&text, ", ", word);
  }
  const std::string& why = snapshot.progress.has_value() && !snapshot.progress->message().empty()
                               ? snapshot.progress->message()
                               : snapshot.status.reason;
  if (!why.empty()) absl::StrAppend(&text, ": ", CleanText(why));
  return text;
}

std::string Rate(const v1::ProgressReply& progress) {
  return absl::StrCat("loss ", progress.has_loss() ? FormatDecimal(progress.loss(), 4) : "-", ", ",
                      progress.has_samples_per_second() ? FormatCount(progress.samples_per_second()) : "-",
                      " samples/s");
}

bool SameFailure(const api::FailureRecord& a, const api::FailureRecord& b) {
  return a.uid == b.uid && a.time == b.time && a.role == b.role && a.index == b.index;
}

const v1::Evaluation* FindEvaluation(const v1::ProgressReply& progress, std::uint32_t epoch) {
  for (const v1::Evaluation& evaluation : progress.evaluations()) {
    if (evaluation.dataset_epoch() == epoch) return &evaluation;
  }
  return nullptr;
}

std::string Measured(const v1::Evaluation& evaluation) {
  const std::string metrics = MetricsText(MetricsOf(evaluation));
  const std::string loss = FormatDecimal(evaluation.loss(), 4);
  if (metrics.empty()) return absl::StrCat("test loss ", loss);
  return absl::StrCat("test ", metrics, std::isfinite(evaluation.loss()) ? ", test loss " + loss : "");
}

class Writer {
 public:
  explicit Writer(double seconds) : prefix_(absl::StrFormat("[%8.2f s] ", seconds)) {}
  void Add(const std::string& line) { lines_.push_back(prefix_ + line); }
  std::vector<std::string> Take() { return std::move(lines_); }

 private:
  const std::string prefix_;
  std::vector<std::string> lines_;
};

void AddFailures(const Snapshot* previous, const Snapshot& current, Writer* writer) {
  for (const api::FailureRecord& failure : current.status.failures) {
    if (previous != nullptr && std::any_of(previous->status.failures.begin(), previous->status.failures.end(),
                                           [&](const api::FailureRecord& old) { return SameFailure(old, failure); })) {
      continue;
    }
    // The message says who ended and why; a record without one still has its cause.
    std::string line = CleanText(failure.message);
    if (line.empty()) {
      line = absl::StrCat(std::string(api::ToString(failure.role)), "-", failure.index,
                          " failed: ", CleanText(failure.cause));
      if (failure.exit_code.has_value()) absl::StrAppend(&line, " (exit code ", *failure.exit_code, ")");
    }
    if (!failure.action.empty()) absl::StrAppend(&line, "; action: ", CleanText(failure.action));
    writer->Add(line);
  }
}

// What a person must not miss, in whole sentences.
void AddConditions(const Snapshot* previous, const Snapshot& current, Writer* writer) {
  for (const api::Condition& condition : current.status.conditions) {
    if (condition.type != "ParametersLost" || !condition.status) continue;
    const auto said = [&](const api::Condition& old) {
      return old.type == condition.type && old.status && old.message == condition.message;
    };
    const bool known = previous != nullptr &&
                       std::any_of(previous->status.conditions.begin(), previous->status.conditions.end(), said);
    if (!known) writer->Add(CleanText(condition.message));
  }
}

void AddProcesses(const Snapshot* previous, const Snapshot& current, Writer* writer) {
  std::map<std::string, const ProcessView*> before;
  if (previous != nullptr) {
    for (const ProcessView& process : previous->processes) before.emplace(process.name, &process);
  }
  for (const ProcessView& process : current.processes) {
    const auto known = before.find(process.name);
    if (known != before.end() && known->second->incarnation == process.incarnation &&
        known->second->state == process.state) {
      continue;
    }
    std::string line = absl::StrCat(CleanText(process.name), " ", CleanText(process.state));
    if (process.pid > 0) absl::StrAppend(&line, ", pid ", process.pid);
    if (process.incarnation > 1) absl::StrAppend(&line, ", incarnation ", process.incarnation);
    writer->Add(line);
  }
}

void AddEpochs(const v1::ProgressReply* previous, const v1::ProgressReply& current, Writer* writer) {
  // A new generation begins again from the beginning: what it finishes is said again.
  const bool same = previous != nullptr && previous->view().generation() == current.view().generation();
  const std::uint32_t done_before = same ? previous->epochs_done() : 0;
  const auto name = [&](std::uint32_t epoch) { return absl::StrCat("epoch ", epoch, "/", current.epochs()); };
  // Nothing came before: what the run was found with is not news.
  const std::uint32_t first =
      previous == nullptr && current.epochs_done() > 0 ? current.epochs_done() : done_before + 1;
  for (std::uint32_t epoch = first; epoch <= current.epochs_done(); ++epoch) {
    std::string line = absl::StrCat(name(epoch), " done: ", Rate(current));
    if (const v1::Evaluation* evaluation = FindEvaluation(current, epoch)) {
      absl::StrAppend(&line, ", ", Measured(*evaluation));
    }
    writer->Add(line);
  }
  for (const v1::Evaluation& evaluation : current.evaluations()) {
    if (evaluation.dataset_epoch() == 0) {  // of which epoch is not known
      const v1::Evaluation* before = previous == nullptr ? nullptr : FindEvaluation(*previous, 0);
      if (before == nullptr || Measured(*before) != Measured(evaluation)) {
        writer->Add(absl::StrCat("evaluated: ", Measured(evaluation)));
      }
      continue;
    }
    if (same && FindEvaluation(*previous, evaluation.dataset_epoch()) != nullptr) continue;
    if (evaluation.dataset_epoch() >= first && evaluation.dataset_epoch() <= current.epochs_done()) continue;
    writer->Add(absl::StrCat(name(evaluation.dataset_epoch()), " evaluated: ", Measured(evaluation)));
  }
}

// What evaluations have decided, where it is news. Which model is the best is seen by the evaluations.
void AddCourse(const v1::ProgressReply* previous, const v1::ProgressReply& current, Writer* writer) {
  const auto add = [&](const std::string& before, const std::string& now) {
    if (!now.empty() && (previous == nullptr || before != now)) writer->Add(CleanText(now));
  };
  add(previous == nullptr ? "" : previous->rate_reason(), current.rate_reason());
  add(previous == nullptr ? "" : previous->stop_reason(), current.stop_reason());
}

std::string ProgressLine(const v1::ProgressReply& progress) {
  std::string line;
  if (progress.updates_expected() > 0) {
    const double fraction =
        static_cast<double>(progress.updates_applied()) / static_cast<double>(progress.updates_expected());
    absl::StrAppend(&line, absl::StrFormat("%.1f%%, ", 100 * fraction), progress.updates_applied(), "/",
                    progress.updates_expected(), " updates, ");
  }
  return absl::StrCat(line, Rate(progress));
}

}  // namespace

PlainLinesResult PlainLines(const Snapshot* previous, const Snapshot& current, double last_progress_seconds) {
  Writer writer(current.seconds);
  AddFailures(previous, current, &writer);
  AddConditions(previous, current, &writer);
  AddProcesses(previous, current, &writer);
  if (previous == nullptr || Describe(*previous) != Describe(current)) writer.Add(Describe(current));
  const bool silent = current.progress.has_value() && current.progress_age_seconds > kSilentSeconds;
  const bool was_silent =
      previous != nullptr && previous->progress.has_value() && previous->progress_age_seconds > kSilentSeconds;
  if (silent && !was_silent) {
    writer.Add(absl::StrCat("no answer from the coordinator for ", FormatDuration(current.progress_age_seconds)));
  }
  if (was_silent && !silent) writer.Add("the coordinator answers again");

  PlainLinesResult result;
  result.last_progress_seconds = last_progress_seconds;
  if (current.progress.has_value()) {
    const bool had = previous != nullptr && previous->progress.has_value();
    AddEpochs(had ? &*previous->progress : nullptr, *current.progress, &writer);
    AddCourse(had ? &*previous->progress : nullptr, *current.progress, &writer);
    if (!silent && current.progress->phase() == v1::PHASE_TRAINING &&
        current.seconds - last_progress_seconds >= kPlainProgressSeconds) {
      writer.Add(ProgressLine(*current.progress));
      result.last_progress_seconds = current.seconds;
    }
  }
  result.lines = writer.Take();
  return result;
}

}  // namespace downpour::cli
