#ifndef DOWNPOUR_OPERATOR_PLANNER_ELASTIC_H_
#define DOWNPOUR_OPERATOR_PLANNER_ELASTIC_H_

#include "operator/planner/context.h"

// Elastic jobs shrink and grow by themselves. A worker that waits for a place (no node, no quota, no image) for
// shrinkAfterSeconds is given up: its pod is removed and its index is parked, as long as minReplicas others are wanted.
// All parked workers are tried again together, growCooldownSeconds after the newest was parked: only the scheduler
// knows how much room there is, an attempt costs one pod each, and growing back takes one cooldown however many there
// are. Nothing of this counts as a failure.
namespace downpour::planner {

// A parked worker is not to be started; what is left of it is stopped.
bool IsParked(const api::TrainingJobStatus& status, api::Role role, int index);
// Was parked, and is tried again.
bool IsRetried(const api::TrainingJobStatus& status, api::Role role, int index);
// Of the first `desired` indices.
int CountParked(const api::TrainingJobStatus& status, api::Role role, int desired);
// Parked, or being tried again: the job goes on without them.
int CountGivenUp(const api::TrainingJobStatus& status);

// Parks workers, tries them again, and welcomes back those that run. Failures must have been counted before.
void Resize(Context& context);

// A start of this worker that is not its first begins now: unless it runs in time, it is given up.
void NoteStart(Context& context, int index);

// Whoever waits for a place waits from now on.
void WaitAnew(Context& context);

// The job starts anew: with every worker.
void ForgetAbsences(Context& context);

}  // namespace downpour::planner

#endif  // DOWNPOUR_OPERATOR_PLANNER_ELASTIC_H_
