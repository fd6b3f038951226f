#include "operator/api/text_checks.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "operator/api/document.h"
#include "operator/api/memory.h"
#include "operator/api/training_job.h"

namespace downpour::api::schema {
namespace {

bool IsLower(char c) { return c >= 'a' && c <= 'z'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsAlphanumeric(char c) { return IsLower(c) || IsDigit(c) || (c >= 'A' && c <= 'Z'); }

// RFC 1123: lower-case letters, digits and '-', which does not come first or last.
bool IsDnsLabel(std::string_view text) {
  return !text.empty() && text.size() <= 63 && text.front() != '-' && text.back() != '-' &&
         std::all_of(text.begin(), text.end(), [](char c) { return IsLower(c) || IsDigit(c) || c == '-'; });
}

bool IsDnsSubdomain(std::string_view text) {
  if (text.size() > 253) return false;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('.', begin), text.size());
    if (!IsDnsLabel(text.substr(begin, end - begin))) return false;
    begin = end + 1;
  }
  return true;
}

// Letters, digits, '-', '_' and '.', the first and the last a letter or digit.
bool IsName(std::string_view text) {
  return !text.empty() && text.size() <= 63 && IsAlphanumeric(text.front()) && IsAlphanumeric(text.back()) &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return IsAlphanumeric(c) || c == '-' || c == '_' || c == '.'; });
}

bool HasControlCharacter(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

constexpr std::string_view kRfc1035 =
    "must be a lower-case RFC 1035 label: letters, digits and '-', first a letter, last a letter or digit";

}  // namespace

