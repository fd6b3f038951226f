#include "trainer/model/replica_step.h"

namespace downpour::model {

bool ReplicaStep::AwaitDecision(std::size_t replica, double loss) {
  const auto decided = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return decision_.has_value(); };
  const absl::MutexLock lock(&mutex_);
  losses_[replica] = loss;
  ++told_;
  // Bounded by the other replicas: each tells its loss or ends.
  mutex_.Await(absl::Condition(&decided));
  return *decision_ && status_.ok();
}

bool ReplicaStep::End(const absl::Status& status) {
  const absl::MutexLock lock(&mutex_);
  status_.Update(status);
  return --left_ == 0;
}

std::optional<std::vector<double>> ReplicaStep::AwaitLosses() {
  const auto known = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return told_ == losses_.size() || left_ < losses_.size();
  };
  const absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&known));
  if (left_ < losses_.size()) return std::nullopt;
  return losses_;
}

void ReplicaStep::Decide(bool go_on) {
  const absl::MutexLock lock(&mutex_);
  if (!decision_.has_value()) decision_ = go_on;
}

absl::Status ReplicaStep::status() const {
  const absl::MutexLock lock(&mutex_);
  return status_;
}

}  // namespace downpour::model
