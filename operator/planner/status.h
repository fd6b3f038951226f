#ifndef DOWNPOUR_OPERATOR_PLANNER_STATUS_H_
#define DOWNPOUR_OPERATOR_PLANNER_STATUS_H_

#include <string>

#include "operator/planner/context.h"

// What the status says about the job: conditions that follow from what is seen, role counts, and the phase.
namespace downpour::planner {

// Whether there is evidence that the parameter servers, or the workers of all-reduce, hold parameters. An unreachable
// coordinator is no evidence against it.
bool TrainingHasBegun(const Context& context);

// The coordinator's answer if the one that runs now gave it, else nullptr.
const CoordinatorReport* CurrentReport(const Context& context);
// The same if it says that training goes on or is over.
const CoordinatorReport* TrainingReport(const Context& context);

// Runs, and was not asked to end.
bool IsWorking(const Instance* instance);
// Whether those work that hold the parameters: every ps that holds something, as far as that is known, else of those
// that are wanted; of all-reduce some worker.
bool HoldersWork(const Context& context);

// Sets ParametersLost; `what` names what was lost: "ps-0 ended (killed by signal 9)". It goes back to false when the
// coordinator reports training under a newer generation, and says then with what that began.
void ReportParametersLost(Context& context, const std::string& what);

// The last step of every pass: counts, Ready, Recovering, ParametersLost, checkpoints, phase and reason.
void UpdateStatus(Context& context);

}  // namespace downpour::planner

#endif  // DOWNPOUR_OPERATOR_PLANNER_STATUS_H_