std::string_view AnyText(std::string_view) { return {}; }
std::string_view IsShortText(std::string_view text) { return text.size() <= 253 ? "" : "must be at most 253 bytes"; }
std::string_view IsApiVersion(std::string_view text) {
  return text == kApiVersion ? "" : "must be training.downpour.dev/v1alpha1";
}
std::string_view IsKind(std::string_view text) { return text == kKind ? "" : "must be TrainingJob"; }
std::string_view IsJobName(std::string_view text) {
  // The name of a pod, <job>-worker-9999, must fit in a DNS label of 63.
  if (text.size() > 40) return "must be at most 40 characters";
  return IsDnsLabel(text) && IsLower(text.front()) ? "" : kRfc1035;
}
std::string_view IsGenerateName(std::string_view text) {
  constexpr std::string_view kSuffix = "00000";  // as long as the one that is put behind it
  if (text.size() + kSuffix.size() > 40) return "must be at most 35 characters";
  return !text.empty() && IsJobName(std::string(text) + std::string(kSuffix)).empty()
             ? ""
             : "must be the beginning of an RFC 1035 label, as \"lenet-\"";
}
std::string_view IsNamespace(std::string_view text) {
  return IsDnsLabel(text) ? "" : "must be an RFC 1123 label: at most 63 lower-case letters, digits and '-'";
}
std::string_view IsRuleName(std::string_view text) {
  if (text.size() > 63) return "must be at most 63 characters";
  return IsDnsLabel(text) && IsLower(text.front()) ? "" : kRfc1035;
}
std::string_view IsQualifiedName(std::string_view text) {
  const std::size_t slash = text.find('/');
  const bool good = slash == std::string_view::npos
                        ? IsName(text)
                        : IsDnsSubdomain(text.substr(0, slash)) && IsName(text.substr(slash + 1));
  return good ? "" : "must be a qualified name, as \"app\" or \"example.com/app\"";
}
std::string_view IsLabelValue(std::string_view text) {
  return text.empty() || IsName(text)
             ? ""
             : "must be a label value: at most 63 letters, digits, '-', '_' and '.', first and last a letter or digit";
}
std::string_view IsReason(std::string_view text) {
  return !text.empty() && text.size() <= 128 && std::all_of(text.begin(), text.end(), IsAlphanumeric)
             ? ""
             : "must be a reason in CamelCase, as OOMKilled";
}
std::string_view IsManagedBy(std::string_view text) {
  const std::size_t slash = text.find('/');
  const bool good = text.size() <= 63 && slash != std::string_view::npos && IsDnsSubdomain(text.substr(0, slash)) &&
                    IsName(text.substr(slash + 1));
  return good ? "" : "must be a domain-prefixed name, as example.com/controller";
}
std::string_view IsParameterPattern(std::string_view text) {
  const bool good = !text.empty() && text.size() <= 253 && std::all_of(text.begin(), text.end(), [](char c) {
    return IsAlphanumeric(c) || c == '_' || c == '.' || c == '*';
  });
  return good ? ""
              : "must be the name of a parameter, as conv1.weight or conv1.*: at most 253 letters, digits, _, . and *";
}
std::string_view IsPluginName(std::string_view text) {
  const bool good = !text.empty() && text.size() <= 63 &&
                    std::all_of(text.begin(), text.end(), [](char c) { return IsAlphanumeric(c) || c == '_'; });
  return good ? "" : "must be a name of at most 63 letters, digits and _";
}
std::string_view IsPath(std::string_view text) { return text.empty() ? "must not be empty" : IsPathOrEmpty(text); }
std::string_view IsPathOrEmpty(std::string_view text) {
  // It goes through JSON, which holds nothing else; the folder of a manifest may have any name.
  if (!IsUtf8(text)) return "must be valid UTF-8, the folder it is in included";
  if (HasControlCharacter(text)) return "must not contain control characters";
  return text.size() <= 4096 ? "" : "must be at most 4096 bytes";
}
std::string_view IsDirectory(std::string_view text) {
  if (const std::string_view wrong = IsPath(text); !wrong.empty()) return wrong;
  return text.find("://") == std::string_view::npos ? "" : "must be a directory, and no URI";
}
std::string_view IsFile(std::string_view text) {
  if (const std::string_view wrong = IsPath(text); !wrong.empty()) return wrong;
  return text.find("://") == std::string_view::npos ? "" : "must be a file, and no URI";
}
std::string_view IsLine(std::string_view text) { return text.empty() ? "must not be empty" : IsLineOrEmpty(text); }
std::string_view IsLineOrEmpty(std::string_view text) {
  if (HasControlCharacter(text)) return "must not contain control characters";
  return text.size() <= 250 ? "" : "must be at most 250 bytes";
}
std::string_view IsColumnName(std::string_view text) {
  if (text.empty()) return "must not be empty";
  if (HasControlCharacter(text)) return "must not contain control characters";
  // Of UTF-8, all bytes but the first of a character begin with the bits 10.
  const auto characters = std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; });
  return characters <= 128 ? "" : "must be at most 128 characters";
}
std::string_view IsOneCharacter(std::string_view text) {
  const bool good = text.size() == 1 && static_cast<unsigned char>(text.front()) < 0x7f &&
                    (text.front() == '\t' || text.front() >= ' ');
  return good ? "" : "must be one character of ASCII";
}
std::string_view IsHttpUriOrEmpty(std::string_view text) {
  if (text.empty()) return "";
  const std::size_t scheme = text.starts_with("http://") ? 7 : text.starts_with("https://") ? 8 : 0;
  const bool good = scheme > 0 && text.size() > scheme && text[scheme] != '/' && text.size() <= 4096 &&
                    text.find_first_of("@?# ") == std::string_view::npos && !HasControlCharacter(text);
  return good ? "" : "must be http(s)://HOST[:PORT][/PREFIX], without a user";
}
std::string_view IsCheckpointUri(std::string_view text) {
  if (const std::string_view wrong = IsPath(text); !wrong.empty()) return wrong;
  constexpr std::string_view kS3 = "s3://";
  const std::size_t scheme = text.find("://");
  const auto in_scheme = [](char c) { return IsAlphanumeric(c) || c == '+' || c == '-' || c == '.'; };
  if (scheme == std::string_view::npos || !std::all_of(text.begin(), text.begin() + scheme, in_scheme)) return "";
  const std::string_view bucket = text.substr(kS3.size(), text.find('/', kS3.size()) - kS3.size());
  const auto in_bucket = [](char c) { return IsLower(c) || IsDigit(c) || c == '-' || c == '.'; };
  const bool good = text.starts_with(kS3) && bucket.size() >= 3 && bucket.size() <= 63 &&
                    std::all_of(bucket.begin(), bucket.end(), in_bucket);
  return good ? "" : "must be a directory or s3://BUCKET/PREFIX, with a bucket of 3 to 63 of a-z, 0-9, '-' and '.'";
}
std::string_view IsMemory(std::string_view text) {
  return ParseMemory(text).has_value() ? "" : "must be an amount of memory above 0, as 512Mi or 2Gi";
}

}  // namespace downpour::api::schema
