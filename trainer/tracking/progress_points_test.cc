#include "trainer/tracking/progress_points.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace downpour::tracking {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;
using testing::SizeIs;

v1::ProgressReply Training(std::uint64_t updates, std::uint64_t generation = 1) {
  v1::ProgressReply progress;
  progress.set_phase(v1::PHASE_TRAINING);
  progress.mutable_view()->set_generation(generation);
  progress.set_updates_applied(updates);
  progress.set_updates_per_epoch(100);
  progress.set_loss(0.5);
  return progress;
}

// "STEP[!]: NAME=VALUE ...", with a mark where a history begins.
std::vector<std::string> Describe(const std::vector<Point>& points) {
  std::vector<std::string> lines;
  for (const Point& point : points) {
    std::string line = absl::StrCat(point.step, point.begins_history ? "!" : "", ":");
    for (const Scalar& scalar : point.scalars) absl::StrAppend(&line, " ", scalar.name, "=", scalar.value);
    for (const Text& text : point.texts) absl::StrAppend(&line, " ", text.name, "=\"", text.text, "\"");
    lines.push_back(line);
  }
  return lines;
}

TEST(ProgressPointsTest, FiguresComeWithUpdatesAndTextsWithPhases) {
  ProgressPoints points((v1::TrainingConfig()));
  v1::ProgressReply starting;
  starting.set_message("waiting for the first worker");
  EXPECT_THAT(Describe(points.Add(absl::Seconds(1), 11, starting, {})),
              ElementsAre("0: phase=\"starting, generation 0: waiting for the first worker\""));
  EXPECT_THAT(Describe(points.Add(absl::Seconds(2), 12, starting, {})), IsEmpty());
  v1::ProgressReply training = Training(50);
  training.set_samples_per_second(1000);
  training.set_learning_rate(0.25);
  training.add_members()->set_role("worker");
  training.add_members()->set_role("ps");
  EXPECT_THAT(Describe(points.Add(absl::Seconds(3), 13, training, {})),
              ElementsAre("50!: train/loss=0.5 train/samplesPerSecond=1000 train/learningRate=0.25 train/epochs=0.5 "
                          "job/workers=1 job/generation=1 phase=\"training, generation 1\""));
  EXPECT_THAT(Describe(points.Add(absl::Seconds(9), 19, training, {})), IsEmpty()) << "no update is new";
  const std::vector<Point> next = points.Add(absl::Seconds(10), 20, Training(60), {});
  ASSERT_THAT(next, SizeIs(1));
  EXPECT_EQ(next[0].step, 60);
  EXPECT_EQ(next[0].time, 20);
  EXPECT_FALSE(next[0].begins_history);
  v1::ProgressReply done = Training(61);
  done.set_phase(v1::PHASE_DONE);
  EXPECT_THAT(Describe(points.Add(absl::Seconds(10), 20, done, {})), ElementsAre(HasSubstr("train/epochs=0.61")))
      << "the end is always there";
}

TEST(ProgressPointsTest, AHistoryBeginsWithEachGenerationAndEachCoordinator) {
  ProgressPoints points{v1::TrainingConfig()};
  EXPECT_THAT(Describe(points.Add(absl::Seconds(1), 1, Training(50), {})), ElementsAre(HasSubstr("50!:")));
  v1::ProgressReply recovering = Training(0, 2);
  recovering.set_phase(v1::PHASE_RECOVERING);
  EXPECT_THAT(Describe(points.Add(absl::Seconds(2), 2, recovering, {})),
              ElementsAre(HasSubstr("0: phase=\"recovering")));
  // Nothing is applied yet in a history that begins at step 0, and what was there goes all the same.
  EXPECT_THAT(Describe(points.Add(absl::Seconds(3), 3, Training(0, 2), {})), ElementsAre(HasSubstr("0!: phase")));
  EXPECT_THAT(Describe(points.Add(absl::Seconds(4), 4, Training(7, 2), {})), ElementsAre(HasSubstr("7: train/loss")));
  ProgressPoints of_another{v1::TrainingConfig()};
  EXPECT_THAT(Describe(of_another.Add(absl::Seconds(5), 5, Training(9, 2), {})),
              ElementsAre(HasSubstr("9!: train/loss")));
}

