#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "trainer/checkpoint/store.h"

namespace downpour::checkpoint {

absl::Status CheckStoreName(absl::string_view name) {
  for (const absl::string_view part : absl::StrSplit(name, '/')) {
    const bool characters = std::all_of(part.begin(), part.end(), [](char c) {
      return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
    });
    if (part.empty() || part[0] == '.' || !characters) {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", absl::CHexEscape(name),
          "\": no name in a store: parts of letters, digits, '-', '_' and '.', joined by '/', none of which "
          "begins with a dot"));
    }
  }
  return absl::OkStatus();
}

}  // namespace downpour::checkpoint
