#include "operator/controller/namespace_services.h"

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "operator/controller/objects.h"
#include "operator/kube/http_transport.h"
#include "tests/support/fake_api_server.h"
#include "tests/support/plain_credentials.h"
#include "tests/support/seeds.h"

namespace downpour::controller {
namespace {

using kube::FakeApiServer;
using kube::Json;

constexpr char kNamespace[] = "team";

class NamespaceServicesTest : public ::testing::Test {
 protected:
  NamespaceServicesTest()
      : client_(kube::MakeHttpTransport(std::make_shared<kube::PlainCredentials>(server_.Start())),
                {absl::Seconds(10), 10000, 10000}),
        services_(&client_, [this] {
          ++looks_at_clock_;
          return now_.load();
        }) {}

  bool IsThere() const { return server_.Get(kube::kServices, kNamespace, kServiceName).has_value(); }
  int Requests() const { return server_.CountRequests("", "/services"); }
  absl::Status Remove() {
    return services_.Remove(kNamespace, [] { return false; });
  }
  void PutSomebodyElses() {
    Json service = MakeService(kNamespace);
    service["metadata"].erase("labels");
    server_.Put(kube::kServices, service);
  }

  FakeApiServer server_;
  std::atomic<double> now_ = 1e9;
  std::atomic<int> looks_at_clock_ = 0;
  kube::Client client_;
  NamespaceServices services_;
};

TEST_F(NamespaceServicesTest, ThatItIsThereIsBelievedForAMinute) {
  ASSERT_TRUE(services_.Ensure(kNamespace).ok());
  EXPECT_TRUE(IsThere());
  EXPECT_EQ(Requests(), 2) << "a look and its making";
  now_ = now_ + 59;
  ASSERT_TRUE(services_.Ensure(kNamespace).ok());
  EXPECT_EQ(Requests(), 2);
  server_.Remove(kube::kServices, kNamespace, kServiceName);
  now_ = now_ + 1;
  ASSERT_TRUE(services_.Ensure(kNamespace).ok());
  EXPECT_TRUE(IsThere());
  server_.Remove(kube::kServices, kNamespace, kServiceName);
  now_ = now_ - 100;  // the clock was ahead
  ASSERT_TRUE(services_.Ensure(kNamespace).ok());
  EXPECT_TRUE(IsThere());
}

TEST_F(NamespaceServicesTest, OneThatIsThereIsTaken) {
  server_.Put(kube::kServices, MakeService(kNamespace));
  ASSERT_TRUE(services_.Ensure(kNamespace).ok());
  EXPECT_EQ(server_.CountRequests("POST", "/services"), 0);
  ASSERT_TRUE(Remove().ok());
  EXPECT_FALSE(IsThere());
}

TEST_F(NamespaceServicesTest, SomebodyElsesIsLeftAlone) {
  PutSomebodyElses();
  EXPECT_EQ(services_.Ensure(kNamespace).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(Remove().ok());
  EXPECT_TRUE(IsThere());
  server_.Remove(kube::kServices, kNamespace, kServiceName);
  ASSERT_TRUE(services_.Ensure(kNamespace).ok());
  // It takes the place of ours.
  server_.Remove(kube::kServices, kNamespace, kServiceName);
  PutSomebodyElses();
  EXPECT_FALSE(Remove().ok()) << "whose it is was not looked up yet";
  EXPECT_TRUE(Remove().ok());
  EXPECT_TRUE(IsThere());
}

TEST_F(NamespaceServicesTest, AnAnswerThatIsLostIsNoObstacle) {
  FakeApiServer::Reaction lost = FakeApiServer::End(FakeApiServer::Reaction::End::kReset);
  lost.before = [this] { server_.Put(kube::kServices, MakeService(kNamespace)); };
  server_.Inject("POST", "/services", lost);
  EXPECT_TRUE(services_.Ensure(kNamespace).ok());
  lost.before = [this] { server_.Remove(kube::kServices, kNamespace, kServiceName); };
  server_.Inject("DELETE", "/services", lost);
  EXPECT_TRUE(Remove().ok());
  EXPECT_FALSE(IsThere());
}

TEST_F(NamespaceServicesTest, OneThatWasMadeUnseenIsRemoved) {
  FakeApiServer::Reaction lost = FakeApiServer::Refuse(504, "Timeout", "too late");
  lost.before = [this] { server_.Put(kube::kServices, MakeService(kNamespace)); };
  server_.Inject("POST", "/services", lost);
  EXPECT_FALSE(services_.Ensure(kNamespace).ok());
  EXPECT_TRUE(Remove().ok());
  EXPECT_FALSE(IsThere());
}

TEST_F(NamespaceServicesTest, WhatIsRefusedIsToldAndTriedAgain) {
  server_.Inject("POST", "/services", FakeApiServer::Refuse(403, "Forbidden", "exceeded quota: small"));
  EXPECT_EQ(services_.Ensure(kNamespace).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(services_.Ensure(kNamespace).ok());
  server_.Inject("DELETE", "/services", FakeApiServer::Refuse(403, "Forbidden", "no"));
  EXPECT_EQ(Remove().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(Remove().ok());
  EXPECT_FALSE(IsThere());
}

// It may take long each time.
TEST_F(NamespaceServicesTest, WhoWaitsForAnotherTakesItsFailure) {
  constexpr int kThreads = 4;
  absl::Notification asked, told;
  FakeApiServer::Reaction late = FakeApiServer::Refuse(403, "Forbidden", "no");
  late.before = [&] {
    asked.Notify();
    told.WaitForNotification();
  };
  server_.Inject("GET", "/services", late);
  std::atomic<int> refused = 0;
  const auto ensure = [&] {
    if (!services_.Ensure(kNamespace).ok()) ++refused;
  };
  std::vector<std::thread> threads;
  threads.emplace_back(ensure);
  asked.WaitForNotification();
  for (int i = 1; i < kThreads; ++i) threads.emplace_back(ensure);
  while (looks_at_clock_ < kThreads + 1) std::this_thread::yield();  // before its turn and at it
  now_ = now_ + 1;
  told.Notify();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(refused, kThreads);
  EXPECT_EQ(Requests(), 1);
  EXPECT_TRUE(services_.Ensure(kNamespace).ok());
}

TEST_F(NamespaceServicesTest, OneThatIsBeingDeletedWillNotDo) {
  Json service = MakeService(kNamespace);
  service["metadata"]["finalizers"] = {"example.com/later"};
  server_.Put(kube::kServices, service);
  ASSERT_TRUE(Remove().ok());
  EXPECT_TRUE(IsThere());
  EXPECT_EQ(services_.Ensure(kNamespace).code(), absl::StatusCode::kUnavailable);
  server_.Remove(kube::kServices, kNamespace, kServiceName);
  EXPECT_TRUE(services_.Ensure(kNamespace).ok());
}

TEST_F(NamespaceServicesTest, OneInUseStays) {
  ASSERT_TRUE(services_.Ensure(kNamespace).ok());
  EXPECT_TRUE(services_.Remove(kNamespace, [] { return true; }).ok());
  EXPECT_TRUE(IsThere());
}

// Jobs of one namespace come and go at once, in whatever order.
TEST_F(NamespaceServicesTest, AJobHasItsServiceAsLongAsItLives) {
  constexpr unsigned kThreads = 4;
  constexpr std::uint64_t kRounds = 8;  // at the end of each no job is left, however the threads took turns
  std::atomic<int> jobs = 0;
  std::atomic<std::uint64_t> lives = 0;
  const std::uint64_t lives_of_round = Seeds(800) / kRounds;
  const auto live = [&](unsigned seed) {
    std::mt19937 random(seed);
    while (lives++ < lives_of_round) {
      ++jobs;
      EXPECT_TRUE(services_.Ensure(kNamespace).ok());
      for (unsigned turns = random() % 4; turns > 0; --turns) std::this_thread::yield();
      EXPECT_TRUE(IsThere());
      --jobs;
      EXPECT_TRUE(services_.Remove(kNamespace, [&jobs] { return jobs > 0; }).ok());
    }
  };
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    lives = 0;
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < kThreads; ++i) threads.emplace_back(live, static_cast<unsigned>(round) * kThreads + i);
    for (std::thread& thread : threads) thread.join();
    EXPECT_FALSE(IsThere()) << "round " << round;
  }
  EXPECT_GT(server_.CountRequests("DELETE", "/services"), 1);
}

}  // namespace
}  // namespace downpour::controller
