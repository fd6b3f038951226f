#include "trainer/service/calls.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "downpour/v1/control.grpc.pb.h"
#include "gtest/gtest.h"
#include "tests/support/self_join.h"
#include "trainer/service/stubs.h"

namespace downpour::service {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(30);  // far longer than anything here takes

// Answers questions about "job", and no other before it is told to.
class Coordinator final : public v1::Coordinator::Service {
 public:
  Coordinator() {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~Coordinator() override {
    go_on_.Notify();
    server_->Shutdown();
  }

  grpc::Status GetProgress(grpc::ServerContext* /*context*/, const v1::ProgressRequest* request,
                           v1::ProgressReply* reply) override {
    if (request->job_uid() != "job") {
      asked_.Notify();
      go_on_.WaitForNotificationWithTimeout(kPatience);
    }
    reply->set_updates_applied(7);
    return grpc::Status::OK;
  }

  const std::string& address() const { return address_; }
  bool WaitUntilAsked() { return asked_.WaitForNotificationWithTimeout(kPatience); }

 private:
  std::string address_;
  absl::Notification asked_, go_on_;
  std::unique_ptr<grpc::Server> server_;
};

struct Answer {
  absl::Notification given;
  absl::StatusOr<v1::ProgressReply> reply;
};

void Ask(Calls& calls, v1::Coordinator::Stub* stub, const std::string& job_uid, absl::Duration deadline,
         Answer& answer) {
  v1::ProgressRequest request;
  request.set_job_uid(job_uid);
  calls.Unary<v1::ProgressReply>(
      std::move(request), deadline,
      [stub](grpc::ClientContext* context, const v1::ProgressRequest* question, v1::ProgressReply* reply,
             std::function<void(grpc::Status)> done) {
        stub->async()->GetProgress(context, question, reply, std::move(done));
      },
      [&answer](absl::StatusOr<v1::ProgressReply> reply) {
        answer.reply = std::move(reply);
        answer.given.Notify();
      });
}

TEST(CallsTest, AnswersAndDeadlines) {
  Coordinator coordinator;
  Answer soon, never;
  Stubs<v1::Coordinator> stubs;
  Calls calls;
  v1::Coordinator::Stub* const stub = stubs.For(coordinator.address());
  EXPECT_EQ(stubs.For(coordinator.address()), stub);
  Ask(calls, stub, "job", kPatience, soon);
  Ask(calls, stub, "another", absl::Milliseconds(50), never);
  ASSERT_TRUE(soon.given.WaitForNotificationWithTimeout(kPatience));
  ASSERT_TRUE(soon.reply.ok()) << soon.reply.status();
  EXPECT_EQ(soon.reply->updates_applied(), 7);
  ASSERT_TRUE(never.given.WaitForNotificationWithTimeout(kPatience));
  EXPECT_TRUE(absl::IsDeadlineExceeded(never.reply.status())) << never.reply.status();
}

TEST(CallsTest, OneThatIsRenewedLeavesCallsOfTheOldAlone) {
  Coordinator coordinator;
  Answer old, never, fresh;
  Stubs<v1::Coordinator> stubs;
  Calls calls;
  stubs.Renew(coordinator.address());  // nobody asked yet
  v1::Coordinator::Stub* const before = stubs.For(coordinator.address());
  Ask(calls, before, "another", kPatience, never);
  ASSERT_TRUE(coordinator.WaitUntilAsked());
  stubs.Renew(coordinator.address());
  v1::Coordinator::Stub* const after = stubs.For(coordinator.address());
  EXPECT_NE(after, before);
  EXPECT_EQ(stubs.For(coordinator.address()), after);
  Ask(calls, before, "job", kPatience, old);
  Ask(calls, after, "job", kPatience, fresh);
  ASSERT_TRUE(old.given.WaitForNotificationWithTimeout(kPatience));
  ASSERT_TRUE(fresh.given.WaitForNotificationWithTimeout(kPatience));
  EXPECT_TRUE(old.reply.ok());
  EXPECT_TRUE(fresh.reply.ok());
  EXPECT_FALSE(never.given.HasBeenNotified());
}

TEST(CallsTest, TheEndCancelsWhatIsUnderWayAndRefusesWhatComesAfter) {
  Coordinator coordinator;
  Answer first, second;
  Stubs<v1::Coordinator> stubs;
  Calls calls;
  Ask(calls, stubs.For(coordinator.address()), "another", kPatience, first);
  ASSERT_TRUE(coordinator.WaitUntilAsked());
  calls.CancelAndWait();
  ASSERT_TRUE(first.given.HasBeenNotified());
  EXPECT_TRUE(absl::IsCancelled(first.reply.status())) << first.reply.status();
  Ask(calls, stubs.For(coordinator.address()), "job", kPatience, second);
  ASSERT_TRUE(second.given.HasBeenNotified());
  EXPECT_TRUE(absl::IsCancelled(second.reply.status())) << second.reply.status();
}

TEST(CallsTest, NoChannelEndsOnAThreadOfGrpc) {
  for (int i = 0; i < 30; ++i) {
    Coordinator coordinator;
    Answer answer;
    Stubs<v1::Coordinator> stubs;
    Calls calls;
    Ask(calls, stubs.For(coordinator.address()), "job", kPatience, answer);
    ASSERT_TRUE(answer.given.WaitForNotificationWithTimeout(kPatience));
  }
  EXPECT_EQ(testing::SelfJoins(), 0);
}

}  // namespace
}  // namespace downpour::service
