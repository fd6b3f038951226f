#ifndef DOWNPOUR_CLI_RENDER_FOLD_EVENTS_H_
#define DOWNPOUR_CLI_RENDER_FOLD_EVENTS_H_

#include <span>
#include <vector>

#include "cli/run_history.h"

namespace downpour::cli {

// Makes one event of each run of consecutive events that are no warnings and have one reason: the last of them, whose
// message ends in "(N times)" where the run has N > 1 events. Warnings stay as they are, and so does the order.
std::vector<TimelineEvent> FoldEvents(std::span<const TimelineEvent> events);

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_RENDER_FOLD_EVENTS_H_
