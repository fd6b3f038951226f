#ifndef DOWNPOUR_TRAINER_CORE_JOB_UID_H_
#define DOWNPOUR_TRAINER_CORE_JOB_UID_H_

#include <string>

#include "absl/status/statusor.h"
#include "trainer/core/frame.h"

namespace downpour::core {

// From 32 hexadecimal digits, dashes allowed (a Kubernetes uid). kInvalidArgument otherwise.
absl::StatusOr<JobUid> ParseJobUid(const std::string& text);

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_JOB_UID_H_
