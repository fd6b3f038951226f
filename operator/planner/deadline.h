#ifndef DOWNPOUR_OPERATOR_PLANNER_DEADLINE_H_
#define DOWNPOUR_OPERATOR_PLANNER_DEADLINE_H_

#include "operator/planner/context.h"

// Deadlines, all computed from the status and from what is seen, so that they outlive the planner's process.
namespace downpour::planner {

// Fails the job once activeDeadlineSeconds have passed since its start; suspending stops this clock and resets it.
void CheckActiveDeadline(Context& context);

// Follows updatesApplied and fails the job, cause Hang, where it stands still for progressDeadlineSeconds. Time runs on
// while the coordinator does not answer: silence is neither progress nor, by itself, a failure, and before its next
// answer is due nothing is decided. Progress is stored at most every tenth of the deadline or 10 s, so a hang is found
// up to twice that late, never early.
void CheckProgressDeadline(Context& context);

// Stops instances that are pending for longer than pendingTimeoutSeconds (0: off) and records the failure, cause
// PendingTimeout.
void CheckPendingTimeouts(Context& context);

}  // namespace downpour::planner

#endif  // DOWNPOUR_OPERATOR_PLANNER_DEADLINE_H_
