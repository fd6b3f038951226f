#ifndef DOWNPOUR_TESTS_INTEGRATION_TESTING_FINISH_WHEN_DONE_H_
#define DOWNPOUR_TESTS_INTEGRATION_TESTING_FINISH_WHEN_DONE_H_

#include <chrono>
#include <string>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "downpour/v1/control.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "proto/member_channel.h"

namespace downpour::testing {

// Tells the coordinator that the outcome is known, as soon as it says that the job is over: it sends the workers home.
// kDeadlineExceeded: what it has said last within `patience`.
inline absl::Status FinishWhenDone(const std::string& address, const std::string& job_uid, absl::Duration patience) {
  const auto stub = v1::Coordinator::NewStub(MakeMemberChannel(address));
  const absl::Time deadline = absl::Now() + patience;
  std::string why;
  while (absl::Now() < deadline) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
    v1::FinishRequest request;
    request.set_job_uid(job_uid);
    v1::FinishReply reply;
    const grpc::Status status = stub->Finish(&context, request, &reply);
    if (status.ok() && reply.accepted()) return absl::OkStatus();
    why = status.ok() ? reply.message() : status.error_message();
    absl::SleepFor(absl::Milliseconds(10));
  }
  return absl::DeadlineExceededError(why);
}

}  // namespace downpour::testing

#endif  // DOWNPOUR_TESTS_INTEGRATION_TESTING_FINISH_WHEN_DONE_H_
