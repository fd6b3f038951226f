#include "cli/render/format.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace downpour::cli {
namespace {

constexpr const char* kLevels[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};

// Reads one code point at `position` and steps over it. False: not valid there; steps over one byte.
bool ReadCodePoint(std::string_view text, std::size_t* position, std::uint32_t* code) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(*position);
  const std::size_t length = lead < 0x80 ? 1 : lead >> 5 == 0x6 ? 2 : lead >> 4 == 0xe ? 3 : lead >> 3 == 0x1e ? 4 : 0;
  const std::size_t start = (*position)++;
  if (length == 0 || start + length > text.size()) return false;
  *code = length == 1 ? lead : lead & (0x7fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if (byte(start + i) >> 6 != 0x2) return false;
    *code = *code << 6 | (byte(start + i) & 0x3fu);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (*code < kLeast[length]) return false;
  *position = start + length;
  return true;
}

// Latin, Greek, Cyrillic, punctuation, arrows, mathematics and box drawing; what is doubtful is left out.
bool OneColumn(std::uint32_t code) {
  return (code >= 0x20 && code < 0x7f) || (code >= 0xa0 && code < 0x300 && code != 0xad) ||
         (code >= 0x384 && code < 0x483) || (code >= 0x2010 && code <= 0x2027) || (code >= 0x2190 && code <= 0x21ff) ||
         (code >= 0x2200 && code <= 0x22ff) || (code >= 0x2500 && code <= 0x259f);
}

bool IsControl(std::uint32_t code) { return code < 0x20 || (code >= 0x7f && code < 0xa0); }

template <class Keeps>
std::string Clean(std::string_view text, Keeps keeps) {
  std::string clean;
  clean.reserve(text.size());
  for (std::size_t position = 0; position < text.size();) {
    const std::size_t start = position;
    std::uint32_t code = 0;
    const bool valid = ReadCodePoint(text, &position, &code);
    if (valid && keeps(code)) {
      clean += text.substr(start, position - start);
    } else {
      clean += valid && IsControl(code) ? ' ' : '?';
    }
  }
  return clean;
}

}  // namespace

std::string FormatDecimal(double value, int digits) {
  return std::isfinite(value) ? absl::StrFormat("%.*f", digits, value) : "-";
}

double ParseDecimal(const std::string& text) {
  double value = 0;
  return absl::SimpleAtod(text, &value) ? value : std::numeric_limits<double>::quiet_NaN();
}

std::string FormatDuration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds >= 1e9) return "-";
  if (seconds < 9.995) return absl::StrFormat("%.2f s", seconds);
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 60) return absl::StrFormat("%d s", whole);
  if (whole < 3600) return absl::StrFormat("%d m %02d s", whole / 60, whole % 60);
  return absl::StrFormat("%d h %02d m", whole / 3600, whole % 3600 / 60);
}

std::string FormatAge(double seconds) {
  const auto whole = static_cast<long long>(std::max(0.0, std::floor(seconds)));
  if (whole < 60) return absl::StrCat(whole, "s");
  if (whole < 3600) return absl::StrCat(whole / 60, "m", whole % 60, "s");
  if (whole < 86400) return absl::StrCat(whole / 3600, "h", whole % 3600 / 60, "m");
  return absl::StrCat(whole / 86400, "d", whole % 86400 / 3600, "h");
}

std::string FormatCount(double count) {
  if (!std::isfinite(count)) return "-";
  const char* unit = "";
  for (const char* next : {"k", "M", "G", "T"}) {
    if (std::abs(count) < 999.5) break;
    count /= 1000;
    unit = next;
  }
  const double size = std::abs(count);
  const int digits = *unit == '\0'  ? (size < 9.95 && size != std::floor(size) ? 1 : 0)
                     : size < 9.995 ? 2
                                    : size < 99.95;
  return absl::StrCat(FormatDecimal(count, digits), unit);
}

std::string FormatBytes(std::uint64_t bytes) { return absl::StrCat(FormatCount(static_cast<double>(bytes)), "B"); }

