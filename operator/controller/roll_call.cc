#include "operator/controller/roll_call.h"

#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "operator/job/report.h"
#include "operator/planner/conditions.h"

namespace downpour::controller {

std::vector<planner::Instance> RollCall::Take(const Pods& pods,
                                              const std::optional<CoordinatorGateway::Answer>& answer) {
  std::vector<planner::Instance> instances;
  std::unordered_map<std::string_view, const PodPointer*> cached;
  for (const PodPointer& pod : pods) {
    const bool ready =
        answer.has_value() &&
        (pod->role == api::Role::kCoordinator ? answer->received_time >= pod->meta.creation_time.value_or(0)
                                              : job::IsMember(answer->reply, pod->role, pod->index, pod->incarnation));
    instances.push_back(ToInstance(*pod, ready));
    cached[pod->meta.uid] = &pod;
  }
  for (PodPointer& pod : alive_) {
    if (const auto found = cached.find(pod->meta.uid); found != cached.end()) {
      pod = *found->second;
      continue;
    }
    planner::Instance vanished = ToInstance(*pod, /*ready=*/false);
    // As if it were still on its way: the planner knows what becomes of a pod that somebody else deletes.
    vanished.terminating = !HasEnded(*pod);
    vanished.terminating_since.reset();
    instances.push_back(std::move(vanished));
  }
  return instances;
}

void RollCall::Remember(const Pods& pods, const api::TrainingJobStatus& status) {
  alive_.clear();
  if (planner::IsSettled(status)) return;  // nobody's end is a failure any more
  const std::unordered_set<std::string_view> counted(status.counted_uids.begin(), status.counted_uids.end());
  for (const PodPointer& pod : pods) {
    if (!HasEnded(*pod) && !counted.contains(pod->meta.uid)) alive_.push_back(pod);
  }
}

}  // namespace downpour::controller
