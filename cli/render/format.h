#ifndef DOWNPOUR_CLI_RENDER_FORMAT_H_
#define DOWNPOUR_CLI_RENDER_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "downpour/v1/control.pb.h"

// How the renderers write numbers and text. All pure.
namespace downpour::cli {

std::string FormatDuration(double seconds);     // "0.84 s", "42 s", "3 m 07 s", "2 h 05 m"; "-" unless finite
std::string FormatAge(double seconds);          // "12s", "3m5s", "2h10m", "4d3h"; whole seconds, at least 0
std::string FormatCount(double count);          // "950", "12.3k", "4.05M"; "-" unless finite
std::string FormatBytes(std::uint64_t bytes);   // "950B", "4.05MB"
std::string FormatDecimal(double, int digits);  // fixed; "-" unless finite
double ParseDecimal(const std::string& text);   // a number of a status, which is text; NaN unless it is one

// "training"; the job's phase in a lower-case word.
std::string PhaseWord(v1::JobPhase phase);

// Text from outside, made safe for a terminal: valid UTF-8 in which every code point takes one column. Control
// characters become spaces; invalid bytes and code points of no or two columns become '?'.
std::string CleanText(std::string_view text);

// Text from outside whose columns do not matter, made safe for a terminal: line ends stay, other control characters
// become spaces, and invalid bytes '?'.
std::string CleanLines(std::string_view text);

// The number of code points of valid UTF-8, hence of columns of clean text.
std::size_t Columns(std::string_view text);

// The first `columns` of it; cut text ends with an ellipsis.
std::string FitColumns(std::string_view text, std::size_t columns);

// The words of it in lines of at most `columns`, at most `most` of them; text that is cut ends with an ellipsis. A word
// that is longer than a line is cut.
std::vector<std::string> WrapColumns(std::string_view text, std::size_t columns, std::size_t most);

// Rows of as many cells each, made clean, in columns two spaces apart; each ends with a line end.
std::string FormatTable(std::vector<std::vector<std::string>> rows);

// `columns` block characters from the oldest to the newest value, scaled between their least and greatest; fewer where
// there are fewer finite values.
std::string Sparkline(std::span<const double> values, std::size_t columns);

// A bar of `columns` characters, filled to `fraction` (clamped to 0..1) in eighths.
std::string Bar(double fraction, std::size_t columns);

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_RENDER_FORMAT_H_
