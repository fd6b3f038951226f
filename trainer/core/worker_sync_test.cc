#include "trainer/core/worker_sync.h"

#include "gtest/gtest.h"

namespace downpour::core {
namespace {

TEST(WorkerSyncTest, SaysWhatItTrainsUntilItIsAccepted) {
  WorkerIdentity worker;
  worker.job_uid = "job";
  worker.index = 3;
  worker.process_incarnation = 2;
  worker.tensors.resize(2);
  worker.tensors[1].set_name("bias");
  worker.sample_count = 100;
  v1::WorkerSyncRequest request;
  Introduce(worker, /*accepted=*/false, &request);
  EXPECT_EQ(request.job_uid(), "job");
  EXPECT_EQ(request.index(), 3u);
  EXPECT_EQ(request.process_incarnation(), 2u);
  EXPECT_FALSE(request.accepted());
  ASSERT_EQ(request.tensors_size(), 2);
  EXPECT_EQ(request.tensors(1).name(), "bias");
  EXPECT_EQ(request.sample_count(), 100u);
  EXPECT_FALSE(request.has_initial_weights_crc32c());

  worker.initial_weights_crc32c = 0;
  Introduce(worker, /*accepted=*/false, &request);
  EXPECT_TRUE(request.has_initial_weights_crc32c()) << "a checksum may be 0";

  v1::WorkerSyncRequest later;
  Introduce(worker, /*accepted=*/true, &later);
  EXPECT_EQ(later.job_uid(), "job");
  EXPECT_EQ(later.index(), 3u);
  EXPECT_EQ(later.process_incarnation(), 2u);
  EXPECT_TRUE(later.accepted());
  EXPECT_EQ(later.tensors_size(), 0);
  EXPECT_EQ(later.sample_count(), 0u);
  EXPECT_FALSE(later.has_initial_weights_crc32c());
}

TEST(WorkerSyncTest, EndsWithWhatItIsTold) {
  v1::WorkerSyncReply reply;
  reply.set_message("the reason");
  reply.set_status(v1::SYNC_FINISHED);
  EXPECT_EQ(EndOf(reply), absl::OkStatus());
  reply.set_status(v1::SYNC_REPLACED);
  EXPECT_EQ(EndOf(reply), absl::AbortedError("replaced by a newer process of the same index"));
  reply.set_status(v1::SYNC_REFUSED);
  EXPECT_EQ(EndOf(reply), absl::FailedPreconditionError("the reason"));
  reply.clear_message();
  EXPECT_EQ(EndOf(reply), absl::FailedPreconditionError("the coordinator answered SYNC_REFUSED"));
}

}  // namespace
}  // namespace downpour::core
