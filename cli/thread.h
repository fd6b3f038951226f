#ifndef DOWNPOUR_CLI_THREAD_H_
#define DOWNPOUR_CLI_THREAD_H_

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "cli/files.h"

namespace downpour::cli {

// Starts a std::thread or std::jthread. kResourceExhausted says that the system gave none, and `what` it was for: "the
// thread that waits for signals".
template <class Thread, class Work>
absl::StatusOr<Thread> StartThread(const std::string& what, Work work) {
  try {
    return Thread(std::move(work));
  } catch (const std::system_error& error) {
    return SystemError(error.code().value(), what, "cannot be started");
  }
}

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_THREAD_H_
