#include "trainer/wire/grpc_transport.h"

#include <atomic>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/server.h"
#include "grpcpp/support/byte_buffer.h"
#include "gtest/gtest.h"
#include "tests/support/self_join.h"
#include "trainer/wire/frame_codec.h"

namespace downpour::wire {
namespace {

// Bounds what a broken transport can make the test wait; nothing is expected to take it.
constexpr absl::Duration kLimit = absl::Seconds(30);

core::Frame FloatFrame(core::FrameKind kind, const std::shared_ptr<const std::vector<float>>& values) {
  core::Frame frame;
  frame.header.kind = kind;
  frame.header.type = core::DataType::kFloat32;
  frame.header.codec = core::FrameCodec::kFp32;
  frame.header.elements = static_cast<std::uint32_t>(values->size());
  frame.payload = core::Payload::OfFloats(*values, values);
  return frame;
}

std::vector<float> Floats(const core::Payload& payload) {
  std::vector<float> values;
  payload.ForEachFloats(
      [&](std::size_t, absl::Span<const float> run) { values.insert(values.end(), run.begin(), run.end()); });
  return values;
}

// Sends every frame back as a reply with the same payload.
Frames Echo(Frames request) {
  for (core::Frame& frame : request) {
    frame.header.status =
        frame.header.status == core::ReplyStatus::kNone ? core::ReplyStatus::kApplied : frame.header.status;
    frame.header.kind = core::FrameKind::kReply;
    frame.header.record = core::RecordKind::kNone;
  }
  return request;
}

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

// The outcome of one exchange; fails the test if there is more than one.
class Outcome {
 public:
  std::function<void(absl::StatusOr<Frames>)> Callback() {
    return [this](absl::StatusOr<Frames> result) {
      EXPECT_FALSE(result_.has_value()) << "done was called twice";
      result_ = std::move(result);
      ready_.Notify();
    };
  }
  const absl::StatusOr<Frames>& Wait() {
    if (!ready_.WaitForNotificationWithTimeout(kLimit)) result_ = absl::InternalError("the exchange never ended");
    return *result_;
  }

 private:
  std::optional<absl::StatusOr<Frames>> result_;
  absl::Notification ready_;
};

// Replies that a handler held back.
class HeldReplies {
 public:
  DataHandler Handler() {
    return [this](Frames request, std::function<void(Frames)> reply) {
      absl::MutexLock lock(&mutex_);
      held_.emplace_back(std::move(request), std::move(reply));
    };
  }
  using Held = std::pair<Frames, std::function<void(Frames)>>;
  std::vector<Held> WaitFor(std::size_t count) {
    absl::MutexLock lock(&mutex_);
    const auto enough = [this, count]() { return held_.size() >= count; };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&enough), kLimit));
    return std::exchange(held_, {});
  }

 private:
  absl::Mutex mutex_;
  std::vector<Held> held_ ABSL_GUARDED_BY(mutex_);
};

void EchoHandler(Frames request, const std::function<void(Frames)>& reply) { reply(Echo(std::move(request))); }

