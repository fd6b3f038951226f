#ifndef DOWNPOUR_TESTS_SUPPORT_PROCESS_MEMORY_H_
#define DOWNPOUR_TESTS_SUPPORT_PROCESS_MEMORY_H_

#include <cstdint>
#include <fstream>
#include <string>

namespace downpour {

// Of this process, in bytes: "VmRSS", what is resident now, or "VmHWM", the most that ever was. 0: it is not known.
inline std::int64_t ProcessMemory(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string key; status >> key;) {
    std::int64_t kilobytes = 0;
    if (key == name + ":" && status >> kilobytes) return kilobytes * 1024;
  }
  return 0;
}

}  // namespace downpour

#endif  // DOWNPOUR_TESTS_SUPPORT_PROCESS_MEMORY_H_
