#include "cli/job_view.h"

#include "cli/render/test_metrics.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/planner/conditions.h"

namespace downpour::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

controller::JobRecord Record() {
  controller::JobRecord record;
  record.meta.name = "lenet";
  record.meta.namespace_name = "team";
  record.meta.creation_time = 1000;
  record.job.spec.parameter_server.emplace();
  record.job.spec.worker.replicas = 2;
  record.job.spec.training.epochs = 4;
  record.job.status.phase = "Running";
  record.job.status.observed_generation = 1;
  record.job.status.start_time = 1010;
  record.job.status.worker.desired = 2;
  return record;
}

controller::Pod Worker(int index, const std::string& phase) {
  controller::Pod pod;
  pod.meta.uid = "uid";
  pod.index = index;
  pod.incarnation = 3;
  pod.phase = phase;
  pod.node = "node-0";
  return pod;
}

TEST(JobViewTest, ProgressIsThatOfTheStatus) {
  controller::JobRecord record = Record();
  EXPECT_FALSE(MakeJobSnapshot(record, {}, 1110).progress.has_value()) << "unknown is not zero";
  record.job.status.progress.emplace();
  record.job.status.progress->step = 250;
  record.job.status.progress->total_steps = 400;
  record.job.status.progress->loss = "0.2500";
  record.job.status.progress->last_update_time = 1108;
  const Snapshot snapshot = MakeJobSnapshot(record, {Worker(0, "Running")}, 1110);
  EXPECT_EQ(snapshot.seconds, 100);
  EXPECT_EQ(snapshot.progress->phase(), v1::PHASE_TRAINING);
  EXPECT_EQ(snapshot.progress->updates_per_epoch(), 100u);
  EXPECT_EQ(snapshot.progress->epochs_done(), 2u);
  EXPECT_EQ(snapshot.progress->loss(), 0.25);
  EXPECT_FALSE(snapshot.progress->has_samples_per_second());
  EXPECT_EQ(snapshot.progress->evaluations_size(), 0);
  EXPECT_THAT(MakeJobOverview(record, 1110).test_metrics, IsEmpty());
  ASSERT_EQ(snapshot.processes.size(), 2u);
  EXPECT_EQ(snapshot.processes[0].state, "starting");
  EXPECT_EQ(snapshot.processes[0].restarts, 2);
  EXPECT_EQ(snapshot.processes[1].name, "worker-1");
  EXPECT_EQ(snapshot.processes[1].state, "missing");
  EXPECT_EQ(MakeJobOverview(record, 1110).epochs, 2.5);
}

TEST(JobViewTest, HasWhatEvaluationsDecided) {
  controller::JobRecord record = Record();
  api::ProgressStatus& progress = record.job.status.progress.emplace();
  progress.step = 250;
  progress.total_steps = 250;
  progress.epoch = 3;
  EXPECT_EQ(MakeJobSnapshot(record, {}, 1110).progress->stop_reason(), "");
  EXPECT_EQ(MakeJobOverview(record, 1110).epochs, 4);
  api::TrainingStatus& training = record.job.status.training.emplace();
  training.stop_reason = "stopped early after epoch 2";
  training.rate_reason = "multiplied by 0.5";
  training.best = {.epoch = 1, .reason = "Loss was best after epoch 1", .path = "/models/best.safetensors"};
  const v1::ProgressReply reply = *MakeJobSnapshot(record, {}, 1110).progress;
  EXPECT_EQ(reply.stop_reason(), training.stop_reason);
  EXPECT_EQ(reply.rate_reason(), training.rate_reason);
  EXPECT_EQ(reply.best_epoch(), 1u);
  EXPECT_EQ(reply.best_reason(), training.best->reason);
  EXPECT_EQ(reply.best_path(), training.best->path);
  EXPECT_EQ(MakeJobOverview(record, 1110).epochs, 3);
}

TEST(JobViewTest, HasEveryMetricOfTheStatusAndOfAnOlderOneTheAccuracy) {
  controller::JobRecord record = Record();
  api::ProgressStatus& progress = record.job.status.progress.emplace();
  progress.test_accuracy = "0.8712";
  const auto in_snapshot = [&record] {
    const Snapshot snapshot = MakeJobSnapshot(record, {}, 1110);
    EXPECT_EQ(snapshot.progress->evaluations_size(), 1);
    return MetricsOf(snapshot.progress->evaluations(0));
  };
  EXPECT_THAT(in_snapshot(), ElementsAre(TestMetric{"Accuracy", 0.8712}));
  EXPECT_EQ(MakeJobOverview(record, 1110).test_metrics, in_snapshot());
  progress.test_metrics = {{"Top5Accuracy", "0.9911"}, {"Accuracy", "0.8712"}};
  EXPECT_THAT(in_snapshot(), ElementsAre(TestMetric{"Top5Accuracy", 0.9911}, TestMetric{"Accuracy", 0.8712}));
  EXPECT_EQ(MakeJobOverview(record, 1110).test_metrics, in_snapshot());
}

