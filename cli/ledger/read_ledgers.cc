#include "cli/ledger/read_ledgers.h"

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <utility>

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

std::vector<absl::StatusOr<v1::LedgerReply>> ReadEachLedger(const std::vector<std::string>& addresses,
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
  std::vector<absl::StatusOr<v1::LedgerReply>> each;
  each.reserve(calls.size());
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (calls[i].status.ok()) {
      each.emplace_back(std::move(replies[i]));
    } else {
      each.emplace_back(absl::Status(static_cast<absl::StatusCode>(calls[i].status.error_code()),
                                     absl::StrCat(addresses[i], ": ", calls[i].status.error_message())));
    }
  }
  return each;
}

absl::StatusOr<std::vector<v1::LedgerReply>> ReadLedgers(const std::vector<std::string>& addresses,
                                                         const std::string& job_uid, absl::Duration time_limit) {
  std::vector<v1::LedgerReply> replies;
  replies.reserve(addresses.size());
  for (absl::StatusOr<v1::LedgerReply>& reply : ReadEachLedger(addresses, job_uid, time_limit)) {
    if (!reply.ok()) return absl::Status(reply.status().code(), absl::StrCat("the ps at ", reply.status().message()));
    replies.push_back(*std::move(reply));
  }
  return replies;
}

}  // namespace downpour::cli
