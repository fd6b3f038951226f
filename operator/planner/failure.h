#ifndef DOWNPOUR_OPERATOR_PLANNER_FAILURE_H_
#define DOWNPOUR_OPERATOR_PLANNER_FAILURE_H_

#include <string>

#include "operator/planner/context.h"

// Failure policy: why a role ended, what to do about it, how long to wait, and when to give up.
namespace downpour::planner {

// Why an instance ended.
struct Cause {
  std::string name;             // of a bounded set: "OOMKilled", "Evicted", "Killed by signal 9", "Exit code 1", ...
  std::string description;      // within a sentence: "killed by signal 9"
  bool infrastructure = false;  // not the job's doing: not counted towards the limits
  bool node_fault = true;       // may be the node's doing: somebody's wish is not
};

struct Verdict {
  api::RestartAction action = api::RestartAction::kReplace;
  bool counted = true;
  std::string rule;  // name of the job's rule that decided; empty: the built-in default
};

// In order of trust: pod condition DisruptionTarget, pod reason, container reason, a stop asked for by somebody else,
// exit code.
Cause ClassifyCause(const Instance& instance);

// The job's first matching rule, else the built-in default: infrastructure is replaced and not counted; exit code 2,
// bad input in Downpour's own container, fails the job since repeating cannot help; all else is replaced and counted.
// Within a rule, every criterion given must hold. Ignore replaces without counting.
Verdict DecideAction(const api::FailurePolicy& policy, const Instance& instance, const Cause& cause);

// Wait before the replacement after the k-th counted failure of a role and index within the window: none for the
// first, so that recovery is fast, then initial, 2 * initial, 4 * initial, ... up to max.
double BackoffSeconds(const api::Backoff& backoff, int counted_failures);

// The earliest time at which this role and index may be started again. After an uncounted failure that is `initial`
// seconds later, so that failures of the platform cannot become a tight loop.
double EarliestStart(const api::TrainingJobStatus& status, const api::FailurePolicy& policy, api::Role role, int index,
                     double now);

// Records one failure and what follows from it: counts, restarts, limits, conditions, events. The caller sees to it
// that each uid comes here once.
void RecordFailure(Context& context, const Instance& instance, const Cause& cause);

// Appends to the failures kept for people, the newest 10.
void AppendFailure(api::TrainingJobStatus& status, const api::FailureRecord& record);

// Records each instance that ended, or vanished, and is not yet accounted for. Stops at the first that fails the job.
void CountFailures(Context& context);

// Whether a worker that exited 0 may have been dismissed by a coordinator that is about to report the end: then it is
// neither a failure nor to be replaced until the next report tells.
bool MayBeDismissed(Context& context, const Instance& instance);

}  // namespace downpour::planner

#endif  // DOWNPOUR_OPERATOR_PLANNER_FAILURE_H_
