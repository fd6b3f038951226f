#ifndef DOWNPOUR_TRAINER_CORE_NAME_PATTERN_H_
#define DOWNPOUR_TRAINER_CORE_NAME_PATTERN_H_

#include <cstddef>

#include "absl/strings/string_view.h"

namespace downpour::core {

// Whether `name` is what `pattern` says, in which * stands for any text. Only the newest star is tried again, so the
// work is at most the product of the lengths.
inline bool MatchesName(absl::string_view pattern, absl::string_view name) {
  std::size_t at = 0;
  std::size_t star = absl::string_view::npos;
  std::size_t resume = 0;
  for (std::size_t i = 0; i < name.size();) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      resume = i;
    } else if (at < pattern.size() && pattern[at] == name[i]) {
      ++at;
      ++i;
    } else if (star != absl::string_view::npos) {
      at = star + 1;
      i = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', at) == absl::string_view::npos;
}

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_NAME_PATTERN_H_
