#ifndef DOWNPOUR_OPERATOR_CONTROLLER_SLOW_START_H_
#define DOWNPOUR_OPERATOR_CONTROLLER_SLOW_START_H_

#include <cstddef>
#include <functional>

#include "absl/status/status.h"
#include "operator/controller/thread_pool.h"

namespace downpour::controller {

// Calls task(0) ... task(count - 1), several at a time with the help of the pool's threads, and waits for all. First
// one alone, and each that succeeds lets one more run at the same time, up to `most`: what is refused is refused once.
// After one that fails nothing new is begun. Returns the first error; what a task throws is thrown here once none runs
// any more.
absl::Status SlowStart(ThreadPool& pool, std::size_t count, int most,
                       const std::function<absl::Status(std::size_t)>& task);

}  // namespace downpour::controller

#endif  // DOWNPOUR_OPERATOR_CONTROLLER_SLOW_START_H_
