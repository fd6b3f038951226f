#include "cli/why/ring.h"

#include "absl/strings/strip.h"
#include "operator/planner/conditions.h"

namespace downpour::cli {

bool IsRing(const api::TrainingJob& job) { return job.spec.strategy == api::Strategy::kAllReduce; }

std::string RingMessage(const api::TrainingJob& job) {
  if (!IsRing(job)) return "";
  std::string message = job.status.ring.has_value() ? job.status.ring->message : "";
  const api::Condition* formed = planner::FindCondition(job.status, planner::kRingFormed);
  if (message.empty() && formed != nullptr && !formed->status) message = formed->message;
  return std::string(absl::StripSuffix(message, "."));
}

bool RingIsFormedAnew(const api::TrainingJob& job) {
  if (!IsRing(job) || !job.status.ring.has_value() || job.status.ring->formed) return false;
  return RingLacksWorkers(job) || !job.status.ring->message.empty();
}

bool RingLacksWorkers(const api::TrainingJob& job) {
  return IsRing(job) && job.status.ring.has_value() && job.status.ring->members < job.status.ring->wanted;
}

}  // namespace downpour::cli
