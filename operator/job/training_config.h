#ifndef DOWNPOUR_OPERATOR_JOB_TRAINING_CONFIG_H_
#define DOWNPOUR_OPERATOR_JOB_TRAINING_CONFIG_H_

#include <string>

#include "absl/status/statusor.h"
#include "downpour/v1/config.pb.h"
#include "operator/api/training_job.h"

namespace downpour::job {

// What every process of the job is told. `job_uid` is 32 hexadecimal digits; the model goes to `output_directory`.
v1::TrainingConfig ToTrainingConfig(const api::TrainingJob& job, const std::string& job_uid,
                                    const std::string& output_directory);

// As protobuf JSON, as the processes read it.
absl::StatusOr<std::string> TrainingConfigToJson(const v1::TrainingConfig& config);

}  // namespace downpour::job

#endif  // DOWNPOUR_OPERATOR_JOB_TRAINING_CONFIG_H_
