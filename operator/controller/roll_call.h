#ifndef DOWNPOUR_OPERATOR_CONTROLLER_ROLL_CALL_H_
#define DOWNPOUR_OPERATOR_CONTROLLER_ROLL_CALL_H_

#include <optional>
#include <vector>

#include "operator/api/training_job.h"
#include "operator/controller/coordinator_gateway.h"
#include "operator/controller/pod.h"
#include "operator/planner/plan.h"

namespace downpour::controller {

// Who of a job is there, and who was: a pod that may run, whose end is not accounted for and that is in no cache any
// more vanished without a trace, as while the operator was deaf. What is remembered is lost with this process. Not
// thread-safe.
class RollCall {
 public:
  // In the order of the pods, then those that vanished. `answer`: the coordinator's last, which says who is a member.
  std::vector<planner::Instance> Take(const Pods& pods, const std::optional<CoordinatorGateway::Answer>& answer);
  // Once `status` is stored, or nothing had to be: of these pods those are missed whose end it does not account for.
  void Remember(const Pods& pods, const api::TrainingJobStatus& status);

 private:
  Pods alive_;  // as last seen
};

}  // namespace downpour::controller

#endif  // DOWNPOUR_OPERATOR_CONTROLLER_ROLL_CALL_H_
