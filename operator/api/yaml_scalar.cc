#include "operator/api/yaml_scalar.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace downpour::api {
namespace {

constexpr std::string_view kTagPrefix = "tag:yaml.org,2002:";

template <std::size_t n>
bool IsOneOf(std::string_view text, const std::string_view (&words)[n]) {
  return std::find(std::begin(words), std::end(words), text) != std::end(words);
}

// Digits of the base, all of the text.
std::optional<std::uint64_t> ParseDigits(std::string_view text, int base) {
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number, base);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

std::optional<YamlScalar> Signed(bool negative, std::uint64_t magnitude) {
  constexpr std::uint64_t kLargest = std::numeric_limits<std::int64_t>::max();
  if (negative) {
    if (magnitude > kLargest + 1) return std::nullopt;
    return static_cast<std::int64_t>(~magnitude + 1);
  }
  if (magnitude <= kLargest) return static_cast<std::int64_t>(magnitude);
  return magnitude;
}

// With the prefixes of Go's strconv: 0x, 0o, 0b, or 0 for octal.
std::optional<YamlScalar> ParseInteger(std::string_view text) {
  const bool sign = text.starts_with('-') || text.starts_with('+');
  const bool negative = text.starts_with('-');
  std::string_view digits = text.substr(sign ? 1 : 0);
  int base = 10;
  if (digits.size() > 1 && digits.front() == '0') {
    const char letter = absl::ascii_tolower(static_cast<unsigned char>(digits[1]));
    base = letter == 'x' ? 16 : letter == 'b' ? 2 : 8;
    digits.remove_prefix(letter == 'x' || letter == 'b' || letter == 'o' ? 2 : 1);
  }
  const std::optional<std::uint64_t> magnitude = ParseDigits(digits, base);
  if (!magnitude.has_value()) return std::nullopt;
  // A sign is only read where the number fits in 63 bits.
  if (sign && !negative && *magnitude > std::numeric_limits<std::int64_t>::max()) return std::nullopt;
  return Signed(negative, *magnitude);
}

// go-yaml reads what follows 0b once more, by itself, so that a sign may stand there.
std::optional<YamlScalar> ParseBinaryWithSign(std::string_view text) {
  if (!text.starts_with("0b-") && !text.starts_with("0b+")) return std::nullopt;
  const std::optional<std::uint64_t> magnitude = ParseDigits(text.substr(3), 2);
  if (!magnitude.has_value() || *magnitude > std::numeric_limits<std::int64_t>::max()) return std::nullopt;
  return Signed(text[2] == '-', *magnitude);
}

// [sign] digits [. [digits]] [exponent], or the digits only behind the point.
bool IsDecimal(std::string_view text) {
  std::size_t at = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
  const auto digits = [&] {
    const std::size_t begin = at;
    while (at < text.size() && absl::ascii_isdigit(static_cast<unsigned char>(text[at]))) ++at;
    return at - begin;
  };
  std::size_t count = digits();
  if (at < text.size() && text[at] == '.') {
    ++at;
    count += digits();
  }
  if (count == 0) return false;
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    if (digits() == 0) return false;
  }
  return at == text.size();
}

// What is too large for a double is none.
std::optional<YamlScalar> ParseDecimal(std::string_view text) {
  double number = 0;
  if (!IsDecimal(text) || !absl::SimpleAtod(std::string(text), &number) || std::isinf(number)) return std::nullopt;
  return number;
}

