#include "operator/controller/goodput.h"

#include <algorithm>
#include <utility>

#include "operator/planner/conditions.h"

namespace downpour::controller {

void Goodput::Look(const api::TrainingJobStatus& status, double now) {
  const double passed = std::max(0.0, now - std::exchange(looked_, now).value_or(now));
  const bool stands_still = status.phase == "Suspended" || planner::IsTrue(status, planner::kSuccessCriteriaMet) ||
                            planner::IsTrue(status, planner::kFailureTarget);
  if (!stands_still) {
    total_ += passed;
    if (status.phase == "Running") useful_ += passed;
  }
  const std::uint64_t step = status.progress.has_value() ? status.progress->step : 0;
  if (step < step_) useful_ *= static_cast<double>(step) / static_cast<double>(step_);
  step_ = step;
}

std::optional<double> Goodput::ratio() const {
  if (total_ <= 0) return std::nullopt;
  return useful_ / total_;
}

}  // namespace downpour::controller
