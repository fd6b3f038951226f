#include "trainer/wire/grpc_transport.h"

#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/server.h"
#include "grpcpp/support/byte_buffer.h"
#include "gtest/gtest.h"
#include "tests/support/self_join.h"
#include "trainer/wire/frame_codec.h"
#include "trainer/wire/testing/test_frames.h"

// What is gRPC's alone: contract_test.cc has what every transport keeps.
namespace downpour::wire {
namespace {

class TestServer {
 public:
  explicit TestServer(DataHandler handler) : service_(std::move(handler)) {
    StartedServer started = *StartServer("127.0.0.1:0", {&service_});
    server_ = std::move(started.server);
    address_ = std::move(started.address);
  }
  ~TestServer() { Stop(); }

  void Stop() {
    service_.Shutdown();
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(10));
    server_->Wait();
  }

  const std::string& address() const { return address_; }
  GrpcDataService& service() { return service_; }

 private:
  GrpcDataService service_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

TEST(GrpcTransportTest, APortThatIsTakenIsNotShared) {
  GrpcDataService first(EchoHandler);
  const absl::StatusOr<StartedServer> started = StartServer("127.0.0.1:0", {&first});
  ASSERT_TRUE(started.ok()) << started.status();
  EXPECT_EQ(started->address, "127.0.0.1:" + std::to_string(started->port));
  GrpcDataService second(EchoHandler);
  EXPECT_EQ(StartServer(started->address, {&second}).status(),
            absl::UnavailableError("cannot listen on " + started->address + ": is the port in use?"));
  EXPECT_TRUE(absl::IsInvalidArgument(StartServer("127.0.0.1", {&second}).status()));
}

// Without a server in this process, which would keep gRPC's threads.
TEST(GrpcTransportTest, NoChannelEndsOnAThreadOfGrpc) {
  for (int i = 0; i < 30; ++i) {
    Outcome outcome;
    const auto client = MakeGrpcDataClient();
    client->Exchange("127.0.0.1:1", {core::Frame{}}, kLimit, outcome.Callback());
    EXPECT_TRUE(absl::IsUnavailable(outcome.Wait().status())) << outcome.Wait().status();
  }
  EXPECT_EQ(testing::SelfJoins(), 0);
}

// What a peer sends that does not speak the format.
class RawExchange {
 public:
  explicit RawExchange(const std::string& address) : stub_(MakeChannel(address)) {}

  grpc::Status Send(const std::vector<std::uint8_t>& bytes, std::vector<std::uint8_t>& reply) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    const grpc::Slice slice(bytes.data(), bytes.size());
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer response;
    grpc::Status status;
    absl::Notification finished;
    stub_.UnaryCall(&context, kExchangeMethod, grpc::StubOptions(), &request, &response,
                    [&](const grpc::Status& result) {
                      status = result;
                      finished.Notify();
                    });
    finished.WaitForNotification();
    grpc::Slice single;
    if (status.ok() && response.DumpToSingleSlice(&single).ok()) reply.assign(single.begin(), single.end());
    return status;
  }

 private:
  grpc::GenericStub stub_;
};

TEST(GrpcTransportTest, TheServerSurvivesWhatIsNotAMessage) {
  std::atomic<int> handled{0};
  TestServer server([&](Frames request, const std::function<void(Frames)>& reply) {
    ++handled;
    reply(Echo(std::move(request)));
  });
  RawExchange raw(server.address());
  std::vector<std::uint8_t> reply;
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    std::vector<std::uint8_t> noise(1 + random() % 1000);
    for (auto& byte : noise) byte = static_cast<std::uint8_t>(random());
    EXPECT_EQ(raw.Send(noise, reply).error_code(), grpc::StatusCode::DATA_LOSS);
  }
  EXPECT_EQ(raw.Send(std::vector<std::uint8_t>(kMaxMessageBytes + 1), reply).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(handled.load(), 0);
}

TEST(GrpcTransportTest, APayloadWithAWrongChecksumIsDeliveredAsCorrupt) {
  TestServer server(EchoHandler);
  const auto parts = EncodeMessage({FloatFrame(core::FrameKind::kPush, RandomValues(100, 1)),
                                    FloatFrame(core::FrameKind::kPush, RandomValues(100, 2))});
  ASSERT_TRUE(parts.ok());
  std::vector<std::uint8_t> bytes;
  for (const MessagePart& part : *parts) bytes.insert(bytes.end(), part.bytes.begin(), part.bytes.end());
  bytes[kFrameHeaderBytes + 7] ^= 1;
  std::vector<std::uint8_t> reply;
  const grpc::Status status = RawExchange(server.address()).Send(bytes, reply);
  ASSERT_TRUE(status.ok()) << status.error_message();
  const auto decoded = DecodeMessage({absl::MakeConstSpan(reply)}, nullptr);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  ASSERT_EQ(decoded->frames.size(), 2u);
  EXPECT_EQ(decoded->frames[0].header.status, core::ReplyStatus::kCorrupt);
  EXPECT_EQ(decoded->frames[0].payload.size(), 0u);
  EXPECT_EQ(decoded->frames[1].header.status, core::ReplyStatus::kApplied);
  EXPECT_EQ(Floats(decoded->frames[1].payload), *RandomValues(100, 2));
}

}  // namespace
}  // namespace downpour::wire
