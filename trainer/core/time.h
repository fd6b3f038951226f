#ifndef DOWNPOUR_TRAINER_CORE_TIME_H_
#define DOWNPOUR_TRAINER_CORE_TIME_H_

#include "absl/time/time.h"

namespace downpour::core {

// Since an arbitrary origin, on a clock that never goes back; each process has its own.
using Time = absl::Duration;

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_TIME_H_
