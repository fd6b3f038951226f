#ifndef DOWNPOUR_CLI_RENDER_COMPARISON_H_
#define DOWNPOUR_CLI_RENDER_COMPARISON_H_

#include <string>

#include "cli/run_comparison.h"

namespace downpour::cli {

// One self-contained page: the figures of the runs, what differs between their manifests, and each quantity against
// time, samples and bytes. Pure; everything from outside is escaped.
std::string RenderComparison(const Comparison& comparison);

// The figures of the runs as a table for a terminal.
std::string RenderComparisonText(const Comparison& comparison);

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_RENDER_COMPARISON_H_
