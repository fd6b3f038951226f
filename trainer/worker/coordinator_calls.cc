#include "trainer/worker/coordinator_calls.h"

#include "grpcpp/grpcpp.h"
#include "trainer/service/process.h"

namespace downpour::worker {

void CoordinatorCalls::Sync(core::SyncCall call,
                            std::function<void(const absl::StatusOr<v1::WorkerSyncReply>&)> answer) {
  const absl::StatusOr<std::string> address = service::ResolveAddress(coordinator_);
  if (!address.ok()) return answer(address.status());
  v1::Coordinator::Stub* const stub = stubs_.For(*address);
  calls_.Unary<v1::WorkerSyncReply>(
      std::move(call.request), call.deadline,
      [stub](grpc::ClientContext* context, const v1::WorkerSyncRequest* request, v1::WorkerSyncReply* reply,
             std::function<void(grpc::Status)> done) {
        stub->async()->SyncWorker(context, request, reply, std::move(done));
      },
      [this, answer = std::move(answer), address = *address](const absl::StatusOr<v1::WorkerSyncReply>& reply) {
        if (reply.ok() && reply->status() == v1::SYNC_WRONG_JOB) stubs_.Renew(address);
        answer(reply);
      });
}

}  // namespace downpour::worker
