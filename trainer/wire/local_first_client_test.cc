#include "trainer/wire/local_first_client.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "trainer/wire/testing/raw_peer.h"
#include "trainer/wire/testing/shared_directory.h"
#include "trainer/wire/testing/test_frames.h"

namespace downpour::wire {
namespace {

constexpr char kJob[] = "00112233445566778899aabbccddeeff";
constexpr char kAddress[] = "host:1";

// Reaches everybody, at once.
class Network final : public DataClient {
 public:
  explicit Network(int* exchanges, absl::Duration* deadline) : exchanges_(exchanges), deadline_(deadline) {}
  void Exchange(const std::string&, Frames request, absl::Duration deadline,
                std::function<void(absl::StatusOr<Frames>)> done) override {
    ++*exchanges_;
    *deadline_ = deadline;
    done(Echo(std::move(request)));
  }
  TransportCounters counters() const override { return {1000, 2000, 0, 0}; }

 private:
  int* const exchanges_;
  absl::Duration* const deadline_;
};

class LocalFirstTest : public testing::Test {
 protected:
  std::unique_ptr<DataClient> NewClient(absl::Duration rest, std::uint64_t region_bytes = 1 << 20) {
    SharedMemoryClientOptions options;
    options.directory = directory_.path();
    options.job_uid = kJob;
    options.region_bytes = region_bytes;
    options.rest = rest;
    return WithSharedMemory(options, std::make_unique<Network>(&over_network_, &deadline_));
  }
  std::unique_ptr<SharedMemoryServer> NewServer(DataHandler handler, std::uint64_t region_bytes = 1 << 20) {
    SharedMemoryServerOptions options;
    options.directory = directory_.path();
    options.job_uid = kJob;
    options.address = kAddress;
    options.region_bytes = region_bytes;
    return *SharedMemoryServer::Start(std::move(options), std::move(handler));
  }
  absl::Status Exchange(DataClient& client, std::size_t floats = 10) {
    Outcome outcome;
    client.Exchange(kAddress, {FloatFrame(core::FrameKind::kPush, RandomValues(floats, 1))}, kLimit,
                    outcome.Callback());
    if (outcome.Wait().ok()) {
      EXPECT_EQ(Floats(outcome.Wait()->front().payload), *RandomValues(floats, 1));
    }
    return outcome.Wait().status();
  }
  // Exchanges until one goes the local way.
  void WaitUntilLocal(DataClient& client) {
    for (int before = -1; before != over_network_;) {
      before = over_network_;
      EXPECT_EQ(Exchange(client), absl::OkStatus());
    }
  }

  const SharedDirectory directory_;
  int over_network_ = 0;
  absl::Duration deadline_;
};

TEST_F(LocalFirstTest, WhoIsNotHereIsReachedOverTheNetwork) {
  const auto client = NewClient(absl::ZeroDuration());
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Exchange(*client), absl::OkStatus());
  EXPECT_EQ(over_network_, 20);
}

TEST_F(LocalFirstTest, WhoIsHereIsReachedThroughSharedMemory) {
  const auto server = NewServer(EchoHandler);
  const auto client = NewClient(absl::ZeroDuration());
  WaitUntilLocal(*client);
  const int before = over_network_;
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Exchange(*client, 10'000), absl::OkStatus());
  EXPECT_EQ(over_network_, before);
  const TransportCounters counters = client->counters();
  EXPECT_GT(counters.sent_locally, 20u * 40'000);
  EXPECT_EQ(counters.sent_bytes, counters.sent_locally + 1000);
  EXPECT_EQ(counters.received_bytes, counters.received_locally + 2000);
  EXPECT_EQ(server->counters().received_locally, counters.sent_locally);
  EXPECT_EQ(server->counters().sent_bytes, counters.received_locally);
}

TEST_F(LocalFirstTest, WhatFindsNoSpaceGoesOverTheNetwork) {
  const auto server = NewServer(EchoHandler);
  const auto client = NewClient(absl::ZeroDuration());
  WaitUntilLocal(*client);
  const int before = over_network_;
  EXPECT_EQ(Exchange(*client, 500'000), absl::OkStatus());  // more than the region has
  EXPECT_EQ(over_network_, before + 1);
  EXPECT_LE(deadline_, kLimit);
  EXPECT_EQ(Exchange(*client), absl::OkStatus());
  EXPECT_EQ(over_network_, before + 1) << "only that one";
}

TEST_F(LocalFirstTest, WhoseReplyFindsNoSpaceGoesOverTheNetwork) {
  const auto server = NewServer(EchoHandler, 1 << 16);
  const auto client = NewClient(absl::ZeroDuration());
  WaitUntilLocal(*client);
  const int before = over_network_;
  EXPECT_EQ(Exchange(*client, 100'000), absl::OkStatus());
  EXPECT_EQ(over_network_, before + 1);
}

TEST_F(LocalFirstTest, WithoutTheServerItIsTheNetworkAndLaterSharedMemoryAgain) {
  const auto client = NewClient(absl::ZeroDuration());
  for (int round = 0; round < 3; ++round) {
    const auto server = NewServer(EchoHandler);
    WaitUntilLocal(*client);
    server->Shutdown();
    const int before = over_network_;
    for (int i = 0; i < 5; ++i) EXPECT_EQ(Exchange(*client, 10'000), absl::OkStatus());
    EXPECT_EQ(over_network_, before + 5);
  }
}

TEST_F(LocalFirstTest, AnErrorInFlightIsTold) {
  HeldReplies held;
  auto server = NewServer(held.Handler());
  const auto client = NewClient(absl::InfiniteDuration());
  Outcome outcome;
  for (bool local = false; !local;) {
    const int before = over_network_;
    Outcome probe;
    client->Exchange(kAddress, {core::Frame{}}, kLimit, probe.Callback());
    local = over_network_ == before;
    if (!local) continue;
    held.WaitFor(1);  // and drops it
    EXPECT_EQ(probe.Code(), absl::StatusCode::kUnavailable) << probe.Wait().status();
    client->Exchange(kAddress, {core::Frame{}}, kLimit, outcome.Callback());
    const auto replies = held.WaitFor(1);
    server.reset();
  }
  EXPECT_EQ(outcome.Code(), absl::StatusCode::kUnavailable) << outcome.Wait().status();
  const int before = over_network_;
  server = NewServer(EchoHandler);
  EXPECT_EQ(Exchange(*client), absl::OkStatus());
  EXPECT_EQ(over_network_, before + 1) << "it rests";
}

TEST_F(LocalFirstTest, WithoutADirectoryOrWithOneWhosePathIsTooLongThereIsTheNetworkAlone) {
  for (const std::string& directory : {std::string(), absl::StrCat("/tmp/", std::string(100, 'x'))}) {
    SharedMemoryClientOptions options;
    options.directory = directory;
    const auto client = WithSharedMemory(options, std::make_unique<Network>(&over_network_, &deadline_));
    const int before = over_network_;
    EXPECT_EQ(Exchange(*client), absl::OkStatus());
    EXPECT_EQ(over_network_, before + 1);
  }
}

}  // namespace
}  // namespace downpour::wire
