#include "operator/controller/disruption_budget.h"

#include <algorithm>

#include "operator/controller/objects.h"
#include "operator/controller/owned_objects.h"
#include "operator/planner/conditions.h"

namespace downpour::controller {
namespace {

constexpr double kRetrySeconds = 60;

}  // namespace

std::optional<double> DisruptionBudget::Due(const api::TrainingJobStatus& status, absl::Duration delay, double now) {
  if (made_ || !planner::IsTrue(status, planner::kReady)) return std::nullopt;
  // Members that come and go must not put it off again and again.
  if (!ready_since_.has_value()) {
    ready_since_ = std::min(now, planner::FindCondition(status, planner::kReady)->last_transition_time);
  }
  return std::max(*ready_since_ + absl::ToDoubleSeconds(delay), held_until_);
}

absl::Status DisruptionBudget::Make(const JobRecord& record, kube::Client& client, double now) {
  absl::Status made =
      CreateOwned(client, record, kube::kPodDisruptionBudgets, MakePodDisruptionBudget(record.job)).status();
  made_ = made.ok();
  if (!made_) held_until_ = now + kRetrySeconds;
  return made;
}

}  // namespace downpour::controller
