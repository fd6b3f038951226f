#ifndef DOWNPOUR_CLI_RENDER_REPORT_H_
#define DOWNPOUR_CLI_RENDER_REPORT_H_

#include <string>

#include "cli/run_history.h"

namespace downpour::cli {

// report.html: one self-contained page (inline CSS and SVG, no scripts, nothing loaded) with the figures of the run,
// the ledger's verdict, curves of loss, accuracy and throughput, the timeline of the members with failures marked, the
// events and the manifest. Pure; everything from outside is escaped; an empty history gives a page that says so.
std::string RenderReport(const RunHistory& history);

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_RENDER_REPORT_H_
