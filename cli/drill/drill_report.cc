#include "cli/drill/drill_report.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/audit.h"
#include "cli/render/format.h"
#include "cli/render/summary_text.h"

namespace downpour::cli {
namespace {

// Of no values: "-".
std::string Median(std::vector<double> values) {
  if (values.empty()) return "-";
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return FormatDuration(values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2);
}

std::string Most(const std::vector<double>& values) {
  return values.empty() ? "-" : FormatDuration(*std::max_element(values.begin(), values.end()));
}

std::vector<std::string> Row(const std::string& name, const std::vector<const DrillKill*>& kills) {
  std::vector<double> replaced;
  std::vector<double> trained;
  double stood_still = 0;
  int rollbacks = 0;
  std::uint64_t lost = 0;
  for (const DrillKill* kill : kills) {
    if (kill->replaced.has_value()) replaced.push_back(*kill->replaced);
    if (kill->trained.has_value()) trained.push_back(*kill->trained);
    stood_still = std::max(stood_still, kill->stood_still);
    rollbacks += kill->rollbacks;
    lost += kill->lost;
  }
  return {name,          absl::StrCat(kills.size()),  Median(replaced),        Most(replaced),    Median(trained),
          Most(trained), FormatDuration(stood_still), absl::StrCat(rollbacks), absl::StrCat(lost)};
}

std::string Table(const DrillState& state) {
  std::vector<std::vector<std::string>> rows = {{"KILLED", "TIMES", "REPLACED AFTER", "AT MOST", "TRAINED ON AFTER",
                                                 "AT MOST", "STOOD STILL", "ROLL-BACKS", "UPDATES LOST"}};
  std::vector<const DrillKill*> all;
  for (const DrillKind kind : {DrillKind::kCoordinator, DrillKind::kPs, DrillKind::kWorker, DrillKind::kNode}) {
    std::vector<const DrillKill*> kills;
    for (const DrillKill& kill : state.kills) {
      if (kill.attack.kind == kind) kills.push_back(&kill);
    }
    if (kills.empty()) continue;
    rows.push_back(Row(DrillKindName(kind), kills));
    all.insert(all.end(), kills.begin(), kills.end());
  }
  if (rows.size() > 2) rows.push_back(Row("all", all));
  return rows.size() == 1 ? "" : FormatTable(std::move(rows));
}

// Of these errors of the audit: those of silence, and those that say nothing about the tables.
bool SaysNothing(const absl::Status& status) { return absl::IsFailedPrecondition(status) || AuditMayPass(status); }

// What a ledger shows that must not be; empty: nothing. While a job trains it has not done all.
std::string LedgerFault(const DrillEnding& ending) {
  if (!ending.ledger.ok()) {
    return SaysNothing(ending.ledger.status()) ? "" : absl::StrCat("ledger: ", ending.ledger.status().message());
  }
  if (ending.ledger->duplicated > 0 || (ending.job_over && !LedgerExact(*ending.ledger))) {
    return absl::StrCat("ledger: ", LedgerVerdict(*ending.ledger));
  }
  return "";
}

std::string LedgerWord(const DrillEnding& ending) {
  if (std::string fault = LedgerFault(ending); !fault.empty()) return fault;
  if (ending.ledger.ok()) return "ledger exact";
  return absl::StrCat("ledger not read: ", ending.ledger.status().message());
}

std::string LedgerLine(const DrillEnding& ending) {
  if (!ending.ledger.ok()) return LedgerWord(ending);
  if (ending.job_over) return absl::StrCat("ledger: ", LedgerVerdict(*ending.ledger));
  const LedgerSummary& ledger = *ending.ledger;
  return absl::StrCat("ledger: ", ledger.expected - ledger.missing, " of ", ledger.expected, " updates are ",
                      WhereUpdatesAre(ledger), " so far, ", ledger.duplicated, " applied twice");
}

// The end of the job is told of a kill from which it had no time to recover.
bool LeftOver(const DrillState& state) { return !state.kills.empty() && !state.kills.back().recovered(); }

}  // namespace

DrillVerdict JudgeDrill(const DrillState& state, const DrillEnding& ending) {
  if (ending.failed || !LedgerFault(ending).empty()) return DrillVerdict::kFailed;
  if (ending.stopped) return DrillVerdict::kStopped;
  if (state.kills.empty() || LeftOver(state)) return DrillVerdict::kFailed;
  return ending.ledger.ok() ? DrillVerdict::kDone : DrillVerdict::kUnaudited;
}

std::string DrillReport(const DrillState& state, const DrillEnding& ending) {
  std::vector<std::string> words = {
      absl::StrCat("drill: ", state.kills.size(), state.kills.size() == 1 ? " kill" : " kills")};
  if (!ending.reason.empty()) words.push_back(ending.reason);
  if (ending.stopped) words.emplace_back("stopped by the user");
  if (LeftOver(state) && !ending.failed) words.push_back(absl::StrCat(state.kills.back().missing(), " until then"));
  words.push_back(LedgerWord(ending));
  return CleanLines(absl::StrCat(Table(state), LedgerLine(ending), "\n", absl::StrJoin(words, ", "), "\n"));
}

}  // namespace downpour::cli
