#include "trainer/data/formats/text_value.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace downpour::data {
namespace {

// Bytes of the character at the beginning of `text`; 0: it is none.
std::size_t CharacterBytes(absl::string_view text) {
  const auto at = [&text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = at(0);
  if (first == 0) return 0;
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  const std::size_t bytes = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (text.size() < bytes) return 0;
  // The second byte keeps out longer forms, surrogates and what is above U+10FFFF.
  const unsigned least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (at(1) < least || at(1) > most) return 0;
  for (std::size_t i = 2; i < bytes; ++i) {
    if (at(i) < 0x80 || at(i) > 0xbf) return 0;
  }
  return bytes;
}

bool IsInteger(const std::string& text) {
  std::int64_t number = 0;
  return absl::SimpleAtoi(text, &number);
}

std::int64_t ToInteger(const std::string& text) {
  std::int64_t number = 0;
  return absl::SimpleAtoi(text, &number) ? number : 0;
}

}  // namespace

std::size_t FindBadText(absl::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = CharacterBytes(text.substr(at));
    if (bytes == 0) return at;
    at += bytes;
  }
  return absl::string_view::npos;
}

std::string DescribeBadText(absl::string_view text, std::size_t position) {
  const auto byte = static_cast<unsigned char>(text[position]);
  return byte == 0 ? "found a NUL byte, expected text" : absl::StrFormat("found the byte 0x%02x, expected UTF-8", byte);
}

std::string Excerpt(absl::string_view text) {
  constexpr std::size_t kMost = 60;
  absl::string_view part = text.substr(0, kMost);
  while (part.size() < text.size() && !part.empty() && (static_cast<unsigned char>(text[part.size()]) & 0xc0) == 0x80) {
    part.remove_suffix(1);  // characters stay whole
  }
  const bool sound = FindBadText(part) == absl::string_view::npos;
  return absl::StrCat("\"", sound ? absl::Utf8SafeCHexEscape(part) : absl::CHexEscape(part),
                      part.size() < text.size() ? "..." : "", "\"");
}

Value TextValue(absl::string_view text) {
  Value value{{static_cast<std::int64_t>(text.size())}, std::vector<std::byte>(text.size())};
  if (!text.empty()) std::memcpy(value.bytes.data(), text.data(), text.size());
  return value;
}

Categories::Categories(std::vector<std::string> names) : names_(std::move(names)) {
  for (std::size_t i = 0; i < names_.size(); ++i) ids_.emplace(names_[i], static_cast<std::int64_t>(i));
}

std::int64_t Categories::IdOf(absl::string_view name) const {
  const auto id = ids_.find(name);
  return id == ids_.end() ? -1 : id->second;
}

absl::Status CategoriesBuilder::Add(absl::string_view name) {
  if (names_.contains(name) || FindBadText(name) != absl::string_view::npos) return absl::OkStatus();
  if (names_.size() == kMost) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("found more than %d different values, expected those of a few classes", kMost));
  }
  names_.emplace(name);
  return absl::OkStatus();
}

std::vector<std::string> CategoriesBuilder::Sorted() const {
  std::vector<std::string> sorted(names_.begin(), names_.end());
  if (std::all_of(sorted.begin(), sorted.end(), IsInteger)) {
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const std::string& a, const std::string& b) { return ToInteger(a) < ToInteger(b); });
  }
  return sorted;
}

}  // namespace downpour::data
