#ifndef DOWNPOUR_OPERATOR_PLANNER_AVOID_NODES_H_
#define DOWNPOUR_OPERATOR_PLANNER_AVOID_NODES_H_

#include <string>
#include <vector>

#include "operator/planner/context.h"
#include "operator/planner/failure.h"

// Nodes on which pods of this job failed repeatedly are avoided for a while (scheduling.avoidNodes).
namespace downpour::planner {

// Counts a failure against its node if it may be the node's doing. Once there are afterFailures of them within the
// window of the failure policy, new pods keep away from the node for forSeconds after the newest.
void RecordNodeFault(Context& context, const Instance& instance, const Cause& cause);

// Takes back what has expired. Failures of this pass must not have been counted yet.
void ForgetNodeFaults(Context& context);

// In the order of their first fault.
std::vector<std::string> AvoidedNodes(const api::TrainingJobStatus& status);

}  // namespace downpour::planner

#endif  // DOWNPOUR_OPERATOR_PLANNER_AVOID_NODES_H_
