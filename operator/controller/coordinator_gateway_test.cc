#include "operator/controller/coordinator_gateway.h"

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "downpour/v1/control.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "tests/support/self_join.h"
#include "tests/support/wall_clock.h"

namespace downpour::controller {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(30);  // far longer than anything here takes
constexpr char kUid[] = "aaaa-bbbb";
constexpr char kKey[] = "default/lenet";
constexpr CoordinatorGateway::Periods kOften = {absl::Milliseconds(1), absl::ZeroDuration()};

// A process of a job that answers when it is told to.
class Process final : public v1::Coordinator::Service {
 public:
  Process() {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    builder.RegisterService(&parameter_server_);
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~Process() override {
    SetSilent(false);
    server_->Shutdown();
  }

  grpc::Status GetProgress(grpc::ServerContext* /*context*/, const v1::ProgressRequest* request,
                           v1::ProgressReply* reply) override {
    absl::MutexLock lock(&mutex_);
    ++asked_;
    questions_.push_back(*request);
    mutex_.AwaitWithTimeout(absl::Condition(&answers_), kPatience);
    *reply = reply_;
    return grpc::Status::OK;
  }

  grpc::Status Finish(grpc::ServerContext* /*context*/, const v1::FinishRequest* request,
                      v1::FinishReply* reply) override {
    return Note(*request, *reply);
  }

  const std::string& address() const { return address_; }

  void SetSilent(bool silent) {
    absl::MutexLock lock(&mutex_);
    answers_ = !silent;
  }
  void Reply(const v1::ProgressReply& reply) {
    absl::MutexLock lock(&mutex_);
    reply_ = reply;
  }
  // False: it was not asked so often.
  bool WaitUntilAsked(int times) {
    absl::MutexLock lock(&mutex_);
    const auto often_enough = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return asked_ >= times; };
    return mutex_.AwaitWithTimeout(absl::Condition(&often_enough), kPatience);
  }
  bool WaitUntilFinished() {
    absl::MutexLock lock(&mutex_);
    const auto finished = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !finished_.empty(); };
    return mutex_.AwaitWithTimeout(absl::Condition(&finished), kPatience);
  }
  std::vector<v1::ProgressRequest> questions() {
    absl::MutexLock lock(&mutex_);
    return questions_;
  }
  std::vector<std::string> finished() {
    absl::MutexLock lock(&mutex_);
    return finished_;
  }

 private:
  class ParameterServer final : public v1::ParameterServer::Service {
   public:
    explicit ParameterServer(Process* process) : process_(process) {}
    grpc::Status Finish(grpc::ServerContext* /*context*/, const v1::FinishRequest* request,
                        v1::FinishReply* reply) override {
      return process_->Note(*request, *reply);
    }

   private:
    Process* const process_;
  };

  grpc::Status Note(const v1::FinishRequest& request, v1::FinishReply& reply) {
    absl::MutexLock lock(&mutex_);
    finished_.push_back(request.job_uid());
    reply.set_accepted(true);
    return grpc::Status::OK;
  }

  ParameterServer parameter_server_{this};
  std::string address_;
  absl::Mutex mutex_;
  bool answers_ ABSL_GUARDED_BY(mutex_) = true;
  int asked_ ABSL_GUARDED_BY(mutex_) = 0;
  v1::ProgressReply reply_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::ProgressRequest> questions_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> finished_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<grpc::Server> server_;
};

class Changes {
 public:
  void Add(const std::string& key) {
    absl::MutexLock lock(&mutex_);
    keys_.push_back(key);
  }
  bool WaitFor(std::size_t count) {
    absl::MutexLock lock(&mutex_);
    const auto enough = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return keys_.size() >= count; };
    return mutex_.AwaitWithTimeout(absl::Condition(&enough), kPatience);
  }
  std::vector<std::string> keys() {
    absl::MutexLock lock(&mutex_);
    return keys_;
  }

 private:
  absl::Mutex mutex_;
  std::vector<std::string> keys_ ABSL_GUARDED_BY(mutex_);
};

std::unique_ptr<CoordinatorGateway> MakeGateway(Changes& changes, absl::Duration deadline = kPatience) {
  return MakeCoordinatorGateway({deadline, /*most_in_flight=*/64, [] { return 1000.0; }},
                                [&changes](const std::string& key) { changes.Add(key); });
}

v1::ProgressReply Training(std::uint64_t updates) {
  v1::ProgressReply reply;
  reply.set_phase(v1::PHASE_TRAINING);
  reply.set_updates_applied(updates);
  v1::MemberProgress* worker = reply.add_members();
  worker->set_role("worker");
  worker->set_index(2);
  worker->set_process_incarnation(7);
  return reply;
}

