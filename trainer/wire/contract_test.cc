// What transport.h promises, of each transport.
#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "trainer/wire/testing/test_frames.h"
#include "trainer/wire/testing/transports.h"

namespace downpour::wire {
namespace {

class ContractTest : public testing::TestWithParam<std::string> {
 protected:
  const std::unique_ptr<TestTransport> transport_ = NewTransport(GetParam());
};

TEST_P(ContractTest, EchoesFramesOfManySizes) {
  const auto server = transport_->NewServer(EchoHandler);
  const auto client = transport_->NewClient();
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
    client->Exchange(server->address(), std::move(request), kLimit, outcome.Callback());
    const auto& replies = outcome.Wait();
    ASSERT_TRUE(replies.ok()) << replies.status();
    ASSERT_EQ(replies->size(), sent.size());
    for (std::size_t i = 0; i < sent.size(); ++i) {
      EXPECT_EQ((*replies)[i].header.slice, copy[i].header.slice);
      EXPECT_EQ(Floats((*replies)[i].payload), *sent[i]);
    }
  }
  EXPECT_EQ(client->counters().sent_bytes, server->counters().received_bytes);
  EXPECT_EQ(client->counters().received_bytes, server->counters().sent_bytes);
}

TEST_P(ContractTest, SixtyFourMebibytesInSlicesSeveralAtATime) {
  constexpr std::size_t kSlices = 16;
  constexpr std::size_t kFloats = 1 << 20;
  const auto server = transport_->NewServer(EchoHandler);
  const auto client = transport_->NewClient();
  std::vector<std::shared_ptr<const std::vector<float>>> slices;
  for (std::uint32_t i = 0; i < 4; ++i) slices.push_back(RandomValues(kFloats, i));
  std::vector<std::unique_ptr<Outcome>> outcomes;
  for (std::size_t i = 0; i < kSlices; ++i) {
    outcomes.push_back(std::make_unique<Outcome>());
    if (i >= 4) {
      ASSERT_TRUE(outcomes[i - 4]->Wait().ok()) << outcomes[i - 4]->Wait().status();
    }
    client->Exchange(server->address(), {FloatFrame(core::FrameKind::kInitialise, slices[i % 4])}, kLimit,
                     outcomes[i]->Callback());
  }
  for (std::size_t i = 0; i < kSlices; ++i) {
    const auto& replies = outcomes[i]->Wait();
    ASSERT_TRUE(replies.ok()) << replies.status();
    EXPECT_EQ(Floats(replies->at(0).payload), *slices[i % 4]);
  }
}

TEST_P(ContractTest, RepliesMayComeLaterAndInAnotherOrder) {
  HeldReplies held;
  const auto server = transport_->NewServer(held.Handler());
  const auto client = transport_->NewClient();
  std::vector<std::unique_ptr<Outcome>> outcomes;
  for (std::uint32_t i = 0; i < 8; ++i) {
    core::Frame frame;
    frame.header.slice = i;
    outcomes.push_back(std::make_unique<Outcome>());
    client->Exchange(server->address(), {frame}, kLimit, outcomes.back()->Callback());
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

TEST_P(ContractTest, ADroppedReplyIsUnavailable) {
  const auto server = transport_->NewServer([](const Frames&, const std::function<void(Frames)>&) {});
  const auto client = transport_->NewClient();
  Outcome outcome;
  client->Exchange(server->address(), {core::Frame{}}, kLimit, outcome.Callback());
  EXPECT_EQ(outcome.Wait().status().code(), absl::StatusCode::kUnavailable) << outcome.Wait().status();
}

TEST_P(ContractTest, TheDeadlineEndsAnExchangeAndALateReplyIsIgnored) {
  HeldReplies held;
  const auto server = transport_->NewServer(held.Handler());
  const auto client = transport_->NewClient();
  Outcome outcome;
  client->Exchange(server->address(), {core::Frame{}}, absl::Seconds(1), outcome.Callback());
  EXPECT_EQ(outcome.Wait().status().code(), absl::StatusCode::kDeadlineExceeded) << outcome.Wait().status();
  for (auto& [request, reply] : held.WaitFor(1)) {
    reply(Echo(request));
    reply(Echo(request));
  }
}

TEST_P(ContractTest, AServerThatIsGoneIsUnavailableAndOthersAreServed) {
  auto server = transport_->NewServer(EchoHandler);
  const std::string address = server->address();
  const auto client = transport_->NewClient();
  Outcome before;
  client->Exchange(address, {core::Frame{}}, kLimit, before.Callback());
  ASSERT_TRUE(before.Wait().ok()) << before.Wait().status();
  server.reset();
  Outcome after;
  client->Exchange(address, {core::Frame{}}, kLimit, after.Callback());
  EXPECT_EQ(after.Wait().status().code(), absl::StatusCode::kUnavailable) << after.Wait().status();
  // The client still serves other addresses.
  const auto successor = transport_->NewServer(EchoHandler);
  Outcome again;
  client->Exchange(successor->address(), {core::Frame{}}, kLimit, again.Callback());
  EXPECT_TRUE(again.Wait().ok()) << again.Wait().status();
}

TEST_P(ContractTest, ShutdownAnswersHeldAndFurtherExchanges) {
  HeldReplies held;
  const auto server = transport_->NewServer(held.Handler());
  const auto client = transport_->NewClient();
  Outcome first;
  client->Exchange(server->address(), {core::Frame{}}, kLimit, first.Callback());
  auto replies = held.WaitFor(1);
  server->Shutdown();
  EXPECT_EQ(first.Wait().status().code(), absl::StatusCode::kUnavailable) << first.Wait().status();
  Outcome second;
  client->Exchange(server->address(), {core::Frame{}}, kLimit, second.Callback());
  EXPECT_EQ(second.Wait().status().code(), absl::StatusCode::kUnavailable) << second.Wait().status();
  replies.front().second(Echo(replies.front().first));  // too late, and harmless
}

TEST_P(ContractTest, RepliesMayOutliveTheServer) {
  HeldReplies held;
  auto server = transport_->NewServer(held.Handler());
  const auto client = transport_->NewClient();
  Outcome outcome;
  client->Exchange(server->address(), {core::Frame{}}, kLimit, outcome.Callback());
  auto replies = held.WaitFor(1);
  server.reset();
  EXPECT_EQ(outcome.Wait().status().code(), absl::StatusCode::kUnavailable) << outcome.Wait().status();
  replies.front().second(Echo(replies.front().first));
}

TEST_P(ContractTest, DestroyingTheClientEndsWhatIsInFlight) {
  HeldReplies held;
  const auto server = transport_->NewServer(held.Handler());
  std::atomic<int> cancelled{0};
  auto client = transport_->NewClient();
  for (int i = 0; i < 8; ++i) {
    client->Exchange(server->address(), {core::Frame{}}, kLimit, [&](const absl::StatusOr<Frames>& result) {
      if (result.status().code() == absl::StatusCode::kCancelled) ++cancelled;
    });
  }
  const auto replies = held.WaitFor(8);
  client.reset();
  EXPECT_EQ(cancelled.load(), 8);
}

TEST_P(ContractTest, EncodedGradientsGoThereAndBack) {
  const auto server = transport_->NewServer(EchoHandler);
  const auto client = transport_->NewClient();
  const core::Frame frame = EncodedFrame();
  std::vector<Outcome> outcomes(8);
  for (Outcome& outcome : outcomes) client->Exchange(server->address(), {frame}, kLimit, outcome.Callback());
  for (Outcome& outcome : outcomes) {
    ASSERT_TRUE(outcome.Wait().ok()) << outcome.Wait().status();
    EXPECT_EQ(outcome.Wait()->front().header.codec, core::FrameCodec::kBf16);
    EXPECT_EQ(outcome.Wait()->front().payload.size(), frame.payload.size());
  }
}

TEST_P(ContractTest, DestroyingTheClientEndsWhatIsNotSentYet) {
  const auto server = transport_->NewServer(EchoHandler);
  const core::Frame large = EncodedFrame();
  constexpr int kExchanges = 32;
  std::atomic<int> ended{0};
  std::atomic<int> failed{0};
  auto client = transport_->NewClient();
  for (int i = 0; i < kExchanges; ++i) {
    client->Exchange(server->address(), {large}, kLimit, [&](const absl::StatusOr<Frames>& result) {
      ++ended;
      if (!result.ok() && !absl::IsCancelled(result.status())) ++failed;
    });
  }
  client.reset();
  EXPECT_EQ(ended.load(), kExchanges);
  EXPECT_EQ(failed.load(), 0);
}

TEST_P(ContractTest, CallbacksMayUseTheClientUntilItIsDestroyed) {
  HeldReplies held;
  const auto server = transport_->NewServer(held.Handler());
  Outcome further;
  {
    const auto client = transport_->NewClient();
    client->Exchange(server->address(), {core::Frame{}}, kLimit, [&](const absl::StatusOr<Frames>&) {
      client->Exchange(server->address(), {core::Frame{}}, kLimit, further.Callback());
    });
    const auto replies = held.WaitFor(1);
  }
  EXPECT_TRUE(absl::IsCancelled(further.Wait().status())) << further.Wait().status();
}

TEST_P(ContractTest, ReleasesPayloadsOfBothSides) {
  Event request_released;
  Event reply_released;
  const auto tracked = [](std::size_t size, Event& released) {
    return std::shared_ptr<const std::vector<float>>(new std::vector<float>(size, 1.0f),
                                                     [&released](const std::vector<float>* values) {
                                                       delete values;
                                                       released.Notify();
                                                     });
  };
  const auto server = transport_->NewServer([&](Frames request, const std::function<void(Frames)>& reply) {
    Frames replies = Echo(std::move(request));
    core::Frame value = FloatFrame(core::FrameKind::kReply, tracked(1 << 20, reply_released));
    value.header.status = core::ReplyStatus::kValue;
    replies[0] = std::move(value);
    reply(std::move(replies));
  });
  const auto client = transport_->NewClient();
  Outcome outcome;
  client->Exchange(server->address(), {FloatFrame(core::FrameKind::kPush, tracked(1 << 20, request_released))}, kLimit,
                   outcome.Callback());
  ASSERT_TRUE(outcome.Wait().ok()) << outcome.Wait().status();
  EXPECT_TRUE(request_released.WaitFor(kLimit));
  EXPECT_TRUE(reply_released.WaitFor(kLimit));
  // What arrived is alive as long as the reply is.
  EXPECT_EQ(Floats(outcome.Wait()->at(0).payload), std::vector<float>(1 << 20, 1.0f));
}

TEST_P(ContractTest, RefusesRepliesThatDoNotMatchTheRequest) {
  for (const std::size_t replies : {0, 1, 3}) {
    const auto server = transport_->NewServer([&](const Frames&, const std::function<void(Frames)>& reply) {
      core::Frame frame;
      frame.header.kind = core::FrameKind::kReply;
      frame.header.status = core::ReplyStatus::kApplied;
      reply(Frames(replies, frame));
    });
    const auto client = transport_->NewClient();
    Outcome outcome;
    client->Exchange(server->address(), Frames(2), kLimit, outcome.Callback());
    EXPECT_EQ(outcome.Wait().status().code(), absl::StatusCode::kDataLoss) << outcome.Wait().status();
  }
}

TEST_P(ContractTest, RefusesToSendWhatDoesNotEncode) {
  const auto client = transport_->NewClient();
  for (core::Frame frame : {FloatFrame(core::FrameKind::kPush, RandomValues(4, 1)), EncodedFrame()}) {
    ++frame.header.elements;
    Outcome outcome;
    client->Exchange("127.0.0.1:1", {frame}, kLimit, outcome.Callback());
    EXPECT_EQ(outcome.Wait().status().code(), absl::StatusCode::kInvalidArgument) << outcome.Wait().status();
  }
}

TEST_P(ContractTest, ARequestOfRepliesIsRefused) {
  const auto server = transport_->NewServer(EchoHandler);
  const auto client = transport_->NewClient();
  core::Frame frame;
  frame.header.kind = core::FrameKind::kReply;
  frame.header.status = core::ReplyStatus::kApplied;
  Outcome outcome;
  client->Exchange(server->address(), {frame}, kLimit, outcome.Callback());
  EXPECT_EQ(outcome.Code(), absl::StatusCode::kInvalidArgument) << outcome.Wait().status();
}

TEST_P(ContractTest, AMessageMayHaveNoFrames) {
  const auto server = transport_->NewServer(EchoHandler);
  const auto client = transport_->NewClient();
  Outcome outcome;
  client->Exchange(server->address(), {}, kLimit, outcome.Callback());
  ASSERT_TRUE(outcome.Wait().ok()) << outcome.Wait().status();
  EXPECT_TRUE(outcome.Wait()->empty());
}

TEST_P(ContractTest, ManyThreadsExchangeAtOnce) {
  const auto server = transport_->NewServer(EchoHandler);
  const auto client = transport_->NewClient();
  const auto values = RandomValues(3000, 1);
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        Outcome outcome;
        client->Exchange(server->address(), {FloatFrame(core::FrameKind::kPush, values)}, kLimit, outcome.Callback());
        if (outcome.Wait().ok() && Floats(outcome.Wait()->front().payload) == *values) ++right;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right.load(), 8 * 50);
}

INSTANTIATE_TEST_SUITE_P(Transports, ContractTest, testing::ValuesIn(TransportNames()),
                         [](const auto& tested) { return tested.param; });

}  // namespace
}  // namespace downpour::wire
