#ifndef DOWNPOUR_CLI_GRPC_LIFE_H_
#define DOWNPOUR_CLI_GRPC_LIFE_H_

#include "absl/status/status.h"

namespace downpour::cli {

// Starts gRPC for the rest of the life of this process. Without it, gRPC is shut down whenever its last channel goes,
// and that waits for its threads. Call it after the signals are settled and before the first channel.
// kResourceExhausted: the system gave it no threads.
absl::Status StartGrpc();

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_GRPC_LIFE_H_
