#include "operator/api/rfc3339.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/time/time.h"

namespace downpour::api {
namespace {

constexpr double kFirst = -62135596800.0;  // 0001-01-01T00:00:00Z
constexpr double kLast = 253402300799.0;   // 9999-12-31T23:59:59Z

std::string Format(const char* format, double whole, double fraction) {
  const absl::Time time =
      absl::FromUnixSeconds(static_cast<std::int64_t>(whole)) + absl::Microseconds(std::llround(fraction * 1e6));
  return absl::FormatTime(format, time, absl::UTCTimeZone());
}

double ToWritable(double seconds) { return std::isnan(seconds) ? 0 : std::clamp(seconds, kFirst, kLast); }

// 'd' in the pattern stands for a digit.
bool Take(std::string_view& text, std::string_view pattern) {
  if (text.size() < pattern.size()) return false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const bool fits =
        pattern[i] == 'd' ? absl::ascii_isdigit(static_cast<unsigned char>(text[i])) : text[i] == pattern[i];
    if (!fits) return false;
  }
  text.remove_prefix(pattern.size());
  return true;
}

// absl takes more than the format allows: other widths, blanks, names of infinite times, leap seconds.
bool HasTheShape(std::string_view text) {
  if (!Take(text, "dddd-dd-ddTdd:dd:dd")) return false;
  if (Take(text, ".")) {
    if (!Take(text, "d")) return false;
    while (Take(text, "d")) {
    }
  }
  if (!Take(text, "Z") && !Take(text, "+dd:dd") && !Take(text, "-dd:dd")) return false;
  return text.empty();
}

}  // namespace

std::string FormatTime(double seconds) { return Format("%E4Y-%m-%dT%H:%M:%SZ", std::floor(ToWritable(seconds)), 0); }

std::string FormatMicroTime(double seconds) {
  // The fraction is taken off first: seconds * 1e6 is not exact.
  const double writable = ToWritable(seconds);
  const double whole = std::floor(writable);
  return Format("%E4Y-%m-%dT%H:%M:%E6SZ", whole, writable - whole);
}

std::optional<double> ParseTime(std::string_view text) {
  absl::Time time;
  if (!HasTheShape(text) || text.substr(17, 2) == "60" ||
      !absl::ParseTime(absl::RFC3339_full, std::string(text), &time, nullptr)) {
    return std::nullopt;
  }
  const std::int64_t seconds = absl::ToUnixSeconds(time);
  return static_cast<double>(seconds) + absl::ToDoubleSeconds(time - absl::FromUnixSeconds(seconds));
}

}  // namespace downpour::api
