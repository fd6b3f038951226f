#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "cli/render/format.h"
#include "cli/render/styled_line.h"
#include "cli/why/explanation.h"

namespace downpour::cli {
namespace {

constexpr std::size_t kMostHeadlineLines = 6;
constexpr std::size_t kFewestHeadlineLines = 3;
constexpr std::size_t kMostLinesOfOne = 3;

// How many lines of each section are shown so that all together take `room`, titles included: the longest lose first,
// the last of them at equal length; where even one line each is too much, the last sections go.
std::vector<std::size_t> Share(const std::vector<ExplanationSection>& sections, std::size_t room) {
  std::vector<std::size_t> shown;
  std::size_t total = 0;
  for (const ExplanationSection& section : sections) {
    shown.push_back(section.lines.size());
    total += section.lines.size() + 1;
  }
  while (total > room) {
    const auto longest = std::max_element(shown.rbegin(), shown.rend());
    if (*longest > 1) {
      --*longest;
      --total;
      continue;
    }
    const auto last = std::find_if(shown.rbegin(), shown.rend(), [](std::size_t count) { return count > 0; });
    if (last == shown.rend()) break;
    *last = 0;
    total -= 2;
  }
  return shown;
}

const char* StyleOf(Severity severity) {
  return severity == Severity::kAlarm ? kRed : severity == Severity::kAttention ? kYellow : kGreen;
}

}  // namespace

std::string ExplanationText(const Explanation& explanation, int columns, int most_lines, bool colour) {
  const auto width = static_cast<std::size_t>(std::max(columns, 10));
  const auto height = static_cast<std::size_t>(std::max(most_lines, 8));
  std::string text =
      Line(width, colour).Add(CleanText(explanation.subject), kBold).Add("  ").Add(CleanText(explanation.facts)).Take();
  std::size_t wanted = 0;
  for (const ExplanationSection& section : explanation.sections) wanted += section.lines.size() + 1;
  // The sections give way to the headline only in part.
  const std::size_t spare = height - std::min(height, wanted + 2);
  const std::size_t most = std::clamp(spare, kFewestHeadlineLines, kMostHeadlineLines);
  const std::vector<std::string> headline = WrapColumns(CleanText(explanation.headline), width, most);
  for (const std::string& line : headline) {
    text += Line(width, colour).Add(line, StyleOf(explanation.severity)).Take();
  }
  if (explanation.sections.empty()) return text;
  text += '\n';
  const std::vector<std::size_t> shown = Share(explanation.sections, height - 2 - headline.size());
  std::size_t spare_lines = height - 2 - headline.size();
  for (std::size_t i = 0; i < shown.size(); ++i) spare_lines -= shown[i] == 0 ? 0 : shown[i] + 1;
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const ExplanationSection& section = explanation.sections[i];
    if (shown[i] == 0) continue;
    Line title(width, colour);
    title.Add(CleanText(section.title), kBold);
    if (shown[i] < section.lines.size()) {
      title.Add(absl::StrCat(" (", shown[i], " of ", section.lines.size(), " shown)"), kDim);
    }
    text += title.Take();
    for (std::size_t line = 0; line < shown[i]; ++line) {
      // Long ones go on in the next line while there is room.
      const std::size_t most_of_it = std::min(spare_lines + 1, kMostLinesOfOne);
      const std::vector<std::string> parts = most_of_it == 1
                                                 ? std::vector{CleanText(section.lines[line])}
                                                 : WrapColumns(CleanText(section.lines[line]), width - 6, most_of_it);
      for (std::size_t part = 0; part < parts.size(); ++part) {
        text += Line(width, colour).Add(part == 0 ? "  " : "      ").Add(parts[part]).Take();
      }
      spare_lines -= std::max<std::size_t>(parts.size(), 1) - 1;
    }
  }
  return text;
}

}  // namespace downpour::cli
