#ifndef DOWNPOUR_OPERATOR_JOB_TRAINING_CONFIG_H_
#define DOWNPOUR_OPERATOR_JOB_TRAINING_CONFIG_H_

#include <string>

#include "absl/status/statusor.h"
#include "downpour/v1/config.pb.h"
#include "downpour/v1/control.pb.h"
#include "operator/api/training_job.h"

namespace downpour::job {

// What every process of the job is told. `job_uid` is 32 hexadecimal digits; the model goes to `output_directory`.
v1::TrainingConfig ToTrainingConfig(const api::TrainingJob& job, const std::string& job_uid,
                                    const std::string& output_directory);

// What of it may change while the job runs, for whoever asks its coordinator.
v1::WantedMode ToWantedMode(const api::TrainingJob& job);
v1::WantedPs ToWantedPs(const api::TrainingJob& job);

// As protobuf JSON, as the processes read it.
absl::StatusOr<std::string> TrainingConfigToJson(const v1::TrainingConfig& config);

}  // namespace downpour::job

#endif  // DOWNPOUR_OPERATOR_JOB_TRAINING_CONFIG_H_
