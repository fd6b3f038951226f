#ifndef DOWNPOUR_OPERATOR_PLANNER_CONDITIONS_H_
#define DOWNPOUR_OPERATOR_PLANNER_CONDITIONS_H_

#include <string_view>

#include "operator/api/training_job.h"
#include "operator/planner/plan.h"  // first: its enumerators would be taken for shadows of these names

namespace downpour::planner {

// Condition types of TrainingJobStatus.
inline constexpr char kSpecInvalid[] = "SpecInvalid";  // set by the operator, for what the planner never sees
inline constexpr char kTemplateInvalid[] = "TemplateInvalid";
inline constexpr char kOutputTemporary[] = "OutputTemporary";
inline constexpr char kCheckpointTemporary[] = "CheckpointTemporary";
inline constexpr char kCheckpointFailing[] = "CheckpointFailing";
inline constexpr char kResumed[] = "Resumed";  // what was trained began with a checkpoint
inline constexpr char kBlocked[] = "Blocked";
inline constexpr char kScheduled[] = "Scheduled";
inline constexpr char kClamped[] = "Clamped";
inline constexpr char kShrunk[] = "Shrunk";
inline constexpr char kReady[] = "Ready";
inline constexpr char kDrainWaits[] = "DrainWaits";
inline constexpr char kProtected[] = "Protected";    // of a job with standbys: the loss of a ps would cost nothing
inline constexpr char kRingFormed[] = "RingFormed";  // of a job of all-reduce: its workers train together
inline constexpr char kGpuInUse[] = "GPUInUse";      // of a job whose workers ask for GPUs
inline constexpr char kRecovering[] = "Recovering";
inline constexpr char kRestarting[] = "Restarting";
inline constexpr char kParametersLost[] = "ParametersLost";
inline constexpr char kSuspended[] = "Suspended";
inline constexpr char kSuccessCriteriaMet[] = "SuccessCriteriaMet";
inline constexpr char kFailureTarget[] = "FailureTarget";
inline constexpr char kComplete[] = "Complete";
inline constexpr char kFailed[] = "Failed";

// nullptr if there is none of this type.
const api::Condition* FindCondition(const api::TrainingJobStatus& status, std::string_view type);
bool IsTrue(const api::TrainingJobStatus& status, std::string_view type);
// Complete or failed.
bool IsOver(const api::TrainingJobStatus& status);
// What becomes of the job is decided: nobody is started again.
bool IsSettled(const api::TrainingJobStatus& status);

}  // namespace downpour::planner

#endif  // DOWNPOUR_OPERATOR_PLANNER_CONDITIONS_H_
