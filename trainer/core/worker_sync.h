#ifndef DOWNPOUR_TRAINER_CORE_WORKER_SYNC_H_
#define DOWNPOUR_TRAINER_CORE_WORKER_SYNC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "downpour/v1/control.pb.h"

// What a worker says to its coordinator and hears from it, whatever way the job trains in.
namespace downpour::core {

struct WorkerIdentity {
  std::string job_uid;
  std::uint32_t index = 0;
  std::uint32_t process_incarnation = 1;
  std::vector<v1::TensorSpec> tensors;
  std::uint64_t sample_count = 0;
  std::string device = {};                                             // what it computes on, for people
  std::uint32_t devices = 1;                                           // on so many
  std::optional<std::uint32_t> initial_weights_crc32c = std::nullopt;  // of the file that was read
};

struct SyncCall {
  std::uint64_t call = 0;
  v1::WorkerSyncRequest request;
  absl::Duration deadline;
};

// Says who asks. Who is accepted has said before what it trains.
void Introduce(const WorkerIdentity& worker, bool accepted, v1::WorkerSyncRequest* request);

// With what a worker ends after a reply that ends it. OK: the job is over.
absl::Status EndOf(const v1::WorkerSyncReply& reply);

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_WORKER_SYNC_H_
