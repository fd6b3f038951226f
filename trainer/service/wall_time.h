#ifndef DOWNPOUR_TRAINER_SERVICE_WALL_TIME_H_
#define DOWNPOUR_TRAINER_SERVICE_WALL_TIME_H_

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace downpour::service {

// By the machine's wall clock, which may be set back at any time: only for what people read.
inline double SecondsSince1970() { return absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()); }

}  // namespace downpour::service

#endif  // DOWNPOUR_TRAINER_SERVICE_WALL_TIME_H_
