#ifndef DOWNPOUR_OPERATOR_PLANNER_PLACEMENT_H_
#define DOWNPOUR_OPERATOR_PLANNER_PLACEMENT_H_

#include "operator/planner/context.h"

// Which instances there should be: starts the missing ones, in the order coordinator, ps, workers, and stops those that
// should not be there.
namespace downpour::planner {

// At most one live instance of a role and index: a replacement starts only once the old one has ended, its failure is
// counted, and the back-off has passed. Each start takes an incarnation above all that the status gave out or that are
// seen. Workers beyond the wanted number are stopped; ps never are.
void Place(Context& context);

}  // namespace downpour::planner

#endif  // DOWNPOUR_OPERATOR_PLANNER_PLACEMENT_H_
