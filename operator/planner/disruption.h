#ifndef DOWNPOUR_OPERATOR_PLANNER_DISRUPTION_H_
#define DOWNPOUR_OPERATOR_PLANNER_DISRUPTION_H_

#include "operator/planner/context.h"

// Whether voluntary disruptions, as a drain of a node, are kept away from the parameter servers. With Protect they are,
// but not for ever: a drain of a node that a ps runs on is told (DrainWaits), with what it would cost, and let through
// maxProtectSeconds later; with checkpoint.onDisruption, as soon as a checkpoint holds what it would cost. The ps are
// protected again once none runs on a node that is drained. Where there are standbys, what is on such a node goes
// elsewhere (leaving.h), and what holds nothing any more is not in the way.
namespace downpour::planner {

// Whether a drain waits for a checkpoint instead of as long as maxProtectSeconds.
bool SavesBeforeDrain(const api::TrainingJobSpec& spec);
// Until when a drain waits at the latest that waits since `since`. Of a job with parameter servers.
double DrainDeadline(const api::TrainingJobSpec& spec, double since);

// Follows DrainWaits; false: evictions are let through. While nobody knows of the nodes, what is stored holds, and its
// time runs on. For a job that is not over; the status must be up to date but for this.
bool ProtectParameterServers(Context& context);

}  // namespace downpour::planner

#endif  // DOWNPOUR_OPERATOR_PLANNER_DISRUPTION_H_
