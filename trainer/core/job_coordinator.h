#ifndef DOWNPOUR_TRAINER_CORE_JOB_COORDINATOR_H_
#define DOWNPOUR_TRAINER_CORE_JOB_COORDINATOR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "downpour/v1/control.pb.h"
#include "trainer/core/job_checkpoints.h"
#include "trainer/core/time.h"

namespace downpour::core {

// A call to a ps.
struct DirectCall {
  std::uint64_t call = 0;
  std::uint32_t ps = 0;
  std::string address;
  v1::DirectRequest request;
  absl::Duration deadline;
};

// The coordinator of a job, whatever way it trains in, for the server around it. Not thread-safe.
class JobCoordinator {
 public:
  virtual ~JobCoordinator() = default;

  virtual v1::RegisterPsReply OnRegisterPs(const v1::RegisterPsRequest& request, Time now) = 0;
  virtual v1::WorkerSyncReply OnSyncWorker(const v1::WorkerSyncRequest& request, Time now) = 0;
  virtual v1::ProgressReply GetProgress(Time now) const = 0;
  // How workers ended, told in any order and any number of times. And what is wanted: a checkpoint, a mode.
  virtual void ReportFailures(const v1::ProgressRequest& request) = 0;
  virtual v1::FinishReply OnFinish(const v1::FinishRequest& request) = 0;

  // Calls that are due, and their answers; exactly one each. To be called after every other call and at next_timer().
  virtual std::vector<DirectCall> TakeDirectives(Time now) = 0;
  virtual void OnDirectReply(std::uint64_t call, const absl::StatusOr<v1::DirectReply>& reply, Time now) = 0;
  virtual std::vector<StoreCall> TakeStoreCalls() = 0;
  virtual void OnStoreReply(std::uint64_t call, StoreReply reply, Time now) = 0;
  virtual Time next_timer() const = 0;

  // Set: a newer coordinator exists; this one must end.
  virtual const std::optional<absl::Status>& fenced() const = 0;
  // The job is over, and whoever runs it has said so; all workers have heard it.
  virtual bool finished() const = 0;
  virtual bool deserted() const = 0;
  // Of the plan; 0 while it is unknown.
  virtual std::uint64_t updates_before(std::uint32_t dataset_epoch) const = 0;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_JOB_COORDINATOR_H_
