#include "operator/planner/conditions.h"

#include <algorithm>

namespace downpour::planner {

const api::Condition* FindCondition(const api::TrainingJobStatus& status, std::string_view type) {
  const auto found = std::find_if(status.conditions.begin(), status.conditions.end(),
                                  [type](const api::Condition& condition) { return condition.type == type; });
  return found == status.conditions.end() ? nullptr : &*found;
}

bool IsTrue(const api::TrainingJobStatus& status, std::string_view type) {
  const api::Condition* condition = FindCondition(status, type);
  return condition != nullptr && condition->status;
}

bool IsOver(const api::TrainingJobStatus& status) { return IsTrue(status, kComplete) || IsTrue(status, kFailed); }

bool IsSettled(const api::TrainingJobStatus& status) {
  return IsOver(status) || IsTrue(status, kSuccessCriteriaMet) || IsTrue(status, kFailureTarget);
}

}  // namespace downpour::planner
