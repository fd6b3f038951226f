#include "operator/kube/object.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/time/civil_time.h"
#include "absl/time/time.h"

namespace downpour::kube {
namespace {

void AppendSegment(std::string& path, std::string_view segment) {
  constexpr char kHex[] = "0123456789ABCDEF";
  path += '/';
  for (const char c : segment) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isalnum(byte) || c == '-' || c == '_' || c == '~' || (c == '.' && segment.size() > 2)) {
      path += c;
    } else {
      path += '%';
      path += kHex[byte >> 4];
      path += kHex[byte & 15];
    }
  }
}

std::map<std::string, std::string> ReadTexts(const Json& metadata, std::string_view key) {
  std::map<std::string, std::string> texts;
  const Json* const found = Find(metadata, {key});
  if (found == nullptr || !found->is_object()) return texts;
  for (const auto& [name, value] : found->items()) {
    if (value.is_string()) texts.emplace(name, value.get_ref<const std::string&>());
  }
  return texts;
}

std::string ControllerUid(const Json& metadata) {
  const Json* const owners = Find(metadata, {"ownerReferences"});
  if (owners == nullptr || !owners->is_array()) return {};
  for (const Json& owner : *owners) {
    const Json* const controller = Find(owner, {"controller"});
    if (controller != nullptr && controller->is_boolean() && controller->get<bool>()) return FindText(owner, {"uid"});
  }
  return {};
}

// Within the years that the format can say.
std::int64_t ToMicroseconds(double seconds) {
  constexpr double kFirst = -62135596800.0;  // 0001-01-01
  constexpr double kLast = 253402300799.0;   // 9999-12-31
  if (std::isnan(seconds)) seconds = 0;
  return std::llround(std::clamp(seconds, kFirst, kLast) * 1e6);
}

// Takes fixed-width numbers and marks off the front of a text.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  bool Number(std::size_t digits, int* value) {
    if (text_.size() < digits) return false;
    *value = 0;
    for (std::size_t i = 0; i < digits; ++i) {
      if (!absl::ascii_isdigit(static_cast<unsigned char>(text_[i]))) return false;
      *value = *value * 10 + (text_[i] - '0');
    }
    text_.remove_prefix(digits);
    return true;
  }
  bool Mark(char mark) {
    if (!text_.starts_with(mark)) return false;
    text_.remove_prefix(1);
    return true;
  }
  // The digits behind a point, as a fraction.
  bool Fraction(double* value) {
    *value = 0;
    double scale = 0.1;
    std::size_t digits = 0;
    for (; digits < text_.size() && absl::ascii_isdigit(static_cast<unsigned char>(text_[digits])); ++digits) {
      *value += (text_[digits] - '0') * scale;
      scale /= 10;
    }
    text_.remove_prefix(digits);
    return digits > 0;
  }
  bool AtEnd() const { return text_.empty(); }

 private:
  std::string_view text_;
};

}  // namespace

std::string ResourcePath(const Resource& resource, std::string_view namespace_name, std::string_view name,
                         std::string_view subresource) {
  std::string path = resource.group.empty() ? "/api" : "/apis";
  if (!resource.group.empty()) AppendSegment(path, resource.group);
  AppendSegment(path, resource.version);
  if (resource.namespaced && !namespace_name.empty()) {
    path += "/namespaces";
    AppendSegment(path, namespace_name);
  }
  AppendSegment(path, resource.plural);
  if (!name.empty()) AppendSegment(path, name);
  if (!subresource.empty()) AppendSegment(path, subresource);
  return path;
}