YamlScalar ResolveUntagged(std::string_view text) {
  static constexpr std::string_view kNulls[] = {"", "~", "null", "Null", "NULL"};
  static constexpr std::string_view kTrue[] = {"y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"};
  static constexpr std::string_view kFalse[] = {"n",     "N",     "no",  "No",  "NO", "false",
                                                "False", "FALSE", "off", "Off", "OFF"};
  static constexpr std::string_view kNotANumber[] = {".nan", ".NaN", ".NAN"};
  static constexpr std::string_view kInfinities[] = {".inf", ".Inf", ".INF"};
  if (IsOneOf(text, kNulls)) return std::monostate();
  if (IsOneOf(text, kTrue)) return true;
  if (IsOneOf(text, kFalse)) return false;
  if (IsOneOf(text, kNotANumber)) return std::numeric_limits<double>::quiet_NaN();
  const bool sign = text.starts_with('+') || text.starts_with('-');
  if (IsOneOf(text.substr(sign ? 1 : 0), kInfinities)) {
    return text.starts_with('-') ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
  }
  // Behind a point first, an underscore makes it text.
  if (text.front() == '.') return ParseDecimal(text).value_or(std::string(text));
  if (!sign && !absl::ascii_isdigit(static_cast<unsigned char>(text.front()))) return std::string(text);
  std::string plain(text);
  std::erase(plain, '_');
  if (const std::optional<YamlScalar> integer = ParseInteger(plain)) return *integer;
  if (const std::optional<YamlScalar> decimal = ParseDecimal(plain)) return *decimal;
  return ParseBinaryWithSign(plain).value_or(std::string(text));
}

absl::StatusOr<YamlScalar> DecodeBinary(std::string_view text) {
  std::string packed(text);
  std::erase_if(packed, [](char c) { return c == '\n' || c == '\r'; });
  std::string bytes;
  if (packed.size() % 4 != 0 || packed.find_first_of(" \t") != std::string::npos ||
      !absl::Base64Unescape(packed, &bytes)) {
    return absl::InvalidArgumentError("!!binary needs base64");
  }
  return bytes;
}

}  // namespace

absl::StatusOr<YamlScalar> ResolveYamlScalar(std::string_view tag, std::string_view text) {
  if (tag.empty()) return ResolveUntagged(text);
  const std::string_view name = tag.starts_with(kTagPrefix) ? tag.substr(kTagPrefix.size()) : std::string_view();
  if (name == "binary") return DecodeBinary(text);
  // The one known tag of which no field has the type; what it allows is not checked here.
  if (name == "timestamp") return absl::InvalidArgumentError("the tag !!timestamp is not allowed");
  static constexpr std::string_view kTyped[] = {"bool", "int", "float", "null"};
  if (!IsOneOf(name, kTyped)) return std::string(text);

  YamlScalar scalar = ResolveUntagged(text);
  if (name == "float" && std::holds_alternative<std::int64_t>(scalar)) {
    scalar = static_cast<double>(std::get<std::int64_t>(scalar));
  }
  const bool integer = std::holds_alternative<std::int64_t>(scalar) || std::holds_alternative<std::uint64_t>(scalar);
  if ((name == "bool" && std::holds_alternative<bool>(scalar)) || (name == "int" && integer) ||
      (name == "float" && std::holds_alternative<double>(scalar)) ||
      (name == "null" && std::holds_alternative<std::monostate>(scalar))) {
    return scalar;
  }
  return absl::InvalidArgumentError(absl::StrCat("is not what the tag !!", std::string(name), " says"));
}

std::optional<std::string> YamlKey(const YamlScalar& scalar) {
  if (const bool* const flag = std::get_if<bool>(&scalar)) return *flag ? "true" : "false";
  if (const std::int64_t* const integer = std::get_if<std::int64_t>(&scalar)) return absl::StrCat(*integer);
  if (const std::string* const text = std::get_if<std::string>(&scalar)) return *text;
  const double* const number = std::get_if<double>(&scalar);
  if (number == nullptr) return std::nullopt;
  if (std::isnan(*number)) return ".nan";
  // kubectl writes a key with the precision of 32 bits; what is too large for them is infinite.
  const auto narrow = static_cast<float>(*number);
  if (std::isinf(narrow)) return narrow < 0 ? "-.inf" : ".inf";
  std::array<char, 64> buffer;
  const auto [end, error] =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), narrow, std::chars_format::general);
  if (error != std::errc()) return std::nullopt;
  return std::string(buffer.data(), end);
}

std::string JsonNumber(double number) {
  const double magnitude = std::fabs(number);
  const bool fixed = magnitude == 0 || (magnitude >= 1e-6 && magnitude < 1e21);
  std::array<char, 64> buffer;
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number,
                                          fixed ? std::chars_format::fixed : std::chars_format::scientific);
  // Shortest, in fixed form at most 21 digits before or 22 behind the point.
  return error == std::errc() ? std::string(buffer.data(), end) : std::string();
}

}  // namespace downpour::api
