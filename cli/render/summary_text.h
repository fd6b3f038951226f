#ifndef DOWNPOUR_CLI_RENDER_SUMMARY_TEXT_H_
#define DOWNPOUR_CLI_RENDER_SUMMARY_TEXT_H_

#include <string>

#include "cli/run_history.h"

namespace downpour::cli {

// "on every slice"; of a job without parameter servers "in every worker's model".
const char* WhereUpdatesAre(const LedgerSummary& ledger);

// The ledger in a sentence: "exact: each of 2350 updates is on every slice, once", or what is missing or duplicated.
std::string LedgerVerdict(const LedgerSummary& ledger);

// True if every expected update is on every slice exactly once.
bool LedgerExact(const LedgerSummary& ledger);

// The few lines for people that end a run, each ended by '\n'; `colour` adds ANSI colours. Pure.
std::string RenderSummaryText(const RunSummary& summary, bool colour);

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_RENDER_SUMMARY_TEXT_H_
