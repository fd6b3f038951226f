#ifndef DOWNPOUR_OPERATOR_PLANNER_SUSPEND_H_
#define DOWNPOUR_OPERATOR_PLANNER_SUSPEND_H_

#include "operator/planner/context.h"

// Suspending a job, and restarting it as a whole: everything is stopped, and nothing starts again before all of it is
// gone, so that no process of the old run joins the new one. A suspension waits for a checkpoint where one can be made.
namespace downpour::planner {

// True while the job is suspended or about to be, or still stopping for a suspension or a restart: nothing else is to
// be planned.
bool Suspend(Context& context);

// Stops everything for good as far as failure counts are concerned: what is stopped here does not count as failed.
void StopAndAccount(Context& context, const std::string& reason);

}  // namespace downpour::planner

#endif  // DOWNPOUR_OPERATOR_PLANNER_SUSPEND_H_
