#ifndef DOWNPOUR_OPERATOR_PLANNER_RING_H_
#define DOWNPOUR_OPERATOR_PLANNER_RING_H_

#include "operator/planner/context.h"

// Of jobs of the strategy AllReduce, whose workers hold the parameters.
namespace downpour::planner {

bool IsAllReduce(const api::TrainingJobSpec& spec);

// Whether the workers hold what was trained: some of them, or all but fewer than there are copies of each part of the
// optimizer's state. Of those that the coordinator counts as members, as far as that is known.
bool WorkersHoldAll(const Context& context);

// Takes over what the coordinator says of the ring, and follows RingFormed. Does nothing for a job of another strategy.
void UpdateRing(Context& context);

}  // namespace downpour::planner

#endif  // DOWNPOUR_OPERATOR_PLANNER_RING_H_
