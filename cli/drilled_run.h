#ifndef DOWNPOUR_CLI_DRILLED_RUN_H_
#define DOWNPOUR_CLI_DRILLED_RUN_H_

#include <atomic>
#include <functional>
#include <optional>
#include <string>

#include "cli/clock.h"
#include "cli/drill/drill_loop.h"
#include "cli/run_folder.h"
#include "cli/wake.h"
#include "downpour/v1/control.pb.h"

namespace downpour::cli {

// How a run of this machine looks to a drill. `reply` is what its coordinator answered at `reply_time`; absent:
// nothing. `is_there`: the process of this state runs, and is the one that was started. Pure but for that.
DrillLook MakeRunLook(const RunState& state, const std::optional<v1::ProgressReply>& reply, double reply_time,
                      const std::function<bool(const Process&)>& is_there);

// A run of this machine: its folder, its coordinator and its processes. What is stopped goes on when this goes, even if
// the program is ended by force.
class DrilledRun final : public DrillTarget {
 public:
  // With `pause` processes are stopped rather than killed. `clock` must outlive this.
  DrilledRun(std::string root, bool pause, const Clock& clock);
  ~DrilledRun() override { LetGoOn(); }

  absl::StatusOr<DrillLook> Look() override;
  // kFailedPrecondition: the folder does not say when the process began.
  absl::Status Break(const DrillAttack& attack) override;
  void LetGoOn() override;
  absl::StatusOr<LedgerSummary> ReadLedger(bool over) override;

 private:
  const std::string root_;
  const bool pause_;
  const Clock& clock_;
  RunState state_;                // as of the last look
  std::atomic<int> stopped_{-1};  // a pidfd
  const LastAct last_act_;
};

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_DRILLED_RUN_H_
