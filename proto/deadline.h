#ifndef DOWNPOUR_PROTO_DEADLINE_H_
#define DOWNPOUR_PROTO_DEADLINE_H_

#include "absl/time/time.h"
#include "grpc/support/time.h"

namespace downpour {

// The moment `wait` from now by the monotonic clock, for calls of gRPC and for the end of a server; at most a day away.
// Whoever links this also has all timed waits of Abseil, and with them those of gRPC, measured by the monotonic clock:
// a wall clock that is set back while a thread waits does not make the wait longer.
gpr_timespec DeadlineIn(absl::Duration wait);

}  // namespace downpour

#endif  // DOWNPOUR_PROTO_DEADLINE_H_
