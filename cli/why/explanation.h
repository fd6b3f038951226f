#ifndef DOWNPOUR_CLI_WHY_EXPLANATION_H_
#define DOWNPOUR_CLI_WHY_EXPLANATION_H_

#include <string>
#include <vector>

#include "cli/why/situation.h"

namespace downpour::cli {

enum class Severity { kFine, kAttention, kAlarm };

struct ExplanationSection {
  std::string title;
  std::vector<std::string> lines;  // the most important first
};

// Why a job is where it is, for people. Text from outside is not cleaned yet.
struct Explanation {
  Severity severity = Severity::kFine;
  std::string subject;
  std::string facts;                         // "Running, workers 2/3, ps 1/1, ..."
  std::string headline;                      // the reason, in whole sentences
  std::vector<ExplanationSection> sections;  // in the order of reading; none is empty
};

// Pure. `now` is on the clock of the situation's times.
Explanation Explain(const Situation& situation, double now);

// One word for where a member is: "running", "starting", "stopping", "ended", or why it waits: "Unschedulable".
std::string MemberState(const planner::Instance& instance);

// The explanation on one screen: at most `most_lines` lines (at least 8), each ended by '\n' and at most `columns` (at
// least 10) wide. Sections that are too long are cut and say so. Pure.
std::string ExplanationText(const Explanation& explanation, int columns, int most_lines, bool colour);

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_WHY_EXPLANATION_H_
