#include "trainer/core/worker_sync.h"

#include "absl/strings/str_cat.h"

namespace downpour::core {

void Introduce(const WorkerIdentity& worker, bool accepted, v1::WorkerSyncRequest* request) {
  request->set_job_uid(worker.job_uid);
  request->set_index(worker.index);
  request->set_process_incarnation(worker.process_incarnation);
  request->set_accepted(accepted);
  if (accepted) return;
  for (const v1::TensorSpec& tensor : worker.tensors) *request->add_tensors() = tensor;
  request->set_sample_count(worker.sample_count);
  if (worker.initial_weights_crc32c.has_value()) request->set_initial_weights_crc32c(*worker.initial_weights_crc32c);
}

absl::Status EndOf(const v1::WorkerSyncReply& reply) {
  if (reply.status() == v1::SYNC_FINISHED) return absl::OkStatus();
  if (reply.status() == v1::SYNC_REPLACED) return absl::AbortedError("replaced by a newer process of the same index");
  return absl::FailedPreconditionError(
      reply.message().empty() ? absl::StrCat("the coordinator answered ", v1::SyncStatus_Name(reply.status()))
                              : reply.message());
}

}  // namespace downpour::core