TEST(CoordinatorGatewayTest, AsksAndTellsWhatChanged) {
  Process coordinator;
  coordinator.Reply(Training(10));
  Changes changes;
  const auto gateway = MakeGateway(changes);
  EXPECT_FALSE(gateway->Latest(kUid).has_value());
  v1::ProgressRequest question;
  question.set_job_uid("aaaabbbb");
  question.add_failures()->set_role("worker");
  question.set_checkpoint_request("suspend-4");
  gateway->Follow(kUid, kKey, coordinator.address(), {absl::Milliseconds(1), absl::InfiniteDuration()}, question);
  ASSERT_TRUE(changes.WaitFor(1));
  const auto answer = gateway->Latest(kUid);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->reply.updates_applied(), 10);
  ASSERT_EQ(answer->reply.members_size(), 1);
  EXPECT_EQ(answer->reply.members(0).index(), 2);
  EXPECT_EQ(answer->reply.members(0).process_incarnation(), 7);
  EXPECT_EQ(coordinator.questions().front().SerializeAsString(), question.SerializeAsString());
  // The same again is no news, nor is progress that nobody wants to hear of; another phase is.
  ASSERT_TRUE(coordinator.WaitUntilAsked(5));
  EXPECT_EQ(changes.keys(), std::vector<std::string>{kKey});
  v1::ProgressReply done = Training(20);
  done.set_phase(v1::PHASE_DONE);
  coordinator.Reply(done);
  ASSERT_TRUE(changes.WaitFor(2));
  EXPECT_EQ(changes.keys(), std::vector<std::string>(2, kKey));
  done.mutable_checkpoint()->set_request("suspend-4");
  done.mutable_checkpoint()->set_request_state(v1::REQUEST_DONE);
  coordinator.Reply(done);
  ASSERT_TRUE(changes.WaitFor(3)) << "somebody waits for it";
  gateway->Forget(kUid);
  EXPECT_FALSE(gateway->Latest(kUid).has_value());
}

TEST(CoordinatorGatewayTest, WhatIsNewIsToldAtOnceAndTheAnswerSaysWhatWasTold) {
  Process coordinator;
  v1::ProgressReply reply = Training(10);
  reply.add_placed_ps(0);
  coordinator.Reply(reply);
  Changes changes;
  const auto gateway = MakeGateway(changes);
  const CoordinatorGateway::Periods seldom = {absl::Hours(1), absl::InfiniteDuration()};
  v1::ProgressRequest question;
  question.mutable_ps()->set_revision(3);
  gateway->Follow(kUid, kKey, coordinator.address(), seldom, question);
  ASSERT_TRUE(changes.WaitFor(1));
  EXPECT_EQ(gateway->Latest(kUid)->told.revision, 3);
  coordinator.SetSilent(true);
  question.mutable_ps()->set_revision(4);
  question.add_leaving_ps(1);
  gateway->Follow(kUid, kKey, coordinator.address(), seldom, question);
  ASSERT_TRUE(coordinator.WaitUntilAsked(2));
  question.add_failures()->set_role("ps");  // while that is under way
  gateway->Follow(kUid, kKey, coordinator.address(), seldom, question);
  reply.add_placed_ps(1);
  coordinator.Reply(reply);
  coordinator.SetSilent(false);
  ASSERT_TRUE(coordinator.WaitUntilAsked(3));
  EXPECT_EQ(coordinator.questions().back().failures_size(), 1);
  ASSERT_TRUE(changes.WaitFor(2)) << "who holds the slices is news";
  EXPECT_EQ(gateway->Latest(kUid)->told.revision, 4);
  EXPECT_EQ(gateway->Latest(kUid)->told.leaving_ps, std::vector<int>{1});
}

TEST(CoordinatorGatewayTest, AnotherRingIsNews) {
  Process coordinator;
  v1::ProgressReply reply = Training(1);
  reply.mutable_ring()->set_members(2);
  coordinator.Reply(reply);
  Changes changes;
  const auto gateway = MakeGateway(changes);
  gateway->Follow(kUid, kKey, coordinator.address(), kOften, {});
  ASSERT_TRUE(changes.WaitFor(1));
  reply.mutable_ring()->set_formed(true);
  coordinator.Reply(reply);
  ASSERT_TRUE(changes.WaitFor(2));
  reply.mutable_ring()->set_message("worker-1 leaves");
  coordinator.Reply(reply);
  ASSERT_TRUE(changes.WaitFor(3));
  EXPECT_EQ(gateway->Latest(kUid)->reply.ring().message(), "worker-1 leaves");
}

