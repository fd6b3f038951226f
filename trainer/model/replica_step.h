#ifndef DOWNPOUR_TRAINER_MODEL_REPLICA_STEP_H_
#define DOWNPOUR_TRAINER_MODEL_REPLICA_STEP_H_

#include <cstddef>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace downpour::model {

// Where the replicas of a model meet in one step: they go on together after their losses, or not at all, and the first
// that fails ends it for all. Replicas call it on threads of their own, one more thread decides.
class ReplicaStep {
 public:
  explicit ReplicaStep(std::size_t replicas) : losses_(replicas), left_(replicas) {}

  // Of a replica: tells its loss, and waits until it is decided whether to go on.
  bool AwaitDecision(std::size_t replica, double loss);
  // Of a replica that is done with the step; true: it was the last.
  bool End(const absl::Status& status);

  // Waits for the losses of all. None: one has ended without them.
  std::optional<std::vector<double>> AwaitLosses();
  // What is decided first counts.
  void Decide(bool go_on);
  // What ended it first; OK: nothing has.
  absl::Status status() const;

 private:
  mutable absl::Mutex mutex_;
  std::vector<double> losses_ ABSL_GUARDED_BY(mutex_);
  std::size_t told_ ABSL_GUARDED_BY(mutex_) = 0;  // losses
  std::size_t left_ ABSL_GUARDED_BY(mutex_);      // that have not ended
  std::optional<bool> decision_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_REPLICA_STEP_H_
