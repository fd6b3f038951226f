#include "cli/render/summary_text.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/render/format.h"
#include "cli/render/test_metrics.h"

namespace downpour::cli {

bool LedgerExact(const LedgerSummary& ledger) {
  return ledger.missing == 0 && ledger.duplicated == 0 && ledger.applied == ledger.expected;
}

const char* WhereUpdatesAre(const LedgerSummary& ledger) {
  return ledger.of_workers ? "in every worker's model" : "on every slice";
}

std::string LedgerVerdict(const LedgerSummary& ledger) {
  std::string verdict;
  if (LedgerExact(ledger)) {
    verdict = absl::StrCat("exact: each of ", ledger.expected, " updates is ", WhereUpdatesAre(ledger), ", once");
  } else {
    verdict = absl::StrCat(ledger.expected - ledger.missing, " of ", ledger.expected, " updates are ",
                           WhereUpdatesAre(ledger));
    if (ledger.missing > 0) absl::StrAppend(&verdict, ", ", ledger.missing, " missing");
    absl::StrAppend(&verdict, ", ", ledger.duplicated, " applied twice");
  }
  if (ledger.skipped > 0) absl::StrAppend(&verdict, " (", ledger.skipped, " skipped as not finite)");
  return verdict;
}

std::string RenderSummaryText(const RunSummary& summary, bool colour) {
  const bool succeeded = summary.phase == "Succeeded";
  const bool failed = summary.phase == "Failed";
  const auto paint = [&](const char* code, const std::string& text) {
    return colour ? absl::StrCat("\x1b[", code, "m", text, "\x1b[0m") : text;
  };
  std::string text;
  const auto row = [&](const char* name, const std::string& value) {
    absl::StrAppend(&text, "  ", name, std::string(12 - std::string_view(name).size(), ' '), value, "\n");
  };
  absl::StrAppend(&text,
                  paint(succeeded ? "1;32"
                        : failed  ? "1;31"
                                  : "1;33",
                        CleanText(summary.phase)),
                  "  ", CleanText(summary.job), " in ", FormatDuration(summary.total_seconds), "\n");
  if (!summary.message.empty()) row("why", CleanText(summary.message));
  std::vector<std::string> test;
  if (!summary.test_metrics.empty()) test.push_back(MetricsText(summary.test_metrics));
  if (summary.test_loss.has_value()) test.push_back("loss " + FormatDecimal(*summary.test_loss, 4));
  if (!test.empty()) row("test", absl::StrJoin(test, ", "));
  row("training",
      absl::StrCat(
          FormatDecimal(summary.epochs, summary.epochs == static_cast<int>(summary.epochs) ? 0 : 2),
          summary.epochs == 1 ? " epoch, " : " epochs, ",
          summary.samples_per_second.has_value() ? FormatCount(*summary.samples_per_second) : "-", " samples/s",
          summary.first_update_seconds > 0 ? ", first update after " + FormatDuration(summary.first_update_seconds)
                                           : ", no update"));
  if (!summary.rate_reason.empty()) row("rate", CleanText(summary.rate_reason));
  if (summary.best_epoch.has_value()) row("best", CleanText(summary.best_reason));
  if (summary.push_bytes_saved > 0) {
    const auto bytes = static_cast<double>(summary.push_bytes);
    const auto saved = static_cast<double>(summary.push_bytes_saved);
    row("gradients", absl::StrCat(FormatCount(bytes), " bytes pushed, ", FormatCount(saved), " saved by the codec (",
                                  FormatDecimal((bytes + saved) / std::max(1.0, bytes), 1), " times smaller)"));
  }
  if (!summary.resumed_from.empty()) row("resumed", CleanText(summary.resumed_from));
  if (summary.restarts > 0) row("restarts", absl::StrCat(summary.restarts));
  if (summary.lost_updates > 0) row("lost", absl::StrCat(summary.lost_updates, " updates, applied again"));
  if (summary.ledger.has_value()) {
    row("ledger", paint(LedgerExact(*summary.ledger) ? "32" : "31", LedgerVerdict(*summary.ledger)));
  } else {
    row("ledger", paint("33", "not read"));
  }
  if (!summary.checkpoint.empty()) {
    row("checkpoint", absl::StrCat(CleanText(summary.checkpoint), " (update ", summary.checkpoint_updates, ")"));
  }
  if (!summary.model_path.empty()) row("model", CleanText(summary.model_path));
  if (!summary.best_path.empty()) row("best model", CleanText(summary.best_path));
  if (!summary.run_directory.empty()) row("report", CleanText(summary.run_directory) + "/report.html");
  for (const std::string& warning : summary.warnings) {
    absl::StrAppend(&text, paint("1;33", absl::StrCat("Warning: ", CleanText(warning))), "\n");
  }
  if (succeeded && !summary.ledger.has_value()) {
    absl::StrAppend(&text, paint("1;31", absl::StrCat("Not audited: ", CleanText(summary.message))), "\n");
  }
  return text;
}

}  // namespace downpour::cli