TEST(ProgressPointsTest, AnEvaluationIsToldOnceUnlessItChanges) {
  ProgressPoints points{v1::TrainingConfig()};
  v1::ProgressReply progress = Training(250);
  v1::Evaluation& first = *progress.add_evaluations();
  first.set_dataset_epoch(1);
  first.set_loss(0.75);
  first.set_accuracy(0.5);
  v1::Evaluation& second = *progress.add_evaluations();
  second.set_dataset_epoch(2);
  second.set_loss(0.5);
  v1::Metric& metric = *second.add_metrics();
  metric.set_name("Top5Accuracy");
  metric.set_value(0.875);
  EXPECT_THAT(Describe(points.Add(absl::Seconds(1), 1, progress, {100, 200})),
              ElementsAre(HasSubstr("250!:"), "100: test/loss=0.75 test/Accuracy=0.5",
                          "200: test/loss=0.5 test/Top5Accuracy=0.875"));
  EXPECT_THAT(Describe(points.Add(absl::Seconds(2), 2, progress, {100, 200})), IsEmpty());
  progress.mutable_evaluations(1)->set_loss(0.25);
  EXPECT_THAT(Describe(points.Add(absl::Seconds(3), 3, progress, {100, 200})),
              ElementsAre("200: test/loss=0.25 test/Top5Accuracy=0.875"));
}

TEST(ProgressPointsTest, AnEvaluationIsAtTheUpdateThatThePlanHasForIt) {
  ProgressPoints points{v1::TrainingConfig()};
  v1::ProgressReply progress = Training(450);  // of 100 an epoch today, and 400 in the first one
  progress.add_evaluations()->set_dataset_epoch(1);
  progress.add_evaluations()->set_dataset_epoch(2);
  EXPECT_THAT(Describe(points.Add(absl::Seconds(1), 1, progress, {400, 500})),
              ElementsAre(HasSubstr("450!:"), "400: test/loss=0", "450: test/loss=0"))
      << "no update is behind the newest";
}

TEST(ProgressPointsTest, ALongRunHasThousandsOfPoints) {
  ProgressPoints points{v1::TrainingConfig()};
  const auto run = [&points](int from, int to) {
    std::size_t count = 0;
    for (int second = from; second < to; ++second) {
      count += points.Add(absl::Seconds(second), second, Training(static_cast<std::uint64_t>(second)), {}).size();
    }
    return count;
  };
  EXPECT_EQ(run(1, 200), 199u) << "one a second";
  EXPECT_LE(run(200, 86400), 4000u) << "of a day";
  EXPECT_GE(run(86400, 2 * 86400), 86400u / 31) << "one in half a minute";
}

TEST(ProgressPointsTest, HistogramsAreOfWorkersWhereTheyAreWanted) {
  v1::TrainingConfig config;
  v1::ProgressReply progress = Training(50);
  for (const double rate : {100.0, 300.0}) {
    v1::MemberProgress& member = *progress.add_members();
    member.set_role("worker");
    member.mutable_worker()->set_samples_per_second(rate);
  }
  EXPECT_THAT(ProgressPoints(config).Add(absl::Seconds(1), 1, progress, {})[0].histograms, IsEmpty());
  config.mutable_tracking()->mutable_tensorboard()->set_histograms(true);
  const std::vector<Histogram> histograms = ProgressPoints(config).Add(absl::Seconds(1), 1, progress, {})[0].histograms;
  ASSERT_THAT(histograms, SizeIs(2));
  EXPECT_EQ(histograms[0].name, "workers/samplesPerSecond");
  EXPECT_EQ(histograms[0].min, 100);
  EXPECT_EQ(histograms[0].max, 300);
  EXPECT_EQ(histograms[1].name, "workers/staleness");
}

TEST(MakeRunTest, HyperparametersAreTheConfigurationByPath) {
  v1::TrainingConfig config;
  config.set_job_name("job");
  config.set_job_uid("0123");
  config.set_batch_size(64);
  config.mutable_optimizer()->set_learning_rate(0.25);
  config.mutable_optimizer()->add_no_decay("*.bias");
  config.mutable_checkpoint()->set_uri("s3://bucket/job");
  config.mutable_tracking()->mutable_mlflow()->set_uri("http://mlflow");
  config.mutable_dataset()->set_path("s3://ID:SECRET@bucket/data?region=x");
  const auto run = MakeRun(config, 17);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->job_name, "job");
  EXPECT_EQ(run->job_uid, "0123");
  EXPECT_EQ(run->time, 17);
  EXPECT_THAT(run->configuration, HasSubstr("\"uri\": \"s3://bucket/job\""));
  EXPECT_THAT(run->configuration, Not(HasSubstr("SECRET")));
  EXPECT_THAT(run->hyperparameters, Contains(Pair("dataset.path", "s3://bucket/data")));
  EXPECT_THAT(run->hyperparameters, Contains(Pair("batchSize", "64")));
  EXPECT_THAT(run->hyperparameters, Contains(Pair("optimizer.learningRate", "0.25")));
  EXPECT_THAT(run->hyperparameters, Contains(Pair("optimizer.noDecay.0", "*.bias")));
  EXPECT_THAT(run->hyperparameters, Not(Contains(Pair(HasSubstr("checkpoint"), testing::_))));
  EXPECT_THAT(run->hyperparameters, Not(Contains(Pair(HasSubstr("tracking"), testing::_))));
}

}  // namespace
}  // namespace downpour::tracking
