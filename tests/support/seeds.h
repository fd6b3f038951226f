#ifndef DOWNPOUR_TESTS_SUPPORT_SEEDS_H_
#define DOWNPOUR_TESTS_SUPPORT_SEEDS_H_

#include <algorithm>
#include <cstdint>

namespace downpour {

// How many of `count` seeds a test tries: with sanitizers, which look for other mistakes and take ten times as long, an
// eighth. All of them are tried without.
constexpr std::uint64_t Seeds(std::uint64_t count) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return std::max<std::uint64_t>(count / 8, 1);
#else
  return count;
#endif
}

}  // namespace downpour

#endif  // DOWNPOUR_TESTS_SUPPORT_SEEDS_H_