TEST(JobViewTest, HasTheNewestCheckpointAndThatTheyFail) {
  controller::JobRecord record;
  record.managed_here = true;
  record.job.status.phase = "Running";
  record.job.status.progress.emplace();
  EXPECT_FALSE(MakeJobSnapshot(record, {}, 1000).progress->has_checkpoint());
  record.job.status.checkpoint = api::CheckpointStatus{"/ckpt/a/7", 120, 990, 0, ""};
  const v1::CheckpointProgress checkpoint = MakeJobSnapshot(record, {}, 1000).progress->checkpoint();
  EXPECT_EQ(checkpoint.newest_updates(), 120u);
  EXPECT_EQ(checkpoint.newest_age_milliseconds(), 10000u);
  EXPECT_EQ(MakeJobOverview(record, 1000).reason, "");
  record.job.status.conditions.push_back({planner::kCheckpointFailing, true, "WriteFailed", "", 990, 1});
  EXPECT_EQ(MakeJobOverview(record, 1000).reason, "CheckpointFailing");
}

TEST(JobViewTest, ItsTimeEndsWithTheJob) {
  controller::JobRecord record = Record();
  record.job.status.completion_time = 1060;
  record.job.status.phase = "Failed";
  record.job.status.conditions.push_back({planner::kFailed, true, "BadInput", "no data", 1060, 1});
  const Snapshot snapshot = MakeJobSnapshot(record, {}, 5000);
  EXPECT_EQ(snapshot.seconds, 50);
  EXPECT_TRUE(snapshot.processes.empty()) << "nobody is missing any more";
  EXPECT_THAT(snapshot.note, HasSubstr("The job failed"));
  EXPECT_FALSE(MakeJobOverview(record, 5000).running);
  const Situation situation = MakeJobSituation(record, std::nullopt);
  EXPECT_EQ(situation.outcome, kOutcomeFailed);
  EXPECT_EQ(situation.outcome_message, "no data");
  EXPECT_FALSE(situation.instances.has_value());
}

TEST(JobViewTest, ASpecThatCannotBeReadIsSaid) {
  controller::JobRecord record = Record();
  record.errors.push_back({"spec.worker.colour", "is not a known field"});
  EXPECT_THAT(MakeJobSituation(record, std::vector{Worker(0, "Pending")}).gaps,
              ElementsAre(HasSubstr("spec.worker.colour: is not a known field")));
}

TEST(JobViewTest, TheReasonIsWhyPodsWaitIfNothingElseIsGiven) {
  controller::JobRecord record = Record();
  record.job.status.conditions.push_back({planner::kScheduled, false, "Unschedulable", "no room", 1060, 1});
  EXPECT_EQ(MakeJobOverview(record, 1110).reason, "Unschedulable");
  record.job.status.reason = "PsLost";
  EXPECT_EQ(MakeJobOverview(record, 1110).reason, "PsLost");
}

TEST(JobViewTest, OfAJobWithoutParameterServersTheRingIsShown) {
  controller::JobRecord record = Record();
  EXPECT_TRUE(MakeJobOverview(record, 1110).has_ps);
  record.job.spec.strategy = api::Strategy::kAllReduce;
  record.job.spec.parameter_server.reset();
  record.job.status.progress.emplace();
  EXPECT_FALSE(MakeJobSnapshot(record, {}, 1110).progress->has_ring()) << "nothing is known yet";
  api::RingStatus& ring = record.job.status.ring.emplace();
  ring.members = 1;
  ring.wanted = 2;
  ring.updates_per_step = 4;
  ring.message = "rank 1 is gone: 1 workers";
  const Snapshot snapshot = MakeJobSnapshot(record, {Worker(0, "Running")}, 1110);
  const v1::RingProgress& shown = snapshot.progress->ring();
  EXPECT_EQ(shown.members(), 1u);
  EXPECT_EQ(shown.wanted(), 2u);
  EXPECT_FALSE(shown.formed());
  EXPECT_EQ(shown.updates_per_step(), 4u);
  EXPECT_EQ(shown.message(), ring.message);
  for (const ProcessView& process : snapshot.processes) EXPECT_EQ(process.role, api::Role::kWorker) << process.name;
  const RunOverview overview = MakeJobOverview(record, 1110);
  EXPECT_FALSE(overview.has_ps);
  EXPECT_EQ(overview.ring, ring);
  EXPECT_EQ(overview.reason, "");
  record.job.status.conditions.push_back({planner::kRingFormed, false, "Forming", "", 1100, 1});
  EXPECT_EQ(MakeJobOverview(record, 1110).reason, "RingForming");
}

}  // namespace
}  // namespace downpour::cli
