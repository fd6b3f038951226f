#ifndef DOWNPOUR_OPERATOR_CONTROLLER_DISRUPTION_BUDGET_H_
#define DOWNPOUR_OPERATOR_CONTROLLER_DISRUPTION_BUDGET_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "operator/api/training_job.h"
#include "operator/controller/job_record.h"
#include "operator/controller/objects.h"
#include "operator/kube/client.h"

namespace downpour::controller {

// The PodDisruptionBudget of one job's parameter servers, which is there while they are protected. Nobody watches
// budgets, so that ours is there is believed for ten minutes. Not thread-safe.
class DisruptionBudget {
 public:
  static constexpr absl::Duration kRetry = absl::Minutes(1);  // after a Write that failed

  // Of a job in its first status, or of one that may have a budget.
  static DisruptionBudget OfNewJob();
  DisruptionBudget() = default;

  // When Write is due; absent: not at all, as things stand. A budget that is wanted is made once all members have
  // trained for `delay`, as until then there is little to lose; one that is for others is changed at once, and one that
  // is not wanted (absent) goes at once. `status`: the planned one.
  std::optional<double> Due(const api::TrainingJobStatus& status, const std::optional<planner::ProtectedPs>& wanted,
                            absl::Duration delay, double now);
  // Makes it, changes it or removes it. Waits for the server. If it cannot, the job trains on, and it is due again
  // after kRetry.
  absl::Status Write(const JobRecord& record, const std::optional<planner::ProtectedPs>& wanted, kube::Client& client,
                     double now);
  // Whether the newest Write failed: that is told once.
  bool failed_before() const { return held_until_ != 0; }

 private:
  absl::Status Make(const JobRecord& record, const planner::ProtectedPs& wanted, kube::Client& client);
  absl::Status Remove(const JobRecord& record, kube::Client& client);

  enum class Budget { kUnknown, kMissing, kThere };
  Budget budget_ = Budget::kUnknown;
  planner::ProtectedPs protected_;     // if it is there
  double seen_at_ = 0;                 // likewise
  std::optional<double> ready_since_;  // the first time that this process knows of
  double held_until_ = 0;              // after a refusal
};

}  // namespace downpour::controller

#endif  // DOWNPOUR_OPERATOR_CONTROLLER_DISRUPTION_BUDGET_H_
