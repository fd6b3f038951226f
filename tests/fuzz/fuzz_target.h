#ifndef DOWNPOUR_TESTS_FUZZ_FUZZ_TARGET_H_
#define DOWNPOUR_TESTS_FUZZ_FUZZ_TARGET_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

// The entry point that libFuzzer and replay.cc call. It returns 0 for every input, and aborts where a promise breaks.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace downpour::fuzz {

inline void Require(bool condition, const char* promise) {
  if (condition) return;
  std::fprintf(stderr, "broken promise: %s\n", promise);
  std::abort();
}

}  // namespace downpour::fuzz

#endif  // DOWNPOUR_TESTS_FUZZ_FUZZ_TARGET_H_
