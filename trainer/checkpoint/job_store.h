#ifndef DOWNPOUR_TRAINER_CHECKPOINT_JOB_STORE_H_
#define DOWNPOUR_TRAINER_CHECKPOINT_JOB_STORE_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "downpour/v1/config.pb.h"
#include "trainer/checkpoint/store.h"
#include "trainer/core/job_checkpoints.h"

namespace downpour::checkpoint {

// The store of a job's checkpoints as its coordinator uses it. Not thread-safe.
class JobStore {
 public:
  using Opener = std::function<absl::StatusOr<std::unique_ptr<Store>>(const std::string& uri)>;
  // Nothing is read or written yet. kInvalidArgument: the URI is none. `now_seconds`: since 1970.
  static absl::StatusOr<std::unique_ptr<JobStore>> Create(const v1::TrainingConfig& config, std::uint32_t incarnation,
                                                          Opener open, std::function<double()> now_seconds);

  core::StoreReply CarryOut(const core::StoreCall& call);

 private:
  JobStore(v1::TrainingConfig config, std::uint32_t incarnation, std::unique_ptr<Store> store, Opener open,
           std::function<double()> now_seconds);
  absl::Status Find(core::FoundCheckpoints* found);
  // Adds the checkpoints of the source: a folder of them, or one.
  absl::Status FindSource(core::FoundCheckpoints* found);
  absl::Status Begin(const core::StoreCall& call);
  void Commit(const core::StoreCall& call, core::StoreReply* reply);
  // Removes what is older than the manifest asks to keep.
  absl::Status TidyUp(const std::string& in_use);

  const v1::TrainingConfig config_;
  const std::uint32_t incarnation_;
  const std::unique_ptr<Store> store_;
  const Opener open_;
  const std::function<double()> now_seconds_;
};

}  // namespace downpour::checkpoint

#endif  // DOWNPOUR_TRAINER_CHECKPOINT_JOB_STORE_H_
