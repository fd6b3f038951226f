#ifndef DOWNPOUR_OPERATOR_PLANNER_REPLICATION_H_
#define DOWNPOUR_OPERATOR_PLANNER_REPLICATION_H_

#include <string>
#include <vector>

#include "operator/planner/context.h"

namespace downpour::planner {

// Of the ps with these indices those that do not run, or that the coordinator does not count as members: "ps-0, ps-2".
std::string MissingPs(const Context& context, const std::vector<int>& indices);

// Tells that standbys take over; `what` names what was lost: "ps-0 ended (killed by signal 9)". The job is not
// Protected from then on, until the coordinator says so again of the parameter servers that are there.
void ReportFailover(Context& context, const std::string& what);

// Takes over what the coordinator says of the slices, and follows Protected in a job that is to have standbys. Ready
// must be up to date.
void UpdateReplication(Context& context);

}  // namespace downpour::planner

#endif  // DOWNPOUR_OPERATOR_PLANNER_REPLICATION_H_
