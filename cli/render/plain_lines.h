#ifndef DOWNPOUR_CLI_RENDER_PLAIN_LINES_H_
#define DOWNPOUR_CLI_RENDER_PLAIN_LINES_H_

#include <string>
#include <vector>

#include "cli/run_history.h"

// What `downpour run` prints where there is no terminal.
namespace downpour::cli {

inline constexpr double kPlainProgressSeconds = 5;

struct PlainLinesResult {
  std::vector<std::string> lines;  // without '\n'; each begins with the time since the start of the run
  double last_progress_seconds = 0;
};

// The lines to print for the step from `previous` (null: none before) to `current`: changes of the job's phase, of what
// it waits for and of its processes, failures with their cause, finished epochs, evaluations, and a progress line when
// kPlainProgressSeconds have passed since `last_progress_seconds` (0 at first; hand back what the result says).
// Pure: time is Snapshot::seconds.
PlainLinesResult PlainLines(const Snapshot* previous, const Snapshot& current, double last_progress_seconds);

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_RENDER_PLAIN_LINES_H_
