#ifndef DOWNPOUR_TRAINER_COORDINATOR_SERVER_H_
#define DOWNPOUR_TRAINER_COORDINATOR_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "trainer/core/coordinator.h"

namespace downpour::coordinator {

// CoordinatorCore behind gRPC: one lock, one timer thread, calls to the ps in the background.
class CoordinatorServer {
 public:
  // Serves on host:port (port 0: any). kUnavailable: the port is taken, say.
  static absl::StatusOr<std::unique_ptr<CoordinatorServer>> Start(core::CoordinatorOptions options,
                                                                  const std::string& listen,
                                                                  const std::string& metrics_listen);
  ~CoordinatorServer();

  const std::string& address() const;
  const std::string& metrics_address() const;

  // Returns when the job was finished by command (OK), Stop was called (OK), or a newer coordinator exists (kAborted).
  absl::Status Wait();
  void Stop();

 private:
  class Impl;
  explicit CoordinatorServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace downpour::coordinator

#endif  // DOWNPOUR_TRAINER_COORDINATOR_SERVER_H_
