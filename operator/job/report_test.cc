#include "operator/job/report.h"

#include <optional>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace downpour::job {
namespace {

TEST(ReportTest, ADataShardThatFailedHasAReasonForPrograms) {
  v1::ProgressReply reply;
  reply.set_phase(v1::PHASE_FAILED);
  EXPECT_EQ(ToReport(reply, 1).failure_reason, "");
  reply.set_failure(v1::FAILURE_DATA_SHARD);
  EXPECT_EQ(ToReport(reply, 1).failure_reason, "DataShardFailed");
}

TEST(ReportTest, AModelThatIsNotFiniteHasAReasonForPrograms) {
  v1::ProgressReply reply;
  reply.set_phase(v1::PHASE_FAILED);
  reply.set_failure(v1::FAILURE_MODEL_NOT_FINITE);
  EXPECT_EQ(ToReport(reply, 1).failure_reason, "ModelNotFinite");
}

TEST(ReportTest, WhatIsMissingIsPassedOn) {
  v1::ProgressReply reply;
  reply.add_warnings("39 of 40 updates were skipped");
  EXPECT_EQ(ToReport(reply, 1).warnings, std::vector<std::string>{"39 of 40 updates were skipped"});
}

TEST(ReportTest, SaysWhichWorkerHasTheModel) {
  v1::ProgressReply reply;
  EXPECT_EQ(ToReport(reply, 1).model, std::nullopt);
  reply.set_model_path("/output/model.safetensors");
  reply.set_model_worker(0);
  reply.set_model_worker_incarnation(3);
  EXPECT_EQ(ToReport(reply, 1).model, (api::OutputStatus{"/output/model.safetensors", 0, 3, std::nullopt}));
}

TEST(ReportTest, ALossThatNoWorkerHasIsNone) {
  v1::ProgressReply reply;
  reply.set_updates_applied(5);  // known from the parameter servers, after a restart of the coordinator
  EXPECT_FALSE(ToReport(reply, 1).loss.has_value());
  reply.set_loss(0.5);
  EXPECT_EQ(ToReport(reply, 1).loss, 0.5);
}

TEST(ReportTest, SaysWhatCheckpointsThereAreAndWhatTrainingBeganWith) {
  v1::ProgressReply reply;
  EXPECT_FALSE(ToReport(reply, 100).checkpoint.has_value());
  EXPECT_FALSE(ToReport(reply, 100).restoration.has_value());
  v1::CheckpointProgress& checkpoint = *reply.mutable_checkpoint();
  checkpoint.set_newest("/ckpt/a/1");
  checkpoint.set_newest_updates(7);
  checkpoint.set_newest_age_milliseconds(2500);
  checkpoint.set_written(2);
  checkpoint.set_failed(3);
  checkpoint.set_error("disk full");
  checkpoint.set_request("suspend-4");
  checkpoint.set_request_state(v1::REQUEST_FAILED);
  v1::Restoration& restoration = *reply.mutable_restoration();
  restoration.set_checkpoint("/ckpt/a/0");
  restoration.set_updates(5);
  restoration.add_skipped("1: torn");
  const planner::CoordinatorReport report = ToReport(reply, 100);
  EXPECT_EQ(report.checkpoint->newest, "/ckpt/a/1");
  EXPECT_EQ(report.checkpoint->updates, 7u);
  EXPECT_EQ(report.checkpoint->time, 97.5);
  EXPECT_EQ(report.checkpoint->written, 2);
  EXPECT_EQ(report.checkpoint->failed, 3);
  EXPECT_EQ(report.checkpoint->error, "disk full");
  EXPECT_EQ(report.checkpoint->request, "suspend-4");
  EXPECT_EQ(report.checkpoint->request_state, planner::RequestState::kFailed);
  EXPECT_EQ(report.restoration->checkpoint, "/ckpt/a/0");
  EXPECT_EQ(report.restoration->updates, 5u);
  EXPECT_EQ(report.restoration->skipped, std::vector<std::string>{"1: torn"});
  EXPECT_EQ(report.restoration->lost_updates, std::nullopt) << "not known";
  restoration.set_lost_updates(0);
  restoration.set_lost_seconds(1.5);
  EXPECT_EQ(ToReport(reply, 100).restoration->lost_updates, 0u);
  EXPECT_EQ(ToReport(reply, 100).restoration->lost_seconds, 1.5);
}

TEST(ReportTest, AQuestionTellsTheCheckpointThatIsWanted) {
  api::TrainingJobStatus status;
  EXPECT_EQ(MakeQuestion("abc", status).job_uid(), "abc");
  EXPECT_EQ(MakeQuestion("abc", status).checkpoint_request(), "");
  status.checkpoint_request = {"drain-1", 10};
  status.recent_failures.emplace_back();
  EXPECT_EQ(MakeQuestion("abc", status).checkpoint_request(), "drain-1");
  EXPECT_EQ(MakeQuestion("abc", status).failures_size(), 1);
}

TEST(ReportTest, HasTheModeInForce) {
  v1::ProgressReply reply;
  EXPECT_EQ(ToReport(reply, 1).mode, std::nullopt);
  reply.mutable_mode()->set_mode(v1::ASYNC);
  EXPECT_EQ(ToReport(reply, 1).mode, api::UpdateModeStatus());
  reply.mutable_mode()->set_mode(v1::BOUNDED_STALENESS);
  reply.mutable_mode()->set_staleness(0);
  EXPECT_EQ(ToReport(reply, 1).mode, (api::UpdateModeStatus{api::UpdateMode::kBoundedStaleness, 0, std::nullopt}));
  reply.mutable_mode()->set_mode(v1::SYNCHRONOUS);
  reply.mutable_mode()->set_updates_per_step(5);
  EXPECT_EQ(ToReport(reply, 1).mode, (api::UpdateModeStatus{api::UpdateMode::kSynchronous, std::nullopt, 5}));
}

TEST(ReportTest, HasWhatEvaluationsDecided) {
  v1::ProgressReply reply;
  EXPECT_EQ(ToReport(reply, 1).training, std::nullopt);
  reply.mutable_search()->set_outcome("converged");
  EXPECT_EQ(ToReport(reply, 1).outcome, "converged");
  reply.clear_search();
  reply.set_best_epoch(3);
  reply.set_best_reason("Loss was best after epoch 3, 0.25");
  planner::CoordinatorReport report = ToReport(reply, 1);
  ASSERT_TRUE(report.training.has_value());
  EXPECT_EQ(report.training->best,
            (api::BestModelStatus{.epoch = 3, .reason = "Loss was best after epoch 3, 0.25", .path = ""}));
  EXPECT_EQ(report.outcome, "");
  reply.set_rate_reason("multiplied by 0.5");
  reply.set_stop_reason("stopped early after epoch 5");
  reply.set_best_path("/models/best.safetensors");
  report = ToReport(reply, 1);
  EXPECT_EQ(report.training->rate_reason, "multiplied by 0.5");
  EXPECT_EQ(report.training->stop_reason, "stopped early after epoch 5");
  EXPECT_EQ(report.training->best->path, "/models/best.safetensors");
  EXPECT_EQ(report.outcome, "stopped early after epoch 5");
}

TEST(ReportTest, HasEveryMetricOfTheNewestEvaluation) {
  v1::ProgressReply reply;
  EXPECT_EQ(ToReport(reply, 1).test_accuracy, std::nullopt);
  v1::Evaluation* evaluation = reply.add_evaluations();
  evaluation->set_accuracy(0.5);
  evaluation = reply.add_evaluations();
  for (const auto& [name, value] : {std::pair("Top5Accuracy", 0.75), std::pair("MeanAbsoluteError", 0.25)}) {
    v1::Metric* metric = evaluation->add_metrics();
    metric->set_name(name);
    metric->set_value(value);
  }
  const planner::CoordinatorReport report = ToReport(reply, 1);
  EXPECT_EQ(report.test_accuracy, std::nullopt) << "that was the evaluation before";
  EXPECT_EQ(report.test_metrics,
            (std::vector<planner::TestMetric>{{"Top5Accuracy", 0.75}, {"MeanAbsoluteError", 0.25}}));
  evaluation->set_accuracy(0);
  EXPECT_EQ(ToReport(reply, 1).test_accuracy, 0);
}

TEST(ReportTest, TellsHowTheNewestWorkersEnded) {
  api::TrainingJobStatus status;
  for (int i = 0; i < 150; ++i) {
    api::FailureRecord& record = status.recent_failures.emplace_back();
    record.role = i % 10 == 0 ? api::Role::kParameterServer : api::Role::kWorker;
    record.index = i;
    record.incarnation = i + 1;
    record.platform = i % 2 == 0;
    record.cause = "OOMKilled";
  }
  const std::vector<v1::MemberFailure> failures = RecentFailures(status);
  ASSERT_EQ(failures.size(), 100u);
  EXPECT_EQ(failures[90].role(), "ps");
  EXPECT_EQ(failures[90].index(), 140u);
  EXPECT_EQ(failures.back().role(), "worker");
  EXPECT_EQ(failures.back().index(), 149u);
  EXPECT_EQ(failures.back().process_incarnation(), 150u);
  EXPECT_FALSE(failures.back().platform());
  EXPECT_TRUE(failures[failures.size() - 2].platform());
  EXPECT_EQ(failures.back().cause(), "OOMKilled");
}

TEST(ReportTest, TheEndOfAPsIsToldOnceItHasEnded) {
  api::TrainingJobStatus status;
  api::FailureRecord& record = status.recent_failures.emplace_back();
  record.role = api::Role::kParameterServer;
  record.index = 1;
  record.incarnation = 3;
  planner::Instance instance;
  instance.role = record.role;
  instance.index = 1;
  instance.incarnation = 3;
  instance.phase = planner::InstancePhase::kRunning;  // it was asked to end
  EXPECT_EQ(MakeQuestion("abc", status, {instance}).failures_size(), 0);
  instance.incarnation = 4;
  EXPECT_EQ(MakeQuestion("abc", status, {instance}).failures_size(), 1) << "that is the next one";
  instance.incarnation = 3;
  instance.phase = planner::InstancePhase::kFailed;
  const v1::ProgressRequest question = MakeQuestion("abc", status, {instance});
  ASSERT_EQ(question.failures_size(), 1);
  EXPECT_EQ(question.failures(0).role(), "ps");
  EXPECT_EQ(question.failures(0).process_incarnation(), 3u);
  EXPECT_EQ(MakeQuestion("abc", status).failures_size(), 1) << "it is gone";
}

TEST(ReportTest, TellsWhoLeavesAndHasWhoHoldsSomething) {
  api::TrainingJobStatus status;
  status.leaving_parameter_servers = {{1, 100}, {3, 100}};
  v1::ProgressRequest question = MakeQuestion("abc", status);
  question.mutable_ps()->set_revision(5);
  EXPECT_EQ(ToldBy(question).revision, 5);
  EXPECT_EQ(ToldBy(question).leaving_ps, (std::vector<int>{1, 3}));

  v1::ProgressReply reply;
  EXPECT_FALSE(ToReport(reply, 1).replication.has_value());
  EXPECT_TRUE(ToReport(reply, 1).placed_ps.empty());
  reply.add_placed_ps(0);
  reply.add_placed_ps(2);
  v1::ReplicationProgress& replication = *reply.mutable_replication();
  replication.set_slices(10);
  replication.set_in_sync(8);
  replication.set_moving(2);
  replication.set_message("two are copied");
  const planner::CoordinatorReport report = ToReport(reply, 1);
  EXPECT_EQ(report.placed_ps, (std::vector<int>{0, 2}));
  EXPECT_EQ(report.replication->slices, 10);
  EXPECT_EQ(report.replication->in_sync, 8);
  EXPECT_EQ(report.replication->moving, 2);
  EXPECT_EQ(report.replication->message, "two are copied");
}

TEST(ReportTest, WhatWorkersComputeOnIsTakenOver) {
  v1::ProgressReply reply;
  const auto add = [&reply](const char* role, std::uint32_t index, const char* device) {
    v1::MemberProgress* const member = reply.add_members();
    member->set_role(role);
    member->set_index(index);
    member->mutable_worker()->set_device(device);
  };
  add("worker", 2, "cpu, fused, 1 thread");
  add("ps", 0, "");
  add("worker", 0, "cuda, contiguous, 1 thread, 2 GPUs");
  reply.mutable_members(2)->mutable_worker()->set_devices(2);
  add("worker", 1, "");
  const planner::CoordinatorReport report = ToReport(reply, 1);
  ASSERT_EQ(report.devices.size(), 2u) << "who has told nothing is left out";
  EXPECT_EQ(report.devices[0].index, 0);
  EXPECT_EQ(report.devices[1].index, 2);
  EXPECT_EQ(report.devices[1].device, "cpu, fused, 1 thread");
  EXPECT_EQ(report.devices[0].count, 2);
  EXPECT_EQ(report.devices[1].count, 1) << "of a worker that does not say how many";
}

TEST(ReportTest, WhoTrainsTogetherIsTakenOver) {
  v1::ProgressReply reply;
  EXPECT_FALSE(ToReport(reply, 1).ring.has_value()) << "nothing is known yet";
  v1::RingProgress& ring = *reply.mutable_ring();
  ring.set_members(2);
  ring.set_wanted(3);
  ring.set_formed(true);
  ring.set_formed_count(5);
  ring.set_updates_per_step(4);
  ring.set_message("others may come");
  api::RingStatus expected;
  expected.members = 2;
  expected.wanted = 3;
  expected.formed = true;
  expected.formed_count = 5;
  expected.updates_per_step = 4;
  expected.message = "others may come";
  EXPECT_EQ(ToReport(reply, 1).ring, expected);
}

}  // namespace
}  // namespace downpour::job
