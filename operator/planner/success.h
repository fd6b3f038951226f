#ifndef DOWNPOUR_OPERATOR_PLANNER_SUCCESS_H_
#define DOWNPOUR_OPERATOR_PLANNER_SUCCESS_H_

#include "operator/planner/context.h"

// How a job ends. The outcome is stored first (SuccessCriteriaMet, FailureTarget); Complete and Failed come once
// nothing of the job runs any more. Nothing is started in between, and ends of processes are no failures.
namespace downpour::planner {

// Reads the outcome from the coordinator's report: Done sets SuccessCriteriaMet, Failed sets FailureTarget.
void DetectOutcome(Context& context);

// For a job whose stored status says SuccessCriteriaMet: tells coordinator and ps to exit, stops what has not ended 30
// s later, and completes the job.
void Finish(Context& context);

// For a job whose stored status says FailureTarget: stops everything, then the job has failed.
void Abort(Context& context);

}  // namespace downpour::planner

#endif  // DOWNPOUR_OPERATOR_PLANNER_SUCCESS_H_
