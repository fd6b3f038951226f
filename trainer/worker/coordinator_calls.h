#ifndef DOWNPOUR_TRAINER_WORKER_COORDINATOR_CALLS_H_
#define DOWNPOUR_TRAINER_WORKER_COORDINATOR_CALLS_H_

#include <functional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "downpour/v1/control.grpc.pb.h"
#include "trainer/core/worker_sync.h"
#include "trainer/service/calls.h"
#include "trainer/service/stubs.h"

namespace downpour::worker {

// A worker's calls to its coordinator. Thread-safe.
class CoordinatorCalls {
 public:
  // `coordinator`: as ResolveAddress takes it; resolved anew for each call.
  explicit CoordinatorCalls(std::string coordinator) : coordinator_(std::move(coordinator)) {}

  // `answer` runs exactly once, maybe before this returns.
  void Sync(core::SyncCall call, std::function<void(const absl::StatusOr<v1::WorkerSyncReply>&)> answer);

  // No `answer` runs after this.
  void CancelAndWait() { calls_.CancelAndWait(); }

 private:
  const std::string coordinator_;
  service::Stubs<v1::Coordinator> stubs_;
  service::Calls calls_;
};

}  // namespace downpour::worker

#endif  // DOWNPOUR_TRAINER_WORKER_COORDINATOR_CALLS_H_
