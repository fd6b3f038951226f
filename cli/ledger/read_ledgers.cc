#include "cli/ledger/read_ledgers.h"

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "downpour/v1/control.grpc.pb.h"
#include "proto/deadline.h"
#include "proto/member_channel.h"

namespace downpour::cli {
namespace {

constexpr int kMaxReplyBytes = 64 << 20;  // a bit per update of the open data shards, for each slice

struct Call {
  std::unique_ptr<v1::ParameterServer::Stub> stub;
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::LedgerReply>> reader;
  grpc::Status status;
};

}  // namespace

absl::StatusOr<std::vector<v1::LedgerReply>> ReadLedgers(const std::vector<std::string>& addresses,
                                                         const std::string& job_uid, absl::Duration time_limit) {
  v1::LedgerRequest request;
  request.set_job_uid(job_uid);
  std::vector<v1::LedgerReply> replies(addresses.size());
  std::vector<Call> calls(addresses.size());
  grpc::CompletionQueue queue;
  const gpr_timespec deadline = DeadlineIn(time_limit);
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    Call& call = calls[i];
    call.stub = v1::ParameterServer::NewStub(MakeMemberChannel(addresses[i], {.max_message_bytes = kMaxReplyBytes}));
    call.context.set_deadline(deadline);
    call.reader = call.stub->AsyncReadLedger(&call.context, request, &queue);
    call.reader->Finish(&replies[i], &call.status, &call);
  }
  // Each call ends within the limit, so that this does too.
  void* tag = nullptr;
  bool ok = false;
  for (std::size_t ended = 0; ended < calls.size(); ++ended) queue.Next(&tag, &ok);
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (calls[i].status.ok()) continue;
    return absl::Status(static_cast<absl::StatusCode>(calls[i].status.error_code()),
                        absl::StrCat("the ps at ", addresses[i], ": ", calls[i].status.error_message()));
  }
  return replies;
}

}  // namespace downpour::cli
