#ifndef DOWNPOUR_OPERATOR_PLANNER_LEAVING_H_
#define DOWNPOUR_OPERATOR_PLANNER_LEAVING_H_

#include <vector>

#include "operator/planner/context.h"

// Which parameter servers are to hold nothing, and which of them do so. Where there are more than the job wants, those
// with the highest indices go; where there are standbys, those on nodes that are drained. The coordinator is told,
// moves what they hold, and says when it has; before that nobody ends them. Unknown is never nothing.
namespace downpour::planner {

// Whether this ps holds nothing, and gets nothing any more: so says the coordinator that runs, in an answer that is not
// old, to a question that told that the ps is to go.
bool HoldsNothing(const Context& context, int index);

// Follows status.leaving_parameter_servers, in a job with standbys, while the nodes are known. As many at a time as
// leave enough others for each slice and its standby, or all others; until the drain is over or another process has
// taken the place of the one that ran there.
void ChooseLeaving(Context& context);

// Those that leave and hold nothing: their eviction costs nothing.
std::vector<int> FreeParameterServers(const Context& context);
// So many others are there, or are wanted.
int CountProtected(const Context& context);

}  // namespace downpour::planner

#endif  // DOWNPOUR_OPERATOR_PLANNER_LEAVING_H_
