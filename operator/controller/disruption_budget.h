#ifndef DOWNPOUR_OPERATOR_CONTROLLER_DISRUPTION_BUDGET_H_
#define DOWNPOUR_OPERATOR_CONTROLLER_DISRUPTION_BUDGET_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "operator/api/training_job.h"
#include "operator/controller/job_record.h"
#include "operator/kube/client.h"

namespace downpour::controller {

// The PodDisruptionBudget of one job's parameter servers. Not thread-safe.
class DisruptionBudget {
 public:
  // When to make it: once all members have trained for `delay`, as until then there is little to lose; absent: not at
  // all, or it is made.
  std::optional<double> Due(const api::TrainingJobStatus& status, absl::Duration delay, double now);
  // Makes it. Waits for the server. If it cannot, the job trains on without; it is due again later.
  absl::Status Make(const JobRecord& record, kube::Client& client, double now);
  // Whether Make never failed before: it is told once.
  bool failed_before() const { return held_until_ != 0; }

 private:
  bool made_ = false;
  std::optional<double> ready_since_;  // the first time that this process knows of
  double held_until_ = 0;              // after a refusal
};

}  // namespace downpour::controller

#endif  // DOWNPOUR_OPERATOR_CONTROLLER_DISRUPTION_BUDGET_H_
