#include "cli/render/plain_lines.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace downpour::cli {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Snapshot Training(double seconds, std::uint32_t epochs_done, std::uint64_t updates) {
  Snapshot snapshot;
  snapshot.seconds = seconds;
  snapshot.status.phase = "Running";
  v1::ProgressReply progress;
  progress.set_phase(v1::PHASE_TRAINING);
  progress.set_epochs(10);
  progress.set_epochs_done(epochs_done);
  progress.set_updates_expected(1000);
  progress.set_updates_applied(updates);
  progress.set_loss(0.5);
  progress.set_samples_per_second(1234);
  snapshot.progress = progress;
  return snapshot;
}

int CountLines(const std::vector<std::string>& lines, const std::string& text) {
  int count = 0;
  for (const std::string& line : lines) count += line.find(text) != std::string::npos;
  return count;
}

TEST(PlainLinesTest, EveryEpochOnceAndProgressAtMostEachFiveSeconds) {
  for (int seed = 0; seed < 100; ++seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> pause(0.05, 4);
    std::optional<Snapshot> previous;
    std::vector<std::string> all;
    double last_progress = 0;
    double printed = 0;
    std::uint32_t done = 0;
    std::uint32_t evaluated = 0;
    for (double seconds = pause(random); done < 10 || evaluated < 10; seconds += pause(random)) {
      done = std::min(10u, done + std::uniform_int_distribution<std::uint32_t>(0, 2)(random));
      evaluated = std::min(done, evaluated + std::uniform_int_distribution<std::uint32_t>(0, 2)(random));
      Snapshot current = Training(seconds, done, std::uint64_t{done} * 100);
      for (std::uint32_t epoch = 1; epoch <= evaluated; ++epoch) {
        v1::Evaluation* evaluation = current.progress->add_evaluations();
        evaluation->set_dataset_epoch(epoch);
        evaluation->set_accuracy(0.1 * epoch);
      }
      const PlainLinesResult result = PlainLines(previous.has_value() ? &*previous : nullptr, current, last_progress);
      if (CountLines(result.lines, "updates") > 0) {
        EXPECT_GE(seconds - printed, kPlainProgressSeconds) << seed;
        printed = seconds;
      }
      all.insert(all.end(), result.lines.begin(), result.lines.end());
      last_progress = result.last_progress_seconds;
      previous = current;
      EXPECT_THAT(PlainLines(&current, current, seconds).lines, IsEmpty()) << seed;
    }
    const int news = previous->seconds > 2 * kPlainProgressSeconds + 4 ? 1 : 0;
    EXPECT_GE(CountLines(all, "updates"), news) << seed;
    // The first answer may find epochs done already; they are no news.
    int epochs = 0;
    for (int epoch = 1; epoch <= 10; ++epoch) {
      const std::string name = "epoch " + std::to_string(epoch) + "/10 ";
      const int lines = CountLines(all, name + "done");
      EXPECT_LE(lines, 1) << seed;
      epochs += lines;
      EXPECT_EQ(CountLines(all, "accuracy " + std::to_string(epoch / 10) + "." + std::to_string(epoch % 10) + "000"), 1)
          << seed;
    }
    EXPECT_GE(epochs, 9) << seed;
  }
}

TEST(PlainLinesTest, WhatIsNotKnownIsADash) {
  Snapshot snapshot = Training(20, 0, 1);
  snapshot.progress->clear_loss();
  snapshot.progress->clear_samples_per_second();
  EXPECT_EQ(CountLines(PlainLines(nullptr, snapshot, 0).lines, "1/1000 updates, loss -, - samples/s"), 1);
}

TEST(PlainLinesTest, ChangesOfStateAndItsReason) {
  Snapshot first;
  first.status.phase = "Pending";
  first.status.reason = "starting\x1b[2J";
  EXPECT_THAT(PlainLines(nullptr, first, 0).lines, ElementsAre("[    0.00 s] Pending: starting [2J"));
  Snapshot second = Training(2, 0, 0);
  second.progress->set_phase(v1::PHASE_STARTING);
  second.progress->set_message("waiting for ps-0");
  EXPECT_THAT(PlainLines(&first, second, 0).lines, ElementsAre("[    2.00 s] Running, starting: waiting for ps-0"));
  Snapshot third = second;
  third.progress_age_seconds = 7;
  EXPECT_THAT(PlainLines(&second, third, 0).lines, ElementsAre(HasSubstr("no answer from the coordinator for 7.00 s")));
  EXPECT_THAT(PlainLines(&third, third, 0).lines, IsEmpty());
  EXPECT_THAT(PlainLines(&third, second, 0).lines, ElementsAre(HasSubstr("answers again")));
}

TEST(PlainLinesTest, AnEvaluationOfAnUnknownEpochIsSaidWhenItChanges) {
  Snapshot first = Training(1, 0, 5);
  v1::Evaluation* evaluation = first.progress->add_evaluations();
  evaluation->set_accuracy(0.5);
  evaluation->set_loss(std::numeric_limits<double>::quiet_NaN());
  EXPECT_THAT(PlainLines(nullptr, first, 0).lines, Contains(::testing::EndsWith("evaluated: test accuracy 0.5000")));
  EXPECT_EQ(CountLines(PlainLines(&first, first, 0).lines, "evaluated"), 0);
  Snapshot second = first;
  second.progress->mutable_evaluations(0)->set_accuracy(0.75);
  EXPECT_EQ(CountLines(PlainLines(&first, second, 0).lines, "evaluated: test accuracy 0.7500"), 1);
}

