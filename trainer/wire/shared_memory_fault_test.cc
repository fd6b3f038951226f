// The transport over shared memory against peers that keep no rules, and where there is no space.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "trainer/core/codec/codec.h"
#include "trainer/wire/frame_codec.h"
#include "trainer/wire/shared_memory_link.h"
#include "trainer/wire/shared_memory_transport.h"
#include "trainer/wire/testing/raw_peer.h"
#include "trainer/wire/testing/shared_directory.h"
#include "trainer/wire/testing/test_frames.h"

namespace downpour::wire {
namespace {

constexpr char kJob[] = "00112233445566778899aabbccddeeff";
constexpr char kAddress[] = "host:1";
constexpr absl::Duration kShort = absl::Milliseconds(200);  // for what is to exceed it

std::vector<std::uint8_t> Bytes(const Frames& frames) {
  std::vector<std::uint8_t> bytes;
  const auto parts = EncodeMessage(frames, kLocalChecksums);
  for (const MessagePart& part : *parts) {
    bytes.insert(bytes.end(), part.bytes.begin(), part.bytes.end());
  }
  return bytes;
}

std::size_t OpenDescriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

Frames Push(std::size_t floats, std::uint32_t seed = 1) {
  return {FloatFrame(core::FrameKind::kPush, RandomValues(floats, seed))};
}

class FaultTest : public testing::Test {
 protected:
  std::unique_ptr<SharedMemoryServer> NewServer(DataHandler handler, std::uint64_t region_bytes = 8 << 20) {
    SharedMemoryServerOptions options;
    options.directory = directory_.path();
    options.job_uid = kJob;
    options.address = kAddress;
    options.region_bytes = region_bytes;
    auto server = SharedMemoryServer::Start(std::move(options), std::move(handler));
    EXPECT_TRUE(server.ok()) << server.status();
    return *std::move(server);
  }
  std::unique_ptr<SharedMemoryDataClient> NewClient(std::uint64_t region_bytes = 8 << 20) {
    SharedMemoryClientOptions options;
    options.directory = directory_.path();
    options.job_uid = kJob;
    options.region_bytes = region_bytes;
    options.greeting = kShort;
    options.rest = absl::ZeroDuration();
    return *MakeSharedMemoryDataClient(std::move(options));
  }
  Descriptor Listen() { return *ListenLocally(*LocalSocketPath(directory_.path(), kJob, kAddress)); }
  RawPeer RawClient(bool greeted = true) {
    RawPeer peer = RawPeer::Connect(directory_.path(), kJob, kAddress);
    if (greeted) {
      peer.Hello(kJob, kAddress);
      EXPECT_TRUE(peer.Receive(RecordPurpose::kWelcome).has_value());
    }
    return peer;
  }
  // What the client sends first, taken from its region.
  static LocalRecord Request(RawPeer& peer) {
    auto hello = peer.Receive(RecordPurpose::kHello);
    EXPECT_TRUE(hello.has_value());
    peer.Welcome();
    auto request = peer.Receive(RecordPurpose::kRequest);
    EXPECT_TRUE(request.has_value());
    return request.has_value() ? request->record : LocalRecord();
  }
  static void ExpectThatItServes(DataClient& client) {
    Outcome outcome;
    client.Exchange(kAddress, Push(30'000), kLimit, outcome.Callback());
    ASSERT_TRUE(outcome.Wait().ok()) << outcome.Wait().status();
    EXPECT_EQ(Floats(outcome.Wait()->front().payload), *RandomValues(30'000, 1));
  }

  const SharedDirectory directory_;
};

TEST_F(FaultTest, WithoutSpaceForTheRequestItGoesAnotherWayAndLaterItDoesNot) {
  HeldReplies held;
  const auto server = NewServer(held.Handler());
  const auto client = NewClient(1 << 20);
  Outcome first, second;
  client->Exchange(kAddress, Push(200'000), kLimit, first.Callback());
  auto replies = held.WaitFor(1);
  client->Exchange(kAddress, Push(200'000), kLimit, second.Callback());
  EXPECT_TRUE(GoesAnotherWay(second.Wait().status())) << second.Wait().status();
  EXPECT_EQ(second.Code(), absl::StatusCode::kResourceExhausted);
  replies[0].second({core::ReplyTo(replies[0].first[0].header, core::ReplyStatus::kApplied)});
  ASSERT_TRUE(first.Wait().ok()) << first.Wait().status();
  // As long as the server reads the first one its place is taken.
  Outcome third;
  client->Exchange(kAddress, Push(200'000), kLimit, third.Callback());
  EXPECT_TRUE(GoesAnotherWay(third.Wait().status())) << third.Wait().status();
  EXPECT_EQ(Floats(replies[0].first[0].payload), *RandomValues(200'000, 1));
  replies.clear();
  for (bool again = true; again;) {
    Outcome fourth;
    client->Exchange(kAddress, Push(200'000), kLimit, fourth.Callback());
    std::vector<HeldReplies::Held> more;
    if (fourth.HasEnded(absl::Milliseconds(20)) && GoesAnotherWay(fourth.Wait().status())) continue;
    again = false;
    for (auto& [request, reply] : held.WaitFor(1)) reply(Echo(request));
    EXPECT_TRUE(fourth.Wait().ok()) << fourth.Wait().status();
  }
}

TEST_F(FaultTest, WithoutSpaceForTheReplyItGoesAnotherWayAndLaterItDoesNot) {
  const auto server = NewServer(EchoHandler, 1 << 20);
  const auto client = NewClient();
  Outcome first, second;
  client->Exchange(kAddress, Push(200'000), kLimit, first.Callback());
  ASSERT_TRUE(first.Wait().ok()) << first.Wait().status();
  client->Exchange(kAddress, Push(200'000), kLimit, second.Callback());
  EXPECT_TRUE(GoesAnotherWay(second.Wait().status())) << second.Wait().status();
  EXPECT_EQ(Floats(first.Wait()->front().payload), *RandomValues(200'000, 1));
  first.Drop();
  // The place was given back before the next request was sent.
  Outcome third;
  client->Exchange(kAddress, Push(200'000), kLimit, third.Callback());
  EXPECT_TRUE(third.Wait().ok()) << third.Wait().status();
}

TEST_F(FaultTest, RepliesThatComeTooLateTakeNoSpace) {
  HeldReplies held;
  const auto server = NewServer(held.Handler(), 1 << 20);
  const auto client = NewClient();
  for (int i = 0; i < 5; ++i) {
    Outcome late;
    client->Exchange(kAddress, {core::Frame{}}, absl::Milliseconds(20), late.Callback());
    EXPECT_EQ(late.Code(), absl::StatusCode::kDeadlineExceeded) << late.Wait().status();
    for (auto& [request, reply] : held.WaitFor(1)) {
      core::Frame value = FloatFrame(core::FrameKind::kReply, RandomValues(200'000, 2));
      value.header.status = core::ReplyStatus::kValue;
      reply({value});
    }
  }
  Outcome outcome;
  client->Exchange(kAddress, {core::Frame{}}, kLimit, outcome.Callback());
  auto replies = held.WaitFor(1);
  // The late ones were given back before this request was sent, or are just now.
  absl::StatusCode code = absl::StatusCode::kUnknown;
  core::Frame value = FloatFrame(core::FrameKind::kReply, RandomValues(100'000, 2));
  value.header.status = core::ReplyStatus::kValue;
  replies[0].second({value});
  code = outcome.Code();
  EXPECT_EQ(code, absl::StatusCode::kOk) << outcome.Wait().status();
}

TEST_F(FaultTest, PayloadsOutliveClientAndServer) {
  HeldReplies held;
  auto server = NewServer(held.Handler());
  auto client = NewClient();
  Outcome first;
  client->Exchange(kAddress, Push(100'000, 3), kLimit, first.Callback());
  std::vector<HeldReplies::Held> taken = held.WaitFor(1);
  taken[0].second(Echo(taken[0].first));
  ASSERT_TRUE(first.Wait().ok()) << first.Wait().status();
  client.reset();
  EXPECT_EQ(Floats(taken[0].first[0].payload), *RandomValues(100'000, 3));
  server.reset();
  EXPECT_EQ(Floats(first.Wait()->front().payload), *RandomValues(100'000, 3));
  EXPECT_EQ(Floats(taken[0].first[0].payload), *RandomValues(100'000, 3));
}

TEST_F(FaultTest, WhatIsCheckedBeforeItIsUsedIsNotTheClientsMemory) {
  HeldReplies held;
  const auto server = NewServer(held.Handler());
  RawPeer peer = RawClient();
  const auto encoded = [&](core::FrameCodec codec) {
    const auto values = RandomValues(4096, 1);
    std::vector<std::uint8_t> bytes(core::EncodedBytes(codec, 0.1, values->size()));
    core::Encode(codec, 0.1, *values, bytes.data());
    core::Frame frame = FloatFrame(core::FrameKind::kPush, values);
    frame.header.codec = codec;
    frame.payload = core::OwningPayload(std::move(bytes));
    return frame;
  };
  std::uint64_t exchange = 0;
  for (const auto& [codec, in_place] : {std::pair{core::FrameCodec::kFp32, true},
                                        {core::FrameCodec::kBf16, true},
                                        {core::FrameCodec::kInt8, false},
                                        {core::FrameCodec::kTopK, false}}) {
    // More than fits into a record.
    const std::vector<std::uint8_t> message = Bytes({encoded(codec), encoded(codec)});
    const LocalRecord record = peer.Message(RecordPurpose::kRequest, ++exchange, 0, message);
    ASSERT_EQ(peer.Send(record), Sent::kYes);
    const auto taken = held.WaitFor(1);
    ASSERT_EQ(taken.size(), 1u);
    std::memset(peer.own().At(0), 0xff, message.size());
    const auto& segment = taken[0].first[0].payload.segments()[0];
    const bool changed =
        std::vector<std::uint8_t>(segment.begin(), segment.end()) == std::vector<std::uint8_t>(segment.size(), 0xff);
    EXPECT_EQ(changed, in_place) << static_cast<int>(codec);
  }
}

TEST_F(FaultTest, ServersEndConnectionsOfClientsThatKeepNoRules) {
  std::atomic<int> handled{0};
  const auto server = NewServer([&](Frames request, const std::function<void(Frames)>& reply) {
    ++handled;
    EchoHandler(std::move(request), reply);
  });
  const auto good = NewClient();
  ExpectThatItServes(*good);
  const std::size_t descriptors = OpenDescriptors();
  const std::vector<std::uint8_t> message = Bytes(Push(10'000));
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  const auto request = [&](RawPeer& peer, std::uint64_t exchange) {
    return peer.Message(RecordPurpose::kRequest, exchange, 0, message);
  };
  const std::vector<std::pair<const char*, std::function<void(RawPeer&)>>> faults = {
      {"an offset behind the end",
       [&](RawPeer& peer) {
         LocalRecord record = request(peer, 1);
         record.offset = 1 << 20;
         peer.Send(record);
       }},
      {"an offset that overflows",
       [&](RawPeer& peer) {
         LocalRecord record = request(peer, 1);
         record.offset = kMost - 8;
         peer.Send(record);
       }},
      {"a length behind the end",
       [&](RawPeer& peer) {
         LocalRecord record = request(peer, 1);
         record.length = (1 << 20) + 1;
         peer.Send(record);
       }},
      {"the largest length",
       [&](RawPeer& peer) {
         LocalRecord record = request(peer, 1);
         record.length = std::numeric_limits<std::uint32_t>::max();
         peer.Send(record);
       }},
      {"the same number twice",
       [&](RawPeer& peer) {
         peer.Send(request(peer, 1));
         peer.Send(request(peer, 1));
       }},
      {"numbers that go back",
       [&](RawPeer& peer) {
         peer.Send(request(peer, 7));
         peer.Send(request(peer, 6));
       }},
      {"number 0", [&](RawPeer& peer) { peer.Send(request(peer, 0)); }},
      {"gives back what it does not have",
       [&](RawPeer& peer) {
         LocalRecord record;
         record.purpose = RecordPurpose::kGiveBack;
         record.exchange = 5;
         peer.Send(record);
       }},
      {"gives back twice",
       [&](RawPeer& peer) {
         peer.Send(request(peer, 1));
         auto reply = peer.Receive(RecordPurpose::kReply);
         LocalRecord record;
         record.purpose = RecordPurpose::kGiveBack;
         record.exchange = 1;
         peer.Send(record);
         peer.Send(record);
       }},
      {"a reply", [&](RawPeer& peer) { peer.Send(peer.Message(RecordPurpose::kReply, 1, 0, message)); }},
      {"an error", [&](RawPeer& peer) { peer.Send(ErrorRecord(1, absl::InternalError("no"))); }},
      {"a welcome", [&](RawPeer& peer) { peer.Welcome(); }},
      {"a second hello", [&](RawPeer& peer) { peer.Hello(kJob, kAddress); }},
      {"a descriptor with a request", [&](RawPeer& peer) { peer.Send(request(peer, 1), peer.own().descriptor()); }},
      {"bytes that are no record", [&](RawPeer& peer) { peer.SendBytes(std::vector<std::uint8_t>(100, 1)); }},
      {"more bytes than a record has",
       [&](RawPeer& peer) { peer.SendBytes(std::vector<std::uint8_t>(kMostRecordBytes + 1)); }},
      {"no bytes", [&](RawPeer& peer) { peer.SendBytes({}); }},
  };
  for (const auto& [name, fault] : faults) {
    SCOPED_TRACE(name);
    RawPeer peer = RawClient();
    fault(peer);
    EXPECT_TRUE(peer.IsGone());
    ExpectThatItServes(*good);
  }
  // What is in the region is no message: an error of the exchange alone.
  RawPeer peer = RawClient();
  const int before = handled;
  std::uint64_t exchange = 0;
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    std::vector<std::uint8_t> noise = message;
    noise[random() % kFrameHeaderBytes] ^= static_cast<std::uint8_t>(1 + random() % 255);
    ASSERT_EQ(peer.Send(peer.Message(RecordPurpose::kRequest, ++exchange, 64 * (random() % 100), noise)), Sent::kYes);
    const auto error = peer.Receive(RecordPurpose::kError);
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->record.code, absl::StatusCode::kDataLoss);
    EXPECT_EQ(error->record.exchange, exchange);
  }
  EXPECT_EQ(handled.load(), before);
  // Places that lie over each other are read one after the other: what is in them is the client's affair.
  ASSERT_EQ(peer.Send(peer.Message(RecordPurpose::kRequest, ++exchange, 0, message)), Sent::kYes);
  ASSERT_EQ(peer.Send(peer.Message(RecordPurpose::kRequest, ++exchange, 0, message)), Sent::kYes);
  EXPECT_TRUE(peer.Receive(RecordPurpose::kReply).has_value());
  EXPECT_TRUE(peer.Receive(RecordPurpose::kReply).has_value());
  { const RawPeer ended = std::move(peer); }
  for (int i = 0; i < 10'000 && OpenDescriptors() > descriptors; ++i) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(OpenDescriptors(), descriptors);
}

TEST_F(FaultTest, ServersRefuseGreetingsThatAreNone) {
  const auto server = NewServer(EchoHandler);
  const auto good = NewClient();
  const auto memory = [](off_t bytes, int seals) {
    Descriptor descriptor(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(ftruncate(descriptor.get(), bytes), 0);
    EXPECT_EQ(fcntl(descriptor.get(), F_ADD_SEALS, seals), 0);
    return descriptor;
  };
  const auto hello = [](std::uint64_t bytes, const std::string& address = kAddress) {
    LocalRecord record = TextRecord(RecordPurpose::kHello, absl::StrCat(kJob, " ", address));
    record.offset = bytes;
    return record;
  };
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE;
  const std::vector<std::pair<const char*, std::function<void(RawPeer&)>>> faults = {
      {"no descriptor", [&](RawPeer& peer) { peer.Send(hello(4096)); }},
      {"a pipe",
       [&](RawPeer& peer) {
         std::array<int, 2> pipe{};
         ASSERT_EQ(pipe2(pipe.data(), O_CLOEXEC), 0);
         const Descriptor reading(pipe[0]), writing(pipe[1]);
         peer.Send(hello(4096), reading.get());
       }},
      {"a file",
       [&](RawPeer& peer) {
         const Descriptor file(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
         peer.Send(hello(4096), file.get());
       }},
      {"memory that can shrink",
       [&](RawPeer& peer) { peer.Send(hello(4096), memory(4096, F_SEAL_GROW | F_SEAL_FUTURE_WRITE).get()); }},
      {"memory that others may write",
       [&](RawPeer& peer) { peer.Send(hello(4096), memory(4096, F_SEAL_GROW | F_SEAL_SHRINK).get()); }},
      {"less memory than it says", [&](RawPeer& peer) { peer.Send(hello(1 << 20), memory(4096, kSeals).get()); }},
      {"no memory", [&](RawPeer& peer) { peer.Send(hello(0), memory(0, kSeals).get()); }},
      {"another job", [&](RawPeer& peer) { peer.Hello("another", kAddress); }},
      {"another server", [&](RawPeer& peer) { peer.Hello(kJob, "host:2"); }},
      {"no hello", [&](RawPeer& peer) { peer.Welcome(); }},
      {"a request", [&](RawPeer& peer) { peer.Send(peer.Message(RecordPurpose::kRequest, 1, 0, Bytes(Push(2000)))); }},
  };
  for (const auto& [name, fault] : faults) {
    SCOPED_TRACE(name);
    RawPeer peer = RawClient(/*greeted=*/false);
    fault(peer);
    EXPECT_TRUE(peer.IsGone());
    ExpectThatItServes(*good);
  }
}

// Records and bytes at random, sound and not, in any order.
TEST_F(FaultTest, ServersSurviveRandomClients) {
  const auto server = NewServer(EchoHandler);
  const auto good = NewClient();
  const std::vector<std::uint8_t> message = Bytes(Push(3000));
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    RawPeer peer = RawClient(/*greeted=*/random() % 8 != 0);
    const auto number = [&]() -> std::uint64_t {
      const std::uint64_t some[] = {0, 1, random() % 8, random() % (1 << 20), random()};
      return some[random() % std::size(some)];
    };
    for (int i = 0; i < 20; ++i) {
      LocalRecord record = peer.Message(RecordPurpose::kRequest, static_cast<std::uint64_t>(i) + 1, 0, message);
      if (random() % 4 == 0) record.purpose = static_cast<RecordPurpose>(1 + random() % 6);
      if (random() % 4 == 0) record.exchange = number();
      if (random() % 8 == 0) record.offset = number();
      if (random() % 8 == 0) record.length = static_cast<std::uint32_t>(number());
      if (random() % 8 == 0) record.body.resize(random() % 200);
      if (random() % 8 == 0) record.code = static_cast<absl::StatusCode>(random() % 20);
      std::vector<std::uint8_t> bytes = EncodeRecord(record);
      if (random() % 8 == 0) bytes[random() % bytes.size()] = static_cast<std::uint8_t>(random());
      if (random() % 16 == 0) bytes.resize(random() % (bytes.size() + 1));
      if (random() % 16 == 0) {
        peer.Send(record, peer.own().descriptor());
      } else {
        peer.SendBytes(bytes);
      }
      // Under the eyes of whoever reads it.
      peer.own().At(0)[random() % message.size()] = static_cast<std::uint8_t>(random());
    }
  }
  ExpectThatItServes(*good);
}

TEST_F(FaultTest, AClientThatReadsNothingHoldsNobodyUp) {
  const auto server = NewServer(EchoHandler);
  RawPeer peer = RawClient();
  // Small enough to lie in the record, so that they are limited by nothing else.
  const std::vector<std::uint8_t> message = Bytes(Push(300));
  LocalRecord record;
  record.purpose = RecordPurpose::kRequest;
  record.length = static_cast<std::uint32_t>(message.size());
  record.body = message;
  bool ended = false;
  for (int i = 0; i < 1'000'000 && !ended; ++i) {
    record.exchange = static_cast<std::uint64_t>(i) + 1;
    Sent sent = peer.Send(record);
    while (sent == Sent::kFull) {
      pollfd polled = {peer.socket().get(), POLLOUT, 0};
      ASSERT_EQ(poll(&polled, 1, kNotHungMilliseconds), 1);
      sent = peer.Send(record);
    }
    ended = sent == Sent::kLost;
  }
  EXPECT_TRUE(ended) << "the server's memory grows for ever";
  const auto good = NewClient();
  ExpectThatItServes(*good);
}

TEST_F(FaultTest, AServerThatReadsNothingHoldsNobodyUp) {
  const Descriptor listener = Listen();
  const auto client = NewClient();
  Outcome first;
  client->Exchange(kAddress, {core::Frame{}}, kLimit, first.Callback());
  RawPeer peer = RawPeer::Accept(listener);
  Request(peer);
  std::vector<std::unique_ptr<Outcome>> outcomes;
  bool full = false;
  for (int i = 0; i < 100'000 && !full; ++i) {
    outcomes.push_back(std::make_unique<Outcome>());
    client->Exchange(kAddress, {core::Frame{}}, kShort, outcomes.back()->Callback());
    full = outcomes.back()->HasEnded(absl::ZeroDuration()) && GoesAnotherWay(outcomes.back()->Wait().status());
  }
  EXPECT_TRUE(full);
  outcomes.pop_back();
  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome->Code(), absl::StatusCode::kDeadlineExceeded) << outcome->Wait().status();
  }
  { const RawPeer ended = std::move(peer); }
  EXPECT_EQ(first.Code(), absl::StatusCode::kUnavailable) << first.Wait().status();
}

TEST_F(FaultTest, AServerThatDoesNotAnswerTheGreetingIsGivenUp) {
  const Descriptor listener = Listen();
  const auto client = NewClient();
  Outcome outcome;
  client->Exchange(kAddress, {core::Frame{}}, kLimit, outcome.Callback());
  RawPeer peer = RawPeer::Accept(listener);
  EXPECT_EQ(outcome.Code(), absl::StatusCode::kUnavailable) << outcome.Wait().status();
  EXPECT_TRUE(GoesAnotherWay(outcome.Wait().status()));
}

TEST_F(FaultTest, TheDeadlineHoldsWhileItConnects) {
  const Descriptor listener = Listen();
  SharedMemoryClientOptions options;
  options.directory = directory_.path();
  options.job_uid = kJob;
  options.greeting = absl::InfiniteDuration();
  const auto client = *MakeSharedMemoryDataClient(options);
  Outcome outcome, cancelled;
  client->Exchange(kAddress, {core::Frame{}}, absl::Milliseconds(50), outcome.Callback());
  EXPECT_EQ(outcome.Code(), absl::StatusCode::kDeadlineExceeded) << outcome.Wait().status();
  client->Exchange(kAddress, {core::Frame{}}, absl::InfiniteDuration(), cancelled.Callback());
  client->Close();
  EXPECT_EQ(cancelled.Code(), absl::StatusCode::kCancelled) << cancelled.Wait().status();
  EXPECT_FALSE(client->Ready(kAddress));
}

TEST_F(FaultTest, ClientsSurviveServersThatKeepNoRules) {
  const Descriptor listener = Listen();
  core::Frame applied;
  applied.header.kind = core::FrameKind::kReply;
  applied.header.status = core::ReplyStatus::kApplied;
  core::Frame value = FloatFrame(core::FrameKind::kReply, RandomValues(10'000, 1));
  value.header.status = core::ReplyStatus::kValue;
  const std::vector<std::uint8_t> message = Bytes({value});
  const auto reply = [&](RawPeer& peer, std::uint64_t exchange) {
    return peer.Message(RecordPurpose::kReply, exchange, 0, message);
  };
  struct Fault {
    const char* name;
    absl::StatusCode code;
    std::function<void(RawPeer&, std::uint64_t)> play;
  };
  constexpr absl::StatusCode kLost = absl::StatusCode::kDataLoss;
  constexpr absl::StatusCode kGone = absl::StatusCode::kUnavailable;
  const std::vector<Fault> faults = {
      {"an offset behind the end", kLost,
       [&](RawPeer& peer, std::uint64_t exchange) {
         LocalRecord record = reply(peer, exchange);
         record.offset = 1 << 20;
         peer.Send(record);
       }},
      {"a length behind the end", kLost,
       [&](RawPeer& peer, std::uint64_t exchange) {
         LocalRecord record = reply(peer, exchange);
         record.length = 1 << 24;
         peer.Send(record);
       }},
      {"no message", kLost,
       [&](RawPeer& peer, std::uint64_t exchange) {
         LocalRecord record = reply(peer, exchange);
         record.offset = 4;
         peer.Send(record);
       }},
      {"another number of frames", kLost,
       [&](RawPeer& peer, std::uint64_t exchange) {
         peer.Send(peer.Message(RecordPurpose::kReply, exchange, 0, Bytes({value, applied})));
       }},
      {"a number that was never asked", kGone,
       [&](RawPeer& peer, std::uint64_t exchange) { peer.Send(reply(peer, exchange + 1)); }},
      {"number 0", kGone, [&](RawPeer& peer, std::uint64_t) { peer.Send(reply(peer, 0)); }},
      {"a request", kGone,
       [&](RawPeer& peer, std::uint64_t exchange) {
         peer.Send(peer.Message(RecordPurpose::kRequest, exchange, 0, message));
       }},
      {"a hello", kGone, [&](RawPeer& peer, std::uint64_t) { peer.Hello(kJob, kAddress); }},
      {"a second welcome", kGone, [&](RawPeer& peer, std::uint64_t) { peer.Welcome(); }},
      {"gives back twice", kGone,
       [&](RawPeer& peer, std::uint64_t exchange) {
         LocalRecord record;
         record.purpose = RecordPurpose::kGiveBack;
         record.exchange = exchange;
         peer.Send(record);
         peer.Send(record);
       }},
      {"bytes that are no record", kGone,
       [&](RawPeer& peer, std::uint64_t) { peer.SendBytes(std::vector<std::uint8_t>(100, 1)); }},
  };
  for (const Fault& fault : faults) {
    SCOPED_TRACE(fault.name);
    Outcome outcome;
    const auto client = NewClient();
    client->Exchange(kAddress, Push(10'000), kLimit, outcome.Callback());
    RawPeer peer = RawPeer::Accept(listener);
    const LocalRecord request = Request(peer);
    fault.play(peer, request.exchange);
    EXPECT_EQ(outcome.Code(), fault.code) << outcome.Wait().status();
    EXPECT_FALSE(GoesAnotherWay(outcome.Wait().status())) << "it may have been carried out";
    if (fault.code == kGone) {
      EXPECT_TRUE(peer.IsGone());
    }
  }
}

TEST_F(FaultTest, ClientsSurviveRandomServers) {
  const Descriptor listener = Listen();
  core::Frame value = FloatFrame(core::FrameKind::kReply, RandomValues(3000, 1));
  value.header.status = core::ReplyStatus::kValue;
  const std::vector<std::uint8_t> message = Bytes({value});
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto client = NewClient();
    std::vector<std::unique_ptr<Outcome>> outcomes;
    for (int i = 0; i < 8; ++i) {
      outcomes.push_back(std::make_unique<Outcome>());
      client->Exchange(kAddress, Push(3000), kShort, outcomes.back()->Callback());
    }
    RawPeer peer = RawPeer::Accept(listener);
    if (random() % 8 != 0) Request(peer);
    for (int i = 0; i < 20; ++i) {
      LocalRecord record = peer.Message(RecordPurpose::kReply, 1 + random() % 8, 0, message);
      if (random() % 4 == 0) record.purpose = static_cast<RecordPurpose>(1 + random() % 6);
      if (random() % 8 == 0) record.exchange = random();
      if (random() % 8 == 0) record.offset = random() % 2 == 0 ? random() : random() % (1 << 20);
      if (random() % 8 == 0) record.length = static_cast<std::uint32_t>(random());
      if (random() % 8 == 0) record.code = static_cast<absl::StatusCode>(random() % 20);
      std::vector<std::uint8_t> bytes = EncodeRecord(record);
      if (random() % 8 == 0) bytes[random() % bytes.size()] = static_cast<std::uint8_t>(random());
      peer.SendBytes(bytes);
      peer.own().At(0)[random() % message.size()] = static_cast<std::uint8_t>(random());
    }
    for (const auto& outcome : outcomes) outcome->Wait();
  }
}

TEST_F(FaultTest, APathThatIsTooLongIsRefusedByBoth) {
  const std::string directory = absl::StrCat(directory_.path(), "/", std::string(100, 'x'));
  SharedMemoryServerOptions server;
  server.directory = directory;
  server.job_uid = kJob;
  server.address = kAddress;
  EXPECT_EQ(SharedMemoryServer::Start(server, EchoHandler).status().code(), absl::StatusCode::kInvalidArgument);
  SharedMemoryClientOptions client;
  client.directory = directory;
  client.job_uid = kJob;
  EXPECT_EQ(MakeSharedMemoryDataClient(client).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(FaultTest, ADirectoryThatCannotBeMadeIsNamed) {
  SharedMemoryServerOptions options;
  options.directory = directory_.path() + "/none/of/these";
  options.job_uid = kJob;
  options.address = kAddress;
  const absl::Status status = SharedMemoryServer::Start(options, EchoHandler).status();
  EXPECT_EQ(status, absl::UnavailableError(options.directory + ": cannot be created: No such file or directory"));
}

TEST_F(FaultTest, AServerTakesThePlaceOfOneThatIsGone) {
  {
    const Descriptor left_behind = Listen();  // its socket stays in the directory
  }
  const auto client = NewClient();
  {
    const auto server = NewServer(EchoHandler);
    ExpectThatItServes(*client);
  }
  Outcome outcome;
  client->Exchange(kAddress, {core::Frame{}}, kLimit, outcome.Callback());
  EXPECT_EQ(outcome.Code(), absl::StatusCode::kUnavailable) << outcome.Wait().status();
  const auto server = NewServer(EchoHandler);
  ExpectThatItServes(*client);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_.path()), {}), 1);
}

}  // namespace
}  // namespace downpour::wire
