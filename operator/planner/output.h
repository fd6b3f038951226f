#ifndef DOWNPOUR_OPERATOR_PLANNER_OUTPUT_H_
#define DOWNPOUR_OPERATOR_PLANNER_OUTPUT_H_

#include "operator/planner/context.h"

// A model that is written where it goes with its pod: the condition OutputTemporary and a warning say so when the job
// begins, and the pod of the worker that wrote it stays for spec.output.keepSeconds after the end.
namespace downpour::planner {

// Of a job that begins.
void AnnounceOutput(Context& context);

// Whether the instance runs on although the job is over, or about to be, as it has the model.
bool KeepsModel(const Context& context, const Instance& instance);

// Of a job that succeeds now: until when its model is kept, and how to get at it.
void BeginToKeepModel(Context& context);

// Of a job that is over: wakes at the end of that time, and says when the model is gone.
void FollowKeptModel(Context& context);

}  // namespace downpour::planner

#endif  // DOWNPOUR_OPERATOR_PLANNER_OUTPUT_H_
