#include "trainer/core/tasks.h"

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "gtest/gtest.h"

namespace downpour::core {
namespace {

constexpr std::uint64_t kSession = 7;
constexpr ProcessKey kProcess{0, 1};
constexpr Time kStart = absl::Seconds(100);

class TasksTest : public testing::Test {
 protected:
  // What `session`, of the worker `worker`, holds after it has asked for more.
  v1::WorkerSyncReply Ask(std::uint64_t session, std::uint32_t worker, Time now = kStart, bool wants = true) {
    v1::WorkerSyncReply reply;
    tasks_.Grant(session, worker, wants, available_, now, numbers_, &reply);
    return reply;
  }
  static v1::TaskResult ResultOf(const v1::Lease& lease, const std::string& error = "") {
    v1::TaskResult result;
    result.set_lease(lease.lease());
    result.set_kind(lease.kind());
    result.set_dataset_epoch(lease.shard().dataset_epoch());
    result.set_error(error);
    return result;
  }

  Tasks tasks_;
  std::set<std::uint32_t> available_{0, 1};
  LeaseNumbers numbers_{3};
};

TEST_F(TasksTest, EachGoesToOneSessionAndASessionHasOne) {
  tasks_.Add({2, v1::TASK_EVALUATE});
  tasks_.Add({2, v1::TASK_EXPORT});
  EXPECT_EQ(Ask(kSession, 0, kStart, /*wants=*/false).leases_size(), 0);
  const v1::WorkerSyncReply first = Ask(kSession, 0);
  ASSERT_EQ(first.leases_size(), 1);
  EXPECT_EQ(first.leases(0).kind(), v1::TASK_EXPORT) << "nothing may cost the model";
  EXPECT_EQ(first.leases(0).lease() >> 32, 3u) << "of this incarnation";
  const v1::WorkerSyncReply other = Ask(8, 1);
  ASSERT_EQ(other.leases_size(), 1);
  EXPECT_EQ(other.leases(0).kind(), v1::TASK_EVALUATE);
  EXPECT_EQ(Ask(9, 1).leases_size(), 0) << "all is given";
  EXPECT_EQ(Ask(kSession, 0).leases(0).lease(), first.leases(0).lease());
}

TEST_F(TasksTest, WhatIsDoneIsNotDoneAgain) {
  const TaskKey key{1, v1::TASK_EVALUATE};
  tasks_.Add(key);
  EXPECT_FALSE(tasks_.AllDone(1));
  EXPECT_TRUE(tasks_.AllDone(2));
  v1::TaskResult result = ResultOf(Ask(kSession, 0).leases(0));
  result.set_samples(5);
  EXPECT_FALSE(tasks_.Accept(result, kSession + 1, kProcess, kStart).has_value());
  EXPECT_FALSE(tasks_.AllDone(1)) << "not the holder's word";
  EXPECT_FALSE(tasks_.Accept(result, kSession, kProcess, kStart).has_value());
  EXPECT_FALSE(tasks_.Accept(result, kSession, kProcess, kStart).has_value());
  EXPECT_TRUE(tasks_.AllDone(1));
  tasks_.Add(key);
  v1::HeldLease held;
  held.set_kind(key.kind);
  held.mutable_shard()->set_dataset_epoch(key.dataset_epoch);
  tasks_.Adopt(held, kSession);
  EXPECT_TRUE(tasks_.AllDone(1));
  v1::ProgressReply progress;
  tasks_.Report(&progress);
  EXPECT_EQ(progress.evaluations_size(), 1);

  tasks_.Forget();
  tasks_.Add(key);
  EXPECT_FALSE(tasks_.AllDone(1)) << "another history, another evaluation";
}

TEST_F(TasksTest, AnEndedSessionGivesItsTaskBack) {
  tasks_.Add({1, v1::TASK_EVALUATE});
  const std::uint64_t lease = Ask(kSession, 0).leases(0).lease();
  tasks_.DropWaiting(2);
  EXPECT_EQ(Ask(8, 1).leases_size(), 0) << "somebody has it";
  tasks_.EndSession(kSession);
  ASSERT_EQ(Ask(8, 1).leases_size(), 1);
  EXPECT_NE(Ask(8, 1).leases(0).lease(), lease);
  tasks_.EndSession(8);
  tasks_.DropWaiting(2);
  EXPECT_EQ(Ask(8, 1).leases_size(), 0);
}

TEST_F(TasksTest, AfterAFailureItIsTheTurnOfWhereItFailedLess) {
  tasks_.Add({1, v1::TASK_EXPORT});
  EXPECT_FALSE(tasks_.Accept(ResultOf(Ask(kSession, 0).leases(0), "full"), kSession, kProcess, kStart).has_value());
  EXPECT_EQ(tasks_.Errors(), std::vector<std::string>{"full"});
  const Time later = kStart + absl::Minutes(1);
  EXPECT_EQ(Ask(kSession, 0, later).leases_size(), 0) << "worker 1 has not tried";
  available_ = {0};
  EXPECT_EQ(Ask(kSession, 0, kStart).leases_size(), 0) << "not at once";
  EXPECT_EQ(Ask(kSession, 0, later).leases_size(), 1);
}

TEST_F(TasksTest, AnEvaluationIsSettledOnceNoEarlierOneIsAwaited) {
  for (const std::uint32_t epoch : {1, 2, 3}) tasks_.Add({epoch, v1::TASK_EVALUATE});
  const auto evaluate = [this](std::uint64_t session, const v1::WorkerSyncReply& asked) {
    v1::TaskResult result = ResultOf(asked.leases(0));
    result.set_samples(5);
    tasks_.Accept(result, session, kProcess, kStart);
  };
  const v1::WorkerSyncReply first = Ask(1, 0), second = Ask(2, 1);
  evaluate(2, second);
  EXPECT_TRUE(tasks_.SettledEvaluations().empty());
  EXPECT_EQ(tasks_.evaluations().size(), 1u);
  evaluate(1, first);
  ASSERT_EQ(tasks_.SettledEvaluations().size(), 2u);
  EXPECT_EQ(tasks_.SettledEvaluations()[0].dataset_epoch(), 1u);
}

TEST_F(TasksTest, WhatIsOfAnEpochThatIsNotFinishedIsNotRestored) {
  v1::CheckpointManifest manifest;
  manifest.set_watermark(2);
  for (const std::uint32_t epoch : {1, 2, 3}) {
    manifest.add_evaluations()->set_dataset_epoch(epoch);
    manifest.add_evaluated(epoch);
  }
  tasks_.Restore(manifest, /*own=*/true);
  EXPECT_EQ(tasks_.evaluations().size(), 2u);
  tasks_.Add({2, v1::TASK_EVALUATE});
  EXPECT_TRUE(tasks_.AllDone(0));
  tasks_.Add({3, v1::TASK_EVALUATE});
  EXPECT_FALSE(tasks_.AllDone(0));
}

TEST_F(TasksTest, AnotherJobsEvaluationsAreNoBestAndNobodyAdoptsTheirKeeping) {
  Tasks tasks("Loss");
  v1::CheckpointManifest manifest;
  manifest.set_watermark(1);
  manifest.add_evaluations()->set_dataset_epoch(1);
  tasks.Restore(manifest, /*own=*/false);
  v1::ProgressReply progress;
  tasks.Report(&progress);
  EXPECT_FALSE(progress.has_best_epoch());
  EXPECT_EQ(progress.best_reason(), "");
  v1::HeldLease held;
  held.set_kind(v1::TASK_KEEP_BEST);
  tasks.Adopt(held, kSession);
  EXPECT_TRUE(tasks.AllDone(0));
}

TEST_F(TasksTest, TheBestIsToldAndWhereItIsKept) {
  Tasks tasks("Loss");
  for (const std::uint32_t epoch : {1, 2}) {
    tasks.Add({epoch, v1::TASK_EVALUATE});
    v1::WorkerSyncReply reply;
    tasks.Grant(kSession, 0, true, available_, kStart, numbers_, &reply);
    v1::TaskResult result = ResultOf(reply.leases(0));
    result.set_samples(5);
    result.set_loss(epoch);
    tasks.Accept(result, kSession, kProcess, kStart);
  }
  v1::ProgressReply progress;
  tasks.Report(&progress);
  EXPECT_EQ(progress.best_epoch(), 1u);
  EXPECT_EQ(progress.best_path(), "");
  tasks.Add({2, v1::TASK_KEEP_BEST});
  v1::WorkerSyncReply reply;
  tasks.Grant(kSession, 0, true, available_, kStart, numbers_, &reply);
  ASSERT_EQ(reply.leases_size(), 1);
  EXPECT_EQ(reply.leases(0).kind(), v1::TASK_KEEP_BEST);
  v1::TaskResult result = ResultOf(reply.leases(0));
  result.set_path("/output/best.safetensors");
  result.set_best_epoch(1);
  result.add_metrics()->set_name("Loss");
  result.mutable_metrics(0)->set_value(1);
  tasks.Accept(result, kSession, kProcess, kStart);
  v1::ProgressReply end;
  tasks.Report(&end);
  EXPECT_EQ(end.best_path(), "/output/best.safetensors");
  EXPECT_EQ(end.best_epoch(), 1u);
  EXPECT_NE(end.best_reason().find("after epoch 1, 1"), std::string::npos) << end.best_reason();
  EXPECT_EQ(end.model_path(), "") << "is another one";
  EXPECT_TRUE(tasks.AllDone(0));
}

TEST_F(TasksTest, AnExportThatFailsForGoodFailsTheJobAndAnEvaluationWarns) {
  for (const v1::TaskKind kind : {v1::TASK_EVALUATE, v1::TASK_EXPORT}) {
    available_ = {0};
    tasks_.Add({1, kind});
    Time now = kStart;
    std::optional<Tasks::Failure> failure;
    int tries = 0;
    for (; !tasks_.AllDone(1); now += absl::Minutes(1), ++tries) {
      const v1::WorkerSyncReply reply = Ask(kSession, 0, now);
      ASSERT_EQ(reply.leases_size(), 1);
      failure = tasks_.Accept(ResultOf(reply.leases(0), "full"), kSession, kProcess, now);
    }
    EXPECT_EQ(tries, 8);
    EXPECT_EQ(failure.has_value(), kind == v1::TASK_EXPORT);
  }
  v1::ProgressReply progress;
  tasks_.Report(&progress);
  ASSERT_EQ(progress.warnings_size(), 1);
  EXPECT_EQ(progress.warnings(0), "the evaluation after epoch 1 could not be made in 8 tries: full");
}

}  // namespace
}  // namespace downpour::core
