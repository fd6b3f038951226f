#include "cli/grpc_life.h"

#include <grpc/grpc.h>
#include <grpc/support/log.h>

#include <atomic>
#include <cerrno>

#include "absl/strings/match.h"
#include "cli/files.h"

namespace downpour::cli {
namespace {

std::atomic<bool> thread_refused = false;

// gRPC tells its caller of everything else as well; what it prints would go into the picture on the terminal.
void OnLog(gpr_log_func_args* arguments) {
  if (absl::StrContains(arguments->message, "pthread_create failed")) thread_refused = true;
}

}  // namespace

absl::Status StartGrpc() {
  gpr_set_log_function(OnLog);
  grpc_init();
  if (!thread_refused) return absl::OkStatus();
  return SystemError(EAGAIN, "the threads of gRPC", "cannot be started");
}

}  // namespace downpour::cli
