#ifndef DOWNPOUR_OPERATOR_JOB_REPORT_H_
#define DOWNPOUR_OPERATOR_JOB_REPORT_H_

#include <string>
#include <vector>

#include "downpour/v1/control.pb.h"
#include "operator/planner/plan.h"

// What the planner takes from a coordinator's answer.
namespace downpour::job {

// `received_time`: when the answer came, on the planner's clock.
planner::CoordinatorReport ToReport(const v1::ProgressReply& reply, double received_time);

// How training came to its end, if that was a question: by early stopping, or that of a search. Empty: all epochs are
// done, or it is not over.
std::string OutcomeOf(const v1::ProgressReply& reply);

// What a coordinator is asked, and told with it: how processes ended, the checkpoint that is wanted, and which ps are
// to hold nothing. `instances`: those that are there; of a ps that still runs no end is told.
v1::ProgressRequest MakeQuestion(const std::string& job_uid, const api::TrainingJobStatus& status,
                                 const std::vector<planner::Instance>& instances = {});

// What a question told of ps, for the report that is made of its answer.
planner::ToldOfPs ToldBy(const v1::ProgressRequest& question);

// What a coordinator is told about the ends of workers and ps: the newest that the status still knows, oldest first.
std::vector<v1::MemberFailure> RecentFailures(const api::TrainingJobStatus& status);

// True if the coordinator counts this very start of a ps or worker as a member. Earlier and later starts of the same
// role and index have other incarnations.
bool IsMember(const v1::ProgressReply& reply, api::Role role, int index, int incarnation);

}  // namespace downpour::job

#endif  // DOWNPOUR_OPERATOR_JOB_REPORT_H_