TEST(PlainLinesTest, WhatEvaluationsDecideIsSaidOnce) {
  const Snapshot before = Training(1, 1, 100);
  Snapshot reduced = Training(2, 1, 110);
  reduced.progress->set_rate_reason("the learning rate is multiplied by 0.5");
  EXPECT_EQ(CountLines(PlainLines(&before, reduced, 2).lines, "multiplied by 0.5"), 1);
  EXPECT_THAT(PlainLines(&reduced, reduced, 2).lines, IsEmpty());
  Snapshot stopped = reduced;
  stopped.progress->set_stop_reason("stopped early after epoch 1");
  const std::vector<std::string> lines = PlainLines(&reduced, stopped, 2).lines;
  EXPECT_EQ(CountLines(lines, "stopped early after epoch 1"), 1);
  EXPECT_EQ(CountLines(lines, "multiplied"), 0);
  EXPECT_EQ(CountLines(PlainLines(nullptr, stopped, 2).lines, "stopped early after epoch 1"), 1);
}

TEST(PlainLinesTest, MetricsAreSaidByTheirNames) {
  const auto line_of = [](const std::vector<TestMetric>& metrics, double loss) {
    const Snapshot before = Training(1, 1, 100);
    Snapshot after = before;
    v1::Evaluation* evaluation = after.progress->add_evaluations();
    evaluation->set_dataset_epoch(2);
    evaluation->set_loss(loss);
    for (const TestMetric& metric : metrics) {
      v1::Metric* added = evaluation->add_metrics();
      added->set_name(metric.name);
      added->set_value(metric.value);
    }
    const std::vector<std::string> lines = PlainLines(&before, after, 1).lines;
    return lines.size() == 1 ? lines[0].substr(lines[0].find("] ") + 2) : "";
  };
  EXPECT_EQ(line_of({{"Accuracy", 0.8712}}, 0.34), "epoch 2/10 evaluated: test accuracy 0.8712, test loss 0.3400");
  EXPECT_EQ(line_of({{"MeanAbsoluteError", 0.0312}}, 0.0021),
            "epoch 2/10 evaluated: test MeanAbsoluteError 0.0312, test loss 0.0021");
  EXPECT_EQ(line_of({{"Accuracy", 0.8712}, {"Top5Accuracy", 0.9911}}, 0.34),
            "epoch 2/10 evaluated: test accuracy 0.8712, Top5Accuracy 0.9911, test loss 0.3400");
  EXPECT_EQ(line_of({}, 0.34), "epoch 2/10 evaluated: test loss 0.3400");
  EXPECT_EQ(line_of({}, std::numeric_limits<double>::infinity()), "epoch 2/10 evaluated: test loss -");
}

TEST(PlainLinesTest, FailuresAndReplacementsOnceWithTheirCause) {
  Snapshot before = Training(1, 0, 5);
  before.processes.push_back({"worker-1", api::Role::kWorker, 1, 1, 100, "running", 0, ""});
  api::FailureRecord failure;
  failure.index = 1;
  failure.uid = "a";
  failure.cause = "Killed";
  failure.exit_code = 137;
  failure.message = "worker-1 ended: killed by signal 9";
  failure.action = "Replace";
  Snapshot after = before;
  after.status.failures.push_back(failure);
  after.processes[0].incarnation = 2;
  after.processes[0].pid = 101;
  const std::vector<std::string> lines = PlainLines(&before, after, 1).lines;
  EXPECT_THAT(lines, ElementsAre(HasSubstr("worker-1 ended: killed by signal 9; action: Replace"),
                                 HasSubstr("worker-1 running, pid 101, incarnation 2")));
  failure.uid = "b";
  Snapshot again = after;
  again.status.failures.push_back(failure);
  EXPECT_EQ(CountLines(PlainLines(&after, again, 1).lines, "action: Replace"), 1);
  again.status.failures.erase(again.status.failures.begin());  // only the newest are kept
  EXPECT_EQ(CountLines(PlainLines(&after, again, 1).lines, "action: Replace"), 1);
  // A record without a message still says what happened.
  Snapshot bare = after;
  bare.status.failures.back().uid = "c";
  bare.status.failures.back().message.clear();
  EXPECT_THAT(PlainLines(&after, bare, 1).lines,
              ElementsAre(HasSubstr("worker-1 failed: Killed (exit code 137); action: Replace")));
}

TEST(PlainLinesTest, LostParametersAreSaidOnceInAWholeSentence) {
  const Snapshot before = Training(1, 2, 200);
  Snapshot lost = before;
  lost.status.conditions.push_back({"ParametersLost", true, "PsLost", "parameters were lost: ps-0 ended", 1, 1});
  EXPECT_THAT(PlainLines(&before, lost, 1).lines, Contains(HasSubstr("parameters were lost: ps-0 ended")));
  EXPECT_EQ(CountLines(PlainLines(&lost, lost, 1).lines, "parameters were lost"), 0);
}

TEST(PlainLinesTest, NewGenerationSaysItsEpochsAgain) {
  const Snapshot before = Training(1, 2, 200);
  Snapshot lost = Training(2, 0, 0);
  lost.progress->mutable_view()->set_generation(2);
  Snapshot again = Training(3, 1, 100);
  again.progress->mutable_view()->set_generation(2);
  EXPECT_EQ(CountLines(PlainLines(&before, lost, 2).lines, "done"), 0);
  EXPECT_THAT(PlainLines(&lost, again, 2).lines, Contains(AllOf(HasSubstr("epoch 1/10 done"), HasSubstr("1.23k"))));
}

}  // namespace
}  // namespace downpour::cli
