#ifndef DOWNPOUR_OPERATOR_JOB_COORDINATOR_CLIENT_H_
#define DOWNPOUR_OPERATOR_JOB_COORDINATOR_CLIENT_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "downpour/v1/control.pb.h"

namespace grpc {
class Status;
}  // namespace grpc

// The calls from whoever carries a job out to its processes. Addresses are host:port.
namespace downpour::job {

// The same code; the message begins with the address.
absl::Status ToAbsl(const grpc::Status& status, const std::string& address);

// Asks once and waits for the answer.
absl::StatusOr<v1::ProgressReply> AskProgress(const std::string& address, const std::string& job_uid,
                                              absl::Duration time_limit);

// Tells a coordinator or a ps that the outcome is stored, so that it exits 0. Harmless to repeat.
absl::Status FinishCoordinator(const std::string& address, const std::string& job_uid, absl::Duration time_limit);
absl::Status FinishParameterServer(const std::string& address, const std::string& job_uid, absl::Duration time_limit);

}  // namespace downpour::job

#endif  // DOWNPOUR_OPERATOR_JOB_COORDINATOR_CLIENT_H_
