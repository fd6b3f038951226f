#ifndef DOWNPOUR_OPERATOR_PLANNER_UPDATE_MODE_H_
#define DOWNPOUR_OPERATOR_PLANNER_UPDATE_MODE_H_

#include <string>

#include "operator/planner/context.h"

namespace downpour::planner {

// Whether the parameter servers apply updates as spec.update says. Of a job that nobody has heard of yet: yes.
bool IsInWantedMode(const api::UpdateSpec& wanted, const api::TrainingJobStatus& status);

// Takes over what the coordinator says of the mode in force, and tells where it has changed. Ready must be up to date.
void UpdateModeInForce(Context& context);

}  // namespace downpour::planner

#endif  // DOWNPOUR_OPERATOR_PLANNER_UPDATE_MODE_H_
