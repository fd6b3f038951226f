#include "cli/why/ring.h"

#include "absl/strings/strip.h"
#include "operator/planner/conditions.h"
#include "operator/planner/ring.h"

namespace downpour::cli {

std::string RingMessage(const api::TrainingJob& job) {
  if (!planner::IsAllReduce(job.spec)) return "";
  std::string message = job.status.ring.has_value() ? job.status.ring->message : "";
  const api::Condition* formed = planner::FindCondition(job.status, planner::kRingFormed);
  if (message.empty() && formed != nullptr && !formed->status) message = formed->message;
  return std::string(absl::StripSuffix(message, "."));
}

bool RingIsFormedAnew(const api::TrainingJob& job) {
  if (!planner::IsAllReduce(job.spec) || !job.status.ring.has_value() || job.status.ring->formed) return false;
  return RingLacksWorkers(job) || !job.status.ring->message.empty();
}

bool RingLacksWorkers(const api::TrainingJob& job) {
  return planner::IsAllReduce(job.spec) && job.status.ring.has_value() &&
         job.status.ring->members < job.status.ring->wanted;
}

}  // namespace downpour::cli
