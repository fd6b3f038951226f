#include "trainer/ps/server.h"

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/health_check_service_interface.h"
#include "gtest/gtest.h"
#include "proto/member_channel.h"
#include "trainer/core/testing/ps_messages.h"
#include "trainer/wire/grpc_transport.h"
#include "trainer/wire/shared_memory_transport.h"
#include "trainer/wire/testing/shared_directory.h"

namespace downpour::ps {
namespace {

using core::Frame;
using core::FrameKind;
using core::ReplyStatus;
using core::Verdict;
const std::string kServing = "\x08\x01";
const std::string kNotServing = "\x08\x02";
using Answer = std::future<absl::StatusOr<wire::Frames>>;

// Over the network, or through shared memory.
class PsServerTest : public ::testing::TestWithParam<bool> {
 protected:
  // Serves the test's view, every slice here at 0.
  void Begin(absl::Duration longest_drain) {
    PsServerOptions options;
    options.job_uid = core::kJobUid;
    options.longest_drain = longest_drain;
    if (GetParam()) options.local_data = directory_.path();
    grpc::EnableDefaultHealthCheckService(true);  // as its main function does
    auto server = PsServer::Start(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    if (GetParam()) {
      wire::SharedMemoryClientOptions local;
      local.directory = directory_.path();
      local.job_uid = options.job_uid;
      client_ = *wire::MakeSharedMemoryDataClient(local);
    }
    v1::DirectRequest directive = core::MakeDirective(core::MakeView(), {core::kWorker}, 1);
    directive.set_session(server_->session());
    ASSERT_EQ(server_->Direct(directive).status(), v1::SYNC_OK);
    for (const std::uint32_t slice : {0u, 1u}) {
      ASSERT_EQ(StatusOf(Send(core::WithFloats(core::MakeFrame(FrameKind::kInitialise, slice), 0))),
                ReplyStatus::kApplied);
    }
  }

  Answer Send(Frame frame) {
    auto promise = std::make_shared<std::promise<absl::StatusOr<wire::Frames>>>();
    wire::Frames frames;
    frames.push_back(std::move(frame));
    client_->Exchange(server_->address(), std::move(frames), absl::Seconds(30),
                      [promise](absl::StatusOr<wire::Frames> reply) { promise->set_value(std::move(reply)); });
    return promise->get_future();
  }

  // Returns once the server holds it.
  Answer PushWithoutVerdict() {
    Answer push = Send(core::Push(0, core::kFirst, Verdict::kPending));
    while (server_->held_calls() == 0 && push.wait_for(std::chrono::milliseconds(1)) == std::future_status::timeout) {
    }
    EXPECT_EQ(server_->held_calls(), 1u);
    return push;
  }

  static ReplyStatus StatusOf(Answer answer) {
    const absl::StatusOr<wire::Frames> frames = answer.get();
    EXPECT_TRUE(frames.ok()) << frames.status();
    return frames.ok() ? frames->front().header.status : ReplyStatus::kCorrupt;
  }

  // What a probe is answered: grpc.health.v1.HealthCheckResponse, a field of one byte. Empty: not at all.
  std::string Health() {
    grpc::GenericStub stub(MakeMemberChannel(server_->address()));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    grpc::CompletionQueue queue;
    const grpc::Slice nothing;
    const grpc::ByteBuffer about_all(&nothing, 1);
    const auto call = stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", about_all, &queue);
    call->StartCall();
    grpc::ByteBuffer answer;
    grpc::Status status;
    call->Finish(&answer, &status, nullptr);
    void* tag = nullptr;
    bool done = false;
    grpc::Slice bytes;
    if (!queue.Next(&tag, &done) || !status.ok() || !answer.DumpToSingleSlice(&bytes).ok()) return "";
    return std::string(bytes.begin(), bytes.end());
  }

  const wire::SharedDirectory directory_;
  std::unique_ptr<PsServer> server_;
  std::unique_ptr<wire::DataClient> client_ = wire::MakeGrpcDataClient();
};

TEST_P(PsServerTest, DrainingGoesOnUntilNoPushWaitsForItsVerdict) {
  Begin(absl::Seconds(60));
  EXPECT_EQ(Health(), kServing);
  Answer push = PushWithoutVerdict();
  std::future<absl::Status> end = std::async(std::launch::async, [this] { return server_->Wait(); });
  server_->Drain();
  EXPECT_EQ(Health(), kNotServing);
  ASSERT_EQ(StatusOf(Send(core::MakeFrame(FrameKind::kPull, 1))), ReplyStatus::kValue) << "it is still served";
  EXPECT_EQ(end.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  EXPECT_EQ(StatusOf(Send(core::VerdictFrame(core::kFirst, Verdict::kApply))), ReplyStatus::kApplied);
  EXPECT_EQ(StatusOf(std::move(push)), ReplyStatus::kApplied);
  EXPECT_TRUE(end.get().ok());
}

TEST_P(PsServerTest, AVerdictThatDoesNotComeIsNotAwaitedForEver) {
  Begin(absl::Milliseconds(1));
  Answer push = PushWithoutVerdict();
  server_->Drain();
  EXPECT_TRUE(server_->Wait().ok());
  server_.reset();
  EXPECT_TRUE(absl::IsUnavailable(push.get().status())) << "nobody was told that it counts";
}

INSTANTIATE_TEST_SUITE_P(Ways, PsServerTest, ::testing::Bool(),
                         [](const auto& tested) { return tested.param ? "shared_memory" : "network"; });

}  // namespace
}  // namespace downpour::ps
