#ifndef DOWNPOUR_TRAINER_PS_SERVER_H_
#define DOWNPOUR_TRAINER_PS_SERVER_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "downpour/v1/control.pb.h"
#include "trainer/core/ps.h"

namespace downpour::ps {

struct PsServerOptions {
  std::string job_uid;
  std::uint32_t index = 0;
  std::uint32_t process_incarnation = 1;
  std::string node;         // where it runs; empty: not known
  std::string coordinator;  // host:port, or @FILE that holds it; empty: none, directives come from the caller (tests)
  std::string listen = "127.0.0.1:0";
  std::string advertise;                // host:port where workers reach it; empty: the address served
  std::string advertise_host;           // the same with the port served
  std::string local_data;               // see service::ProcessFlags
  std::string metrics_listen;           // empty: none
  std::string store;                    // URI of the folder of the job's checkpoints; empty: none
  std::uint64_t extra_bytes_limit = 0;  // core::PsOptions
  absl::Duration longest_drain = absl::Seconds(2);
};

// PsCore behind gRPC: control calls, the data plane, and a thread that registers with the coordinator. One lock guards
// the core: checksums and encoding happen outside of it, on gRPC's threads.
class PsServer {
 public:
  // kUnavailable: the port is taken, say. kInvalidArgument: a malformed job uid.
  static absl::StatusOr<std::unique_ptr<PsServer>> Start(PsServerOptions options);
  ~PsServer();

  const std::string& address() const;
  const std::string& metrics_address() const;
  std::uint64_t session() const;

  // For a caller that is its coordinator.
  v1::DirectReply Direct(const v1::DirectRequest& request);

  // Returns when told to finish, stopped or drained (OK), or replaced by a newer process (kAborted).
  absl::Status Wait();
  void Stop();
  // Reports to be out of service, and goes on until no push waits for the verdict on its update, at most
  // `longest_drain`.
  void Drain();
  // Calls whose pushes wait for that verdict now.
  std::size_t held_calls() const;

 private:
  class Impl;
  explicit PsServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace downpour::ps

#endif  // DOWNPOUR_TRAINER_PS_SERVER_H_
