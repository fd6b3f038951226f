#include "proto/deadline.h"

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "downpour/v1/control.grpc.pb.h"
#include "grpcpp/alarm.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/member_channel.h"
#include "tests/support/wall_clock.h"

namespace downpour {
namespace {

constexpr std::chrono::minutes kStep(10);

// Each test would last for ten minutes, and end with ctest's time limit.
class DeadlineTest : public ::testing::Test {
 protected:
  ~DeadlineTest() override { downpour::testing::SetWallClock(std::chrono::nanoseconds(0)); }

  static void StepBack() { downpour::testing::SetWallClock(-kStep); }
  // As soon as a thread waits that does not yet.
  static std::thread StepBackLater() {
    return std::thread(
        [before = downpour::testing::TimedWaits()] { downpour::testing::SetWallClockAfter(before, -kStep); });
  }
};

TEST_F(DeadlineTest, TheWallClockOfThisTestIsSet) {
  const absl::Time before = absl::Now();
  StepBack();
  EXPECT_LT(absl::Now(), before - absl::FromChrono(kStep) / 2);
  EXPECT_LT(absl::FromChrono(std::chrono::system_clock::now()), before - absl::FromChrono(kStep) / 2);
}

TEST_F(DeadlineTest, AConditionThatNeverHoldsTimesOut) {
  absl::Mutex mutex;
  bool never = false;
  std::thread stepper = StepBackLater();
  {
    absl::MutexLock lock(&mutex);
    EXPECT_FALSE(mutex.AwaitWithTimeout(absl::Condition(&never), absl::Milliseconds(300)));
  }
  stepper.join();
}

TEST_F(DeadlineTest, AConditionVariableThatNobodySignalsTimesOut) {
  absl::Mutex mutex;
  absl::CondVar changed;
  std::thread stepper = StepBackLater();
  {
    absl::MutexLock lock(&mutex);
    EXPECT_TRUE(changed.WaitWithTimeout(&mutex, absl::Milliseconds(300)));
  }
  stepper.join();
}

TEST_F(DeadlineTest, WhoIsWokenInTimeHasNotTimedOut) {
  absl::Mutex mutex;
  bool done = false;
  std::thread waker([&] {
    StepBack();
    absl::MutexLock lock(&mutex);
    done = true;
  });
  absl::MutexLock lock(&mutex);
  EXPECT_TRUE(mutex.AwaitWithTimeout(absl::Condition(&done), absl::Minutes(1)));
  mutex.Unlock();
  waker.join();
  mutex.Lock();
}

// gRPC's timers are looked after by a thread that waits for the next one.
TEST_F(DeadlineTest, ATimerOfGrpcThatWasSetBeforeTheStepExpires) {
  grpc::CompletionQueue queue;
  grpc::Alarm alarm;
  std::thread stepper = StepBackLater();
  alarm.Set(&queue, DeadlineIn(absl::Milliseconds(500)), &alarm);
  void* tag = nullptr;
  bool expired = false;
  ASSERT_TRUE(queue.Next(&tag, &expired));
  EXPECT_TRUE(expired);
  stepper.join();
  queue.Shutdown();
  EXPECT_FALSE(queue.Next(&tag, &expired));
}

TEST_F(DeadlineTest, ACallToWhomNobodyAnswersEnds) {
  struct Silent final : v1::Coordinator::CallbackService {
    grpc::ServerUnaryReactor* GetProgress(grpc::CallbackServerContext* context, const v1::ProgressRequest*,
                                          v1::ProgressReply*) override {
      StepBack();
      reactor = context->DefaultReactor();
      return reactor;
    }
    grpc::ServerUnaryReactor* reactor = nullptr;
  };
  Silent service;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  const auto stub = v1::Coordinator::NewStub(MakeMemberChannel("127.0.0.1:" + std::to_string(port)));
  grpc::ClientContext context;
  context.set_deadline(DeadlineIn(absl::Milliseconds(500)));
  v1::ProgressReply reply;
  EXPECT_EQ(stub->GetProgress(&context, {}, &reply).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  service.reactor->Finish(grpc::Status::OK);
}

}  // namespace
}  // namespace downpour