std::string PhaseWord(v1::JobPhase phase) {
  switch (phase) {
    case v1::PHASE_STARTING:
      return "starting";
    case v1::PHASE_RECOVERING:
      return "recovering";
    case v1::PHASE_TRAINING:
      return "training";
    case v1::PHASE_FINISHING:
      return "finishing";
    case v1::PHASE_DONE:
      return "done";
    case v1::PHASE_FAILED:
      return "failed";
    default:
      return "unknown";
  }
}

std::string CleanText(std::string_view text) { return Clean(text, OneColumn); }

std::string CleanLines(std::string_view text) {
  return Clean(text, [](std::uint32_t code) { return code == '\n' || !IsControl(code); });
}

std::size_t Columns(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string FitColumns(std::string_view text, std::size_t columns) {
  if (Columns(text) <= columns) return std::string(text);
  if (columns == 0) return "";
  std::size_t end = 0;
  std::uint32_t code = 0;
  for (std::size_t i = 0; i + 1 < columns; ++i) ReadCodePoint(text, &end, &code);
  return absl::StrCat(std::string(text.substr(0, end)), "…");
}

std::vector<std::string> WrapColumns(std::string_view text, std::size_t columns, std::size_t most) {
  std::vector<std::string> lines;
  std::string line;
  while (!text.empty()) {
    const std::size_t space = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, space);
    text.remove_prefix(std::min(space + 1, text.size()));
    if (word.empty()) continue;
    if (!line.empty() && Columns(line) + 1 + Columns(word) > columns) {
      if (lines.size() + 1 >= most) {
        line += "…";
        break;
      }
      lines.push_back(std::move(line));
      line.clear();
    }
    absl::StrAppend(&line, line.empty() ? "" : " ", std::string(word));
  }
  if (!line.empty() && most > 0) lines.push_back(std::move(line));
  for (std::string& each : lines) each = FitColumns(each, columns);
  return lines;
}

std::string FormatTable(std::vector<std::vector<std::string>> rows) {
  std::vector<std::size_t> widths;
  for (std::vector<std::string>& row : rows) {
    widths.resize(row.size());
    for (std::size_t i = 0; i < row.size(); ++i) {
      row[i] = CleanText(row[i]);
      widths[i] = std::max(widths[i], Columns(row[i]));
    }
  }
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    for (std::size_t i = 0; i + 1 < row.size(); ++i) {
      absl::StrAppend(&text, row[i], std::string(widths[i] + 2 - Columns(row[i]), ' '));
    }
    absl::StrAppend(&text, row.back());
    absl::StripTrailingAsciiWhitespace(&text);
    text += '\n';
  }
  return text;
}

std::string Sparkline(std::span<const double> values, std::size_t columns) {
  std::vector<double> finite;
  std::copy_if(values.begin(), values.end(), std::back_inserter(finite), [](double v) { return std::isfinite(v); });
  if (finite.empty() || columns == 0) return "";
  const std::size_t buckets = std::min(columns, finite.size());
  std::vector<double> means;
  for (std::size_t i = 0; i < buckets; ++i) {
    const std::size_t begin = i * finite.size() / buckets;
    const std::size_t end = (i + 1) * finite.size() / buckets;
    double sum = 0;
    for (std::size_t j = begin; j < end; ++j) sum += finite[j] / static_cast<double>(end - begin);
    means.push_back(sum);
  }
  const auto [least, greatest] = std::minmax_element(means.begin(), means.end());
  const double range = *greatest - *least;
  std::string line;
  for (const double mean : means) {
    const double height = range > 0 && std::isfinite(range) ? (mean - *least) / range : 0;
    line += kLevels[static_cast<int>(std::lround(height * 7))];
  }
  return line;
}

std::string Bar(double fraction, std::size_t columns) {
  const double clamped = fraction >= 0 ? std::min(fraction, 1.0) : 0;  // also for what is not a number
  const auto eighths = static_cast<std::size_t>(clamped * static_cast<double>(columns) * 8);
  std::string bar;
  std::size_t filled = eighths / 8;
  for (std::size_t i = 0; i < filled; ++i) bar += "█";
  if (eighths % 8 != 0) {
    bar += kEighths[eighths % 8];
    ++filled;
  }
  for (std::size_t i = filled; i < columns; ++i) bar += "░";
  return bar;
}

}  // namespace downpour::cli
