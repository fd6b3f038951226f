#ifndef DOWNPOUR_OPERATOR_API_RFC3339_H_
#define DOWNPOUR_OPERATOR_API_RFC3339_H_

#include <optional>
#include <string>
#include <string_view>

// Times as the Kubernetes API writes them; here they are seconds since 1970. What lies outside the years 1 to 9999 is
// written as the nearest time that does not.
namespace downpour::api {

// Time: whole seconds, rounded down. "2026-01-02T03:04:05Z".
std::string FormatTime(double seconds);
// MicroTime: rounded to the microsecond. "2026-01-02T03:04:05.123456Z".
std::string FormatMicroTime(double seconds);
// With any fraction and offset; the double nearest to it. Nothing for another text, or for no time of the calendar.
std::optional<double> ParseTime(std::string_view text);

}  // namespace downpour::api

#endif  // DOWNPOUR_OPERATOR_API_RFC3339_H_
