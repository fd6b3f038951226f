#ifndef DOWNPOUR_OPERATOR_PLANNER_TRAINING_COURSE_H_
#define DOWNPOUR_OPERATOR_PLANNER_TRAINING_COURSE_H_

#include "operator/planner/context.h"

namespace downpour::planner {

// Takes over what the coordinator says that evaluations have decided, and tells of an end before all epochs are done
// and of a learning rate that is reduced.
void UpdateTrainingCourse(Context& context);

}  // namespace downpour::planner

#endif  // DOWNPOUR_OPERATOR_PLANNER_TRAINING_COURSE_H_