ObjectMeta ReadMeta(const Json& object) {
  ObjectMeta meta;
  const Json* const metadata = Find(object, {"metadata"});
  if (metadata == nullptr) return meta;
  meta.namespace_name = FindText(*metadata, {"namespace"});
  meta.name = FindText(*metadata, {"name"});
  meta.uid = FindText(*metadata, {"uid"});
  meta.resource_version = FindText(*metadata, {"resourceVersion"});
  meta.generation = FindInteger(*metadata, {"generation"}).value_or(0);
  meta.labels = ReadTexts(*metadata, "labels");
  meta.annotations = ReadTexts(*metadata, "annotations");
  meta.creation_time = ParseTime(FindText(*metadata, {"creationTimestamp"}));
  meta.deletion_time = ParseTime(FindText(*metadata, {"deletionTimestamp"}));
  if (const auto grace = FindInteger(*metadata, {"deletionGracePeriodSeconds"})) {
    meta.deletion_grace_seconds = static_cast<double>(*grace);
  }
  meta.controller_uid = ControllerUid(*metadata);
  return meta;
}

std::string ReadKey(const Json& object) {
  ObjectMeta meta;
  meta.namespace_name = FindText(object, {"metadata", "namespace"});
  meta.name = FindText(object, {"metadata", "name"});
  return meta.Key();
}

const Json* Find(const Json& object, std::initializer_list<std::string_view> path) {
  const Json* at = &object;
  for (const std::string_view key : path) {
    if (!at->is_object()) return nullptr;
    const auto found = at->find(key);
    if (found == at->end()) return nullptr;
    at = &*found;
  }
  return at;
}

std::string FindText(const Json& object, std::initializer_list<std::string_view> path) {
  const Json* const found = Find(object, path);
  return found != nullptr && found->is_string() ? found->get_ref<const std::string&>() : std::string();
}

std::optional<std::int64_t> FindInteger(const Json& object, std::initializer_list<std::string_view> path) {
  const Json* const found = Find(object, path);
  if (found == nullptr || !found->is_number_integer()) return std::nullopt;
  if (found->is_number_unsigned() &&
      found->get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    return std::nullopt;
  }
  return found->get<std::int64_t>();
}

std::string FormatTime(double seconds) {
  return absl::FormatTime("%E4Y-%m-%dT%H:%M:%SZ", absl::FromUnixMicros(ToMicroseconds(seconds)), absl::UTCTimeZone());
}

std::string FormatMicroTime(double seconds) {
  return absl::FormatTime("%E4Y-%m-%dT%H:%M:%E6SZ", absl::FromUnixMicros(ToMicroseconds(seconds)), absl::UTCTimeZone());
}

std::optional<double> ParseTime(std::string_view text) {
  Scanner scanner(text);
  int year, month, day, hour, minute, second;
  if (!scanner.Number(4, &year) || !scanner.Mark('-') || !scanner.Number(2, &month) || !scanner.Mark('-') ||
      !scanner.Number(2, &day) || !scanner.Mark('T') || !scanner.Number(2, &hour) || !scanner.Mark(':') ||
      !scanner.Number(2, &minute) || !scanner.Mark(':') || !scanner.Number(2, &second)) {
    return std::nullopt;
  }
  double fraction = 0;
  if (scanner.Mark('.') && !scanner.Fraction(&fraction)) return std::nullopt;
  int offset_minutes = 0;
  if (!scanner.Mark('Z')) {
    const bool behind = scanner.Mark('-');
    int offset_hour, offset_minute;
    if ((!behind && !scanner.Mark('+')) || !scanner.Number(2, &offset_hour) || !scanner.Mark(':') ||
        !scanner.Number(2, &offset_minute) || offset_hour > 23 || offset_minute > 59) {
      return std::nullopt;
    }
    offset_minutes = (behind ? -1 : 1) * (offset_hour * 60 + offset_minute);
  }
  if (!scanner.AtEnd()) return std::nullopt;
  // Civil times are normalised: one that is no time of the calendar comes out as another one.
  const absl::CivilSecond civil(year, month, day, hour, minute, second);
  if (civil.month() != month || civil.day() != day || civil.hour() != hour || civil.minute() != minute ||
      civil.second() != second) {
    return std::nullopt;
  }
  const std::int64_t whole = absl::ToUnixSeconds(absl::FromCivil(civil, absl::UTCTimeZone()));
  return static_cast<double>(whole - std::int64_t{60} * offset_minutes) + fraction;
}

}  // namespace downpour::kube