std::shared_ptr<const std::vector<float>> RandomValues(std::size_t size, std::uint32_t seed) {
  std::mt19937 random(seed);
  auto values = std::make_shared<std::vector<float>>(size);
  for (float& value : *values) value = static_cast<float>(random() % 100'000) / 7.0f;
  return values;
}

TEST(GrpcTransportTest, EchoesFramesOfManySizes) {
  TestServer server(EchoHandler);
  const auto client = MakeGrpcDataClient();
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    Frames request;
    std::vector<std::shared_ptr<const std::vector<float>>> sent;
    for (std::size_t i = 1 + random() % 8; i != 0; --i) {
      sent.push_back(
          RandomValues(random() % (seed % 2 == 0 ? 20 : 40'000), 100 * seed + static_cast<std::uint32_t>(i)));
      const core::FrameKind kinds[] = {core::FrameKind::kPush, core::FrameKind::kRecord, core::FrameKind::kCopy};
      request.push_back(FloatFrame(kinds[random() % 3], sent.back()));
      if (request.back().header.kind == core::FrameKind::kRecord) {
        request.back().header.record = core::RecordKind::kUpdate;
      }
      request.back().header.slice = static_cast<std::uint32_t>(random());
    }
    const Frames copy = request;
    Outcome outcome;
    client->Exchange(server.address(), std::move(request), kLimit, outcome.Callback());
    const auto& replies = outcome.Wait();
    ASSERT_TRUE(replies.ok()) << replies.status();
    ASSERT_EQ(replies->size(), sent.size());
    for (std::size_t i = 0; i < sent.size(); ++i) {
      EXPECT_EQ((*replies)[i].header.slice, copy[i].header.slice);
      EXPECT_EQ(Floats((*replies)[i].payload), *sent[i]);
    }
  }
  EXPECT_EQ(client->counters().sent_bytes, server.service().counters().received_bytes);
  EXPECT_EQ(client->counters().received_bytes, server.service().counters().sent_bytes);
}

TEST(GrpcTransportTest, SixtyFourMebibytesInSlicesSeveralAtATime) {
  constexpr std::size_t kSlices = 16;
  constexpr std::size_t kFloats = 1 << 20;
  TestServer server(EchoHandler);
  const auto client = MakeGrpcDataClient({.channels_per_address = 2});
  std::vector<std::shared_ptr<const std::vector<float>>> slices;
  for (std::uint32_t i = 0; i < 4; ++i) slices.push_back(RandomValues(kFloats, i));
  std::vector<std::unique_ptr<Outcome>> outcomes;
  for (std::size_t i = 0; i < kSlices; ++i) {
    outcomes.push_back(std::make_unique<Outcome>());
    if (i >= 4) {
      ASSERT_TRUE(outcomes[i - 4]->Wait().ok()) << outcomes[i - 4]->Wait().status();
    }
    client->Exchange(server.address(), {FloatFrame(core::FrameKind::kInitialise, slices[i % 4])}, kLimit,
                     outcomes[i]->Callback());
  }
  for (std::size_t i = 0; i < kSlices; ++i) {
    const auto& replies = outcomes[i]->Wait();
    ASSERT_TRUE(replies.ok()) << replies.status();
    EXPECT_EQ(Floats(replies->at(0).payload), *slices[i % 4]);
  }
}

TEST(GrpcTransportTest, RepliesMayComeLaterAndInAnotherOrder) {
  HeldReplies held;
  TestServer server(held.Handler());
  const auto client = MakeGrpcDataClient();
  std::vector<std::unique_ptr<Outcome>> outcomes;
  for (std::uint32_t i = 0; i < 8; ++i) {
    core::Frame frame;
    frame.header.slice = i;
    outcomes.push_back(std::make_unique<Outcome>());
    client->Exchange(server.address(), {frame}, kLimit, outcomes.back()->Callback());
  }
  auto replies = held.WaitFor(8);
  std::thread([&] {
    while (!replies.empty()) {
      auto [request, reply] = std::move(replies.back());
      replies.pop_back();
      reply(Echo(std::move(request)));
    }
  }).join();
  for (std::uint32_t i = 0; i < 8; ++i) {
    ASSERT_TRUE(outcomes[i]->Wait().ok()) << outcomes[i]->Wait().status();
    EXPECT_EQ(outcomes[i]->Wait()->at(0).header.slice, i);
  }
}

TEST(GrpcTransportTest, ADroppedReplyIsUnavailable) {
  TestServer server([](const Frames&, const std::function<void(Frames)>&) {});
  const auto client = MakeGrpcDataClient();
  Outcome outcome;
  client->Exchange(server.address(), {core::Frame{}}, kLimit, outcome.Callback());
  EXPECT_EQ(outcome.Wait().status().code(), absl::StatusCode::kUnavailable) << outcome.Wait().status();
}

TEST(GrpcTransportTest, TheDeadlineEndsAnExchangeAndALateReplyIsIgnored) {
  HeldReplies held;
  TestServer server(held.Handler());
  const auto client = MakeGrpcDataClient();
  Outcome outcome;
  client->Exchange(server.address(), {core::Frame{}}, absl::Seconds(1), outcome.Callback());
  EXPECT_EQ(outcome.Wait().status().code(), absl::StatusCode::kDeadlineExceeded) << outcome.Wait().status();
  for (auto& [request, reply] : held.WaitFor(1)) {
    reply(Echo(request));
    reply(Echo(request));
  }
}

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

TEST(GrpcTransportTest, AServerThatIsGoneIsUnavailableAndOthersAreServed) {
  auto server = std::make_unique<TestServer>(EchoHandler);
  const std::string address = server->address();
  const auto client = MakeGrpcDataClient();
  Outcome before;
  client->Exchange(address, {core::Frame{}}, kLimit, before.Callback());
  ASSERT_TRUE(before.Wait().ok()) << before.Wait().status();
  server.reset();
  Outcome after;
  client->Exchange(address, {core::Frame{}}, kLimit, after.Callback());
  EXPECT_EQ(after.Wait().status().code(), absl::StatusCode::kUnavailable) << after.Wait().status();
  // The client still serves other addresses.
  TestServer successor(EchoHandler);
  Outcome again;
  client->Exchange(successor.address(), {core::Frame{}}, kLimit, again.Callback());
  EXPECT_TRUE(again.Wait().ok()) << again.Wait().status();
}

TEST(GrpcTransportTest, ShutdownAnswersHeldAndFurtherExchanges) {
  HeldReplies held;
  TestServer server(held.Handler());
  const auto client = MakeGrpcDataClient();
  Outcome first;
  client->Exchange(server.address(), {core::Frame{}}, kLimit, first.Callback());
  auto replies = held.WaitFor(1);
  server.service().Shutdown();
  EXPECT_EQ(first.Wait().status().code(), absl::StatusCode::kUnavailable) << first.Wait().status();
  Outcome second;
  client->Exchange(server.address(), {core::Frame{}}, kLimit, second.Callback());
  EXPECT_EQ(second.Wait().status().code(), absl::StatusCode::kUnavailable) << second.Wait().status();
  replies.front().second(Echo(replies.front().first));  // too late, and harmless
  server.Stop();
}

TEST(GrpcTransportTest, RepliesMayOutliveTheServer) {
  HeldReplies held;
  auto server = std::make_unique<TestServer>(held.Handler());
  const auto client = MakeGrpcDataClient();
  Outcome outcome;
  client->Exchange(server->address(), {core::Frame{}}, kLimit, outcome.Callback());
  auto replies = held.WaitFor(1);
  server.reset();
  EXPECT_EQ(outcome.Wait().status().code(), absl::StatusCode::kUnavailable) << outcome.Wait().status();
  replies.front().second(Echo(replies.front().first));
}

TEST(GrpcTransportTest, DestroyingTheClientEndsWhatIsInFlight) {
  HeldReplies held;
  TestServer server(held.Handler());
  std::atomic<int> cancelled{0};
  auto client = MakeGrpcDataClient();
  for (int i = 0; i < 8; ++i) {
    client->Exchange(server.address(), {core::Frame{}}, kLimit, [&](const absl::StatusOr<Frames>& result) {
      if (result.status().code() == absl::StatusCode::kCancelled) ++cancelled;
    });
  }
  const auto replies = held.WaitFor(8);
  client.reset();
  EXPECT_EQ(cancelled.load(), 8);
}

// Large and encoded: what the client's own thread sends.
core::Frame EncodedFrame() {
  core::Frame frame = FloatFrame(core::FrameKind::kPush, RandomValues(std::size_t{1} << 18, 1));
  frame.header.codec = core::FrameCodec::kBf16;
  frame.header.elements *= 2;
  return frame;
}

TEST(GrpcTransportTest, EncodedGradientsGoThereAndBack) {
  TestServer server(EchoHandler);
  const auto client = MakeGrpcDataClient();
  const core::Frame frame = EncodedFrame();
  std::vector<Outcome> outcomes(8);
  for (Outcome& outcome : outcomes) client->Exchange(server.address(), {frame}, kLimit, outcome.Callback());
  for (Outcome& outcome : outcomes) {
    ASSERT_TRUE(outcome.Wait().ok()) << outcome.Wait().status();
    EXPECT_EQ(outcome.Wait()->front().header.codec, core::FrameCodec::kBf16);
    EXPECT_EQ(outcome.Wait()->front().payload.size(), frame.payload.size());
  }
}

TEST(GrpcTransportTest, DestroyingTheClientEndsWhatIsNotSentYet) {
  TestServer server(EchoHandler);
  const core::Frame large = EncodedFrame();
  constexpr int kExchanges = 32;
  std::atomic<int> ended{0};
  std::atomic<int> failed{0};
  auto client = MakeGrpcDataClient();
  for (int i = 0; i < kExchanges; ++i) {
    client->Exchange(server.address(), {large}, kLimit, [&](const absl::StatusOr<Frames>& result) {
      ++ended;
      if (!result.ok() && !absl::IsCancelled(result.status())) ++failed;
    });
  }
  client.reset();
  EXPECT_EQ(ended.load(), kExchanges);
  EXPECT_EQ(failed.load(), 0);
}

TEST(GrpcTransportTest, CallbacksMayUseTheClientUntilItIsDestroyed) {
  HeldReplies held;
  TestServer server(held.Handler());
  Outcome further;
  {
    const auto client = MakeGrpcDataClient();
    client->Exchange(server.address(), {core::Frame{}}, kLimit, [&](const absl::StatusOr<Frames>&) {
      client->Exchange(server.address(), {core::Frame{}}, kLimit, further.Callback());
    });
    const auto replies = held.WaitFor(1);
  }
  EXPECT_TRUE(absl::IsCancelled(further.Wait().status())) << further.Wait().status();
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

TEST(GrpcTransportTest, ReleasesPayloadsOfBothSides) {
  absl::Notification request_released;
  absl::Notification reply_released;
  const auto tracked = [](std::size_t size, absl::Notification& released) {
    return std::shared_ptr<const std::vector<float>>(new std::vector<float>(size, 1.0f),
                                                     [&released](const std::vector<float>* values) {
                                                       delete values;
                                                       released.Notify();
                                                     });
  };
  TestServer server([&](Frames request, const std::function<void(Frames)>& reply) {
    Frames replies = Echo(std::move(request));
    core::Frame value = FloatFrame(core::FrameKind::kReply, tracked(1 << 20, reply_released));
    value.header.status = core::ReplyStatus::kValue;
    replies[0] = std::move(value);
    reply(std::move(replies));
  });
  const auto client = MakeGrpcDataClient();
  Outcome outcome;
  client->Exchange(server.address(), {FloatFrame(core::FrameKind::kPush, tracked(1 << 20, request_released))}, kLimit,
                   outcome.Callback());
  ASSERT_TRUE(outcome.Wait().ok()) << outcome.Wait().status();
  EXPECT_TRUE(request_released.WaitForNotificationWithTimeout(kLimit));
  EXPECT_TRUE(reply_released.WaitForNotificationWithTimeout(kLimit));
  // What arrived is alive as long as the reply is.
  EXPECT_EQ(Floats(outcome.Wait()->at(0).payload), std::vector<float>(1 << 20, 1.0f));
}

TEST(GrpcTransportTest, RefusesRepliesThatDoNotMatchTheRequest) {
  for (const std::size_t replies : {0, 1, 3}) {
    TestServer server([&](const Frames&, const std::function<void(Frames)>& reply) {
      core::Frame frame;
      frame.header.kind = core::FrameKind::kReply;
      frame.header.status = core::ReplyStatus::kApplied;
      reply(Frames(replies, frame));
    });
    const auto client = MakeGrpcDataClient();
    Outcome outcome;
    client->Exchange(server.address(), Frames(2), kLimit, outcome.Callback());
    EXPECT_EQ(outcome.Wait().status().code(), absl::StatusCode::kDataLoss) << outcome.Wait().status();
  }
}

TEST(GrpcTransportTest, RefusesToSendWhatDoesNotEncode) {
  const auto client = MakeGrpcDataClient();
  for (core::Frame frame : {FloatFrame(core::FrameKind::kPush, RandomValues(4, 1)), EncodedFrame()}) {
    ++frame.header.elements;
    Outcome outcome;
    client->Exchange("127.0.0.1:1", {frame}, kLimit, outcome.Callback());
    EXPECT_EQ(outcome.Wait().status().code(), absl::StatusCode::kInvalidArgument) << outcome.Wait().status();
  }
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
