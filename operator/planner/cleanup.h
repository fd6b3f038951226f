#ifndef DOWNPOUR_OPERATOR_PLANNER_CLEANUP_H_
#define DOWNPOUR_OPERATOR_PLANNER_CLEANUP_H_

#include "operator/planner/context.h"

namespace downpour::planner {

// Of a job that is over: removes what is left of its instances as podCleanup says for its role, and the job itself when
// ttlSecondsAfterFinished have passed.
void CleanUp(Context& context);

}  // namespace downpour::planner

#endif  // DOWNPOUR_OPERATOR_PLANNER_CLEANUP_H_
