#ifndef DOWNPOUR_CLI_DRILL_DRILL_LOOP_H_
#define DOWNPOUR_CLI_DRILL_DRILL_LOOP_H_

#include <cstdint>
#include <functional>
#include <ostream>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/clock.h"
#include "cli/drill/drill.h"
#include "cli/drill/drill_report.h"

namespace downpour::cli {

// A job that can be broken: a run of this machine, or a job on a cluster. Every call returns within seconds.
class DrillTarget {
 public:
  virtual ~DrillTarget() = default;

  virtual absl::StatusOr<DrillLook> Look() = 0;
  // Kills, or stops, those that it means. kNotFound: all of them were gone already.
  virtual absl::Status Break(const DrillAttack& attack) = 0;
  // Lets those that were stopped go on.
  virtual void LetGoOn() = 0;
  // `over`: the last look said so.
  virtual absl::StatusOr<LedgerSummary> ReadLedger(bool over) = 0;
};

struct DrillParts {
  DrillTarget& target;
  const Clock& clock;
  std::function<bool(double seconds)> sleep;  // false, at once: the user asks to stop
  std::ostream& out;
  double look_interval = 0.1;   // seconds
  double silence_limit = 60;    // without a look: then the drill ends
  double ledger_patience = 30;  // for parameter servers that do not say what they applied
};

// Breaks, watches and reports until it is over. Nothing is stopped any more when it returns.
DrillVerdict RunDrill(const DrillOptions& options, std::uint64_t seed, const DrillParts& parts);

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_DRILL_DRILL_LOOP_H_