TEST(CoordinatorGatewayTest, AWallClockThatIsSetBackDoesNotHoldUpTheNextQuestion) {
  Process coordinator;
  coordinator.Reply(Training(1));
  Changes changes;
  const auto gateway = MakeGateway(changes);
  gateway->Follow(kUid, kKey, coordinator.address(), kOften, {});
  ASSERT_TRUE(coordinator.WaitUntilAsked(2));
  downpour::testing::SetWallClock(std::chrono::minutes(-10));
  const std::size_t asked = coordinator.questions().size();
  EXPECT_TRUE(coordinator.WaitUntilAsked(static_cast<int>(asked) + 3));
  downpour::testing::SetWallClock(std::chrono::nanoseconds(0));
}

TEST(CoordinatorGatewayTest, OneThatIsSilentIsAskedAgainAfterTheDeadline) {
  Process coordinator;
  coordinator.SetSilent(true);
  Changes changes;
  const auto gateway = MakeGateway(changes, absl::Milliseconds(50));
  gateway->Follow(kUid, kKey, coordinator.address(), kOften, {});
  ASSERT_TRUE(coordinator.WaitUntilAsked(3));
  EXPECT_TRUE(changes.keys().empty());
  coordinator.Reply(Training(1));
  coordinator.SetSilent(false);
  EXPECT_TRUE(changes.WaitFor(1));
}

TEST(CoordinatorGatewayTest, AReplacementIsAskedWhileTheOneBeforeIsSilent) {
  Process before, after;
  before.SetSilent(true);
  before.Reply(Training(1));
  after.Reply(Training(2));
  Changes changes;
  const auto gateway = MakeGateway(changes);
  gateway->Follow(kUid, kKey, before.address(), kOften, {});
  ASSERT_TRUE(before.WaitUntilAsked(1));
  gateway->Follow(kUid, kKey, after.address(), kOften, {});
  ASSERT_TRUE(changes.WaitFor(1));
  before.SetSilent(false);
  ASSERT_TRUE(after.WaitUntilAsked(5));
  EXPECT_EQ(gateway->Latest(kUid)->reply.updates_applied(), 2) << "the one before does not count any more";
}

// One that took over answers as the one before did: that it does is news.
TEST(CoordinatorGatewayTest, TheFirstAnswerOfAReplacementIsNews) {
  Process before, after;
  before.Reply(Training(1));
  after.Reply(Training(1));
  Changes changes;
  const auto gateway = MakeGateway(changes);
  const CoordinatorGateway::Periods news_only = {absl::Milliseconds(1), absl::InfiniteDuration()};
  gateway->Follow(kUid, kKey, before.address(), news_only, {});
  ASSERT_TRUE(changes.WaitFor(1));
  gateway->Follow(kUid, kKey, after.address(), news_only, {});
  EXPECT_TRUE(changes.WaitFor(2));
}

TEST(CoordinatorGatewayTest, EndsWhileACoordinatorIsSilent) {
  Process coordinator;
  coordinator.SetSilent(true);
  Changes changes;
  auto gateway = MakeGateway(changes);
  gateway->Follow(kUid, kKey, coordinator.address(), kOften, {});
  ASSERT_TRUE(coordinator.WaitUntilAsked(1));
  gateway.reset();
  EXPECT_TRUE(changes.keys().empty());
}

// gRPC ends its threads with the last channel, and waits for them. One of them that lets go of the last channel would
// wait for itself, which gRPC 1.51 takes for having waited, and goes on with what it freed
// (https://github.com/grpc/grpc/issues/37858).
TEST(CoordinatorGatewayTest, TheLastJobMayBeForgottenWhileItIsAsked) {
  for (int i = 0; i < 10; ++i) {
    Process coordinator;
    coordinator.SetSilent(true);
    Changes changes;
    const auto gateway = MakeGateway(changes);
    gateway->Follow(kUid, kKey, coordinator.address(), kOften, {});
    ASSERT_TRUE(coordinator.WaitUntilAsked(1));
    gateway->Forget(kUid);
    coordinator.SetSilent(false);
    EXPECT_TRUE(changes.keys().empty());
  }
  EXPECT_EQ(testing::SelfJoins(), 0);
}

TEST(CoordinatorGatewayTest, TheLastCallMayBeThatTheOutcomeIsStored) {
  for (const api::Role role : {api::Role::kCoordinator, api::Role::kParameterServer}) {
    for (int i = 0; i < 5; ++i) {
      Process process;
      Changes changes;
      const auto gateway = MakeGateway(changes);
      gateway->Finish(role, kUid, process.address());
      ASSERT_TRUE(process.WaitUntilFinished());
      EXPECT_EQ(process.finished(), std::vector<std::string>{"aaaabbbb"});
    }
  }
  EXPECT_EQ(testing::SelfJoins(), 0);
}

}  // namespace
}  // namespace downpour::controller
