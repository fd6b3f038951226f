#ifndef DOWNPOUR_TRAINER_DATA_FORMATS_TEXT_VALUE_H_
#define DOWNPOUR_TRAINER_DATA_FORMATS_TEXT_VALUE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "trainer/data/sample_source.h"

// What formats of text have in common.
namespace downpour::data {

// The first byte that is NUL or not UTF-8 (no surrogates, nothing above U+10FFFF, no longer form than needed); npos:
// the text is sound.
std::size_t FindBadText(absl::string_view text);

// "found the byte 0xff, expected UTF-8": of a text of which `position` is not npos.
std::string DescribeBadText(absl::string_view text, std::size_t position);

// For messages: in quotes and escaped, about the first 60 bytes of a longer one. UTF-8 whatever the text is.
std::string Excerpt(absl::string_view text);

Value TextValue(absl::string_view text);

template <typename Number>
Value NumberValue(Number number) {
  Value value{{}, std::vector<std::byte>(sizeof(number))};
  std::memcpy(value.bytes.data(), &number, sizeof(number));
  return value;
}

// The names of the classes of a column, sorted: as numbers if all are integers, else by their bytes.
class Categories {
 public:
  Categories() = default;
  // In this order. The names are unique.
  explicit Categories(std::vector<std::string> names);

  const std::vector<std::string>& names() const { return names_; }
  // -1: it is none of them.
  std::int64_t IdOf(absl::string_view name) const;

 private:
  std::vector<std::string> names_;
  std::map<std::string, std::int64_t, std::less<>> ids_;
};

// Collects the names of a column.
class CategoriesBuilder {
 public:
  // What is no sound text is left out. kResourceExhausted: there are more than kMost.
  absl::Status Add(absl::string_view name);
  std::vector<std::string> Sorted() const;

  static constexpr std::size_t kMost = std::size_t{1} << 20;

 private:
  std::set<std::string, std::less<>> names_;
};

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_FORMATS_TEXT_VALUE_H_
