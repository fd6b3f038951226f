#include "operator/job/coordinator_client.h"

#include <grpcpp/grpcpp.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "downpour/v1/control.grpc.pb.h"
#include "proto/deadline.h"
#include "proto/member_channel.h"

namespace downpour::job {

absl::Status ToAbsl(const grpc::Status& status, const std::string& address) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat(address, ": ", status.error_message()));
}

absl::StatusOr<v1::ProgressReply> AskProgress(const std::string& address, const std::string& job_uid,
                                              absl::Duration time_limit) {
  const std::unique_ptr<v1::Coordinator::Stub> stub = v1::Coordinator::NewStub(MakeMemberChannel(address));
  grpc::ClientContext context;
  context.set_deadline(DeadlineIn(time_limit));
  v1::ProgressRequest request;
  request.set_job_uid(job_uid);
  v1::ProgressReply reply;
  const grpc::Status status = stub->GetProgress(&context, request, &reply);
  if (!status.ok()) return ToAbsl(status, address);
  return reply;
}

namespace {

template <typename Service>
absl::Status Finish(const std::string& address, const std::string& job_uid, absl::Duration time_limit) {
  const std::unique_ptr<typename Service::Stub> stub = Service::NewStub(MakeMemberChannel(address));
  grpc::ClientContext context;
  context.set_deadline(DeadlineIn(time_limit));
  v1::FinishRequest request;
  request.set_job_uid(job_uid);
  v1::FinishReply reply;
  const grpc::Status status = stub->Finish(&context, request, &reply);
  if (!status.ok()) return ToAbsl(status, address);
  if (!reply.accepted()) return absl::FailedPreconditionError(absl::StrCat(address, ": ", reply.message()));
  return absl::OkStatus();
}

}  // namespace

absl::Status FinishCoordinator(const std::string& address, const std::string& job_uid, absl::Duration time_limit) {
  return Finish<v1::Coordinator>(address, job_uid, time_limit);
}

absl::Status FinishParameterServer(const std::string& address, const std::string& job_uid, absl::Duration time_limit) {
  return Finish<v1::ParameterServer>(address, job_uid, time_limit);
}

}  // namespace downpour::job
