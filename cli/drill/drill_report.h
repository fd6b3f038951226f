#ifndef DOWNPOUR_CLI_DRILL_DRILL_REPORT_H_
#define DOWNPOUR_CLI_DRILL_DRILL_REPORT_H_

#include <string>

#include "absl/status/statusor.h"
#include "cli/drill/drill.h"
#include "cli/run_history.h"

namespace downpour::cli {

// How a drill came to its end.
struct DrillEnding {
  std::string reason;    // why before its time; empty: it did not
  bool failed = false;   // for that reason
  bool stopped = false;  // by the user
  bool job_over = false;
  absl::StatusOr<LedgerSummary> ledger = absl::UnknownError("not asked");
};

// kUnaudited: nothing is wrong, but the ledger could not be read.
enum class DrillVerdict { kDone, kFailed, kUnaudited, kStopped };

// Pure. A drill without a kill has shown nothing: it failed.
DrillVerdict JudgeDrill(const DrillState& state, const DrillEnding& ending);

// A table of the kills, the ledger, and last "drill: 3 kills, ledger exact" or what was wrong. Pure.
std::string DrillReport(const DrillState& state, const DrillEnding& ending);

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_DRILL_DRILL_REPORT_H_
