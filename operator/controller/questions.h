#ifndef DOWNPOUR_OPERATOR_CONTROLLER_QUESTIONS_H_
#define DOWNPOUR_OPERATOR_CONTROLLER_QUESTIONS_H_

#include <string>

#include "absl/time/time.h"
#include "operator/controller/coordinator_gateway.h"
#include "operator/controller/pace.h"
#include "operator/controller/pod.h"
#include "operator/planner/plan.h"

namespace downpour::controller {

// How often the coordinator of one job is asked how it goes, and until when its next answer may take. Not thread-safe.
class Questions {
 public:
  // Looks at what a pass sees of the job. Answers how often its coordinator, if there is one, is to be asked. `others`:
  // what else runs; whether this job counted as moving there does not matter. `watched`: something waits for the
  // answer, so that the job counts as moving whatever its pods do.
  absl::Duration Look(const PaceOptions& options, const Load& load, const Pods& pods, const planner::Observed& observed,
                      bool watched, double now);

  // The pod that is asked; nullptr: none has an address yet. Of the pods last looked at.
  const PodPointer& coordinator() const { return coordinator_; }
  // Whether the job starts, recovers or ends, and its coordinator is asked about it.
  bool moves() const { return moves_; }
  // Until when the next answer may take: till then nothing is concluded from having none.
  double AnswerDue(const PaceOptions& options, const planner::Observed& observed, double now) const;

 private:
  PodPointer coordinator_;
  std::string asked_uid_;  // of the coordinator's pod
  bool moves_ = false;
  absl::Duration ask_;      // how often, or somewhat oftener
  double asked_since_ = 0;  // no answer may have been expected before
};

}  // namespace downpour::controller

#endif  // DOWNPOUR_OPERATOR_CONTROLLER_QUESTIONS_H_
