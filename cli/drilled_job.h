#ifndef DOWNPOUR_CLI_DRILLED_JOB_H_
#define DOWNPOUR_CLI_DRILLED_JOB_H_

#include <optional>
#include <string>
#include <vector>

#include "cli/clock.h"
#include "cli/cluster.h"
#include "cli/drill/drill_loop.h"

namespace downpour::cli {

// How a job on a cluster looks to a drill, from one look to the next. The status says how many updates were lost, but
// not in which generation: that is counted here. Not thread-safe.
class JobWatch {
 public:
  DrillLook MakeLook(const controller::JobRecord& record, const std::vector<controller::Pod>& pods, double now);

 private:
  std::uint64_t generation_ = 1;
  std::optional<double> known_loss_;  // when the recovery began that lost something, if that was there before
  std::optional<double> word_;        // of the progress, at the last look
  std::optional<double> stale_word_;  // of a progress from before the loss
  bool first_ = true;
};

// A job on a cluster: its status and its pods.
class DrilledJob final : public DrillTarget {
 public:
  // `addresses`: host:port of each ps, or of workers of a job that has none; none: those of the pods. What is given
  // must outlive this.
  DrilledJob(Cluster& cluster, std::string name, std::vector<std::string> addresses, const Clock& clock)
      : cluster_(cluster), name_(std::move(name)), addresses_(std::move(addresses)), clock_(clock) {}

  absl::StatusOr<DrillLook> Look() override;
  absl::Status Break(const DrillAttack& attack) override;
  void LetGoOn() override {}  // nothing is stopped here
  absl::StatusOr<LedgerSummary> ReadLedger(bool over) override;

 private:
  Cluster& cluster_;
  const std::string name_;
  const std::vector<std::string> addresses_;
  const Clock& clock_;
  JobWatch watch_;
  std::optional<controller::JobRecord> record_;  // as of the last look
  std::vector<controller::Pod> pods_;
};

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_DRILLED_JOB_H_
