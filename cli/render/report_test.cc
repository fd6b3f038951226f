#include "cli/render/report.h"

#include <limits>
#include <random>
#include <string>
#include <vector>

#include "cli/render/testing/markup.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace downpour::cli {
namespace {

using cli::testing::CheckMarkup;
using cli::testing::kHostile;
using ::testing::HasSubstr;
using ::testing::Not;

int Pick(std::mt19937& random, int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); }

std::string Text(std::mt19937& random) {
  constexpr const char* kTexts[] = {"", "worker-1", "killed by signal 9", "finished", kHostile, "größer", "'\"<>&"};
  return kTexts[Pick(random, 0, 6)];
}

double Number(std::mt19937& random) {
  constexpr double kNumbers[] = {0, -1, 1e-12, 0.5, 3, 7, 12345, 1e300, -1e300};
  const int choice = Pick(random, 0, 12);
  if (choice == 9) return std::numeric_limits<double>::quiet_NaN();
  if (choice == 10) return -std::numeric_limits<double>::infinity();
  return choice > 10 ? std::uniform_real_distribution<double>(0, 100)(random) : kNumbers[choice];
}

RunHistory RandomHistory(std::mt19937& random) {
  RunHistory history;
  history.job.metadata.name = Text(random);
  history.job.spec.dataset.path = Text(random);
  RunSummary& summary = history.summary;
  summary.job = Text(random);
  summary.job_uid = Text(random);
  summary.phase = Text(random);
  summary.message = Text(random);
  for (int i = Pick(random, 0, 3); i > 0; --i) summary.test_metrics.push_back({Text(random), Number(random)});
  summary.epochs = Number(random);
  summary.samples_per_second = Number(random);
  summary.total_seconds = Number(random);
  summary.model_path = Text(random);
  summary.run_directory = Text(random);
  if (Pick(random, 0, 1) == 1) summary.ledger = LedgerSummary{10, 9, 1, 0, 0};
  for (int i = Pick(random, 0, 30); i > 0; --i) {
    CurvePoint point{Number(random), 1, Number(random), Number(random), Number(random), 3};
    history.curve.push_back(point);
  }
  for (int i = Pick(random, 0, 5); i > 0; --i) {
    v1::Evaluation evaluation;
    evaluation.set_accuracy(Number(random));
    for (int j = Pick(random, 0, 3); j > 0; --j) {
      v1::Metric* metric = evaluation.add_metrics();
      metric->set_name(Text(random));
      metric->set_value(Number(random));
    }
    history.evaluations.push_back(evaluation);
    if (Pick(random, 0, 4) > 0) history.evaluation_seconds.push_back(Number(random));
  }
  for (int i = Pick(random, 0, 130); i > 0; --i) {
    TimelineSpan span{Text(random) + std::to_string(i % 110), i, Number(random), {}, Text(random)};
    if (Pick(random, 0, 1) == 1) span.end_seconds = Number(random);
    history.spans.push_back(span);
  }
  for (int i = Pick(random, 0, 30); i > 0; --i) {
    history.events.push_back({Number(random), i % 2 == 0, Text(random), Text(random)});
  }
  return history;
}

TEST(RenderReportTest, EveryHistoryGivesWellFormedMarkup) {
  for (int seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    const std::string page = RenderReport(RandomHistory(random));
    std::string text;
    ASSERT_EQ(CheckMarkup(page, &text), "") << "seed " << seed;
    ASSERT_EQ(page.rfind("<!DOCTYPE html>", 0), 0u);
    for (const char c : page) ASSERT_TRUE(static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t');
  }
}

TEST(RenderReportTest, HostileTextStaysText) {
  RunHistory history;
  history.job.metadata.name = kHostile;
  history.summary.job = kHostile;
  history.summary.phase = kHostile;
  history.summary.message = kHostile;
  history.summary.model_path = kHostile;
  history.spans.push_back({kHostile, 1, 0, 1.0, kHostile});
  history.events.push_back({1, true, kHostile, kHostile});
  const std::string page = RenderReport(history);
  std::string text;
  EXPECT_EQ(CheckMarkup(page, &text), "");
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_THAT(page, HasSubstr("&lt;script src=&#39;http://x&#39;&gt;alert(&quot;1&quot;)"));
  EXPECT_THAT(page, HasSubstr("&amp;amp;"));
}

TEST(RenderReportTest, LoadsNothing) {
  const std::string page = RenderReport(RunHistory{});
  for (const char* text : {"http:", "https:", "url(", "@import", "<script", "<link", "src="}) {
    EXPECT_THAT(page, Not(HasSubstr(text)));
  }
  EXPECT_THAT(page, HasSubstr("prefers-color-scheme:dark"));
}

TEST(RenderReportTest, EmptyHistorySaysSo) {
  const std::string page = RenderReport(RunHistory{});
  for (const char* text :
       {"No update was applied.", "No loss was reported.", "No rate was reported.", "The test set was not evaluated.",
        "No process was started.", "nothing is claimed", "Unfinished"}) {
    EXPECT_THAT(page, HasSubstr(text));
  }
}

TEST(RenderReportTest, DrawsTheRun) {
  RunHistory history;
  history.summary.job = "lenet";
  history.summary.phase = "Succeeded";
  history.summary.total_seconds = 60;
  history.summary.test_metrics = {{"Accuracy", 0.8712}};
  history.summary.ledger = LedgerSummary{2350, 2350, 0, 0, 0};
  for (int i = 0; i < 100; ++i) history.curve.push_back({i * 0.6, 10u, i * 0.1, 2.0 / (1 + i), 12000, 3});
  v1::Evaluation evaluation;
  evaluation.set_dataset_epoch(1);
  evaluation.set_accuracy(0.75);
  history.evaluations.push_back(evaluation);
  history.evaluation_seconds.push_back(20);
  history.spans = {{"worker-0", 1, 0, 60.0, "finished"},
                   {"worker-1", 1, 0, 30.0, "killed by signal 9 (Killed)"},
                   {"worker-1", 2, 31, 60.0, "stopped"},
                   {"worker-2", 1, 0, {}, ""}};
  const auto count = [](const std::string& page, const std::string& text) {
    int found = 0;
    for (std::size_t at = page.find(text); at != std::string::npos; at = page.find(text, at + 1)) ++found;
    return found;
  };
  const std::string page = RenderReport(history);
  EXPECT_THAT(page, HasSubstr("exact: each of 2350 updates is on every slice, once"));
  EXPECT_THAT(page, HasSubstr("after epoch 1: accuracy 0.7500, loss 0.0000"));
  EXPECT_THAT(page, HasSubstr("<b>0.8712</b><span>test accuracy</span>"));
  EXPECT_THAT(page, HasSubstr("<figcaption>Test accuracy</figcaption>"));
  EXPECT_EQ(count(page, "<rect "), 4);
  EXPECT_EQ(count(page, "<g class=\"mark\""), 1);
  EXPECT_EQ(count(page, "<line class=\"fault\""), 4);  // one in each chart
  EXPECT_EQ(count(page, "<path class=\"curve c"), 4);
  EXPECT_THAT(page, HasSubstr("killed by signal 9 (Killed)"));

  history.summary.ledger = LedgerSummary{2350, 2349, 1, 0, 0};
  EXPECT_THAT(RenderReport(history), HasSubstr("1 missing"));

  history.curve.front().loss.reset();
  const std::string without = RenderReport(history);
  EXPECT_EQ(count(without, "<path class=\"curve c"), 4);
  EXPECT_EQ(count(page, "<path class=\"curve c1\" d=\"M62.0 "), 2) << "loss and progress from the start on";
  EXPECT_EQ(count(without, "<path class=\"curve c1\" d=\"M62.0 "), 1) << "no loss is not a loss of 0";
}

TEST(RenderReportTest, EveryMetricHasItsTileAndItsChart) {
  RunHistory history;
  history.job.spec.model.metrics = {"MeanAbsoluteError", "F1"};
  history.summary.total_seconds = 60;
  const auto has = [&history](const std::string& name, const std::string& value, bool drawn) {
    const std::string page = RenderReport(history);
    const std::string chart = "<figcaption>Test " + name + "</figcaption>";
    EXPECT_THAT(page, HasSubstr("<b>" + value + "</b><span>test " + name + "</span>"));
    EXPECT_THAT(page, HasSubstr(chart + (drawn ? "<svg" : "<p class=\"none\">The test set was not evaluated.")));
    EXPECT_THAT(page, ::testing::Not(HasSubstr("ccuracy</"))) << "there is none";
  };
  has("MeanAbsoluteError", "-", false);
  has("F1", "-", false);
  v1::Evaluation evaluation;
  evaluation.set_dataset_epoch(1);
  for (const TestMetric& metric : {TestMetric{"MeanAbsoluteError", 0.0312}, TestMetric{"F1", 0.5}}) {
    history.summary.test_metrics.push_back(metric);
    v1::Metric* added = evaluation.add_metrics();
    added->set_name(metric.name);
    added->set_value(metric.value);
  }
  history.evaluations.push_back(evaluation);
  history.evaluation_seconds.push_back(20);
  has("MeanAbsoluteError", "0.0312", true);
  has("F1", "0.5000", true);
  EXPECT_THAT(RenderReport(history), HasSubstr("after epoch 1: MeanAbsoluteError 0.0312, F1 0.5000, loss 0.0000"));
}

TEST(ReportTest, ManyEpochsDoNotPushAFailureOut) {
  RunHistory history;
  history.events.push_back({1, true, "WorkerLost", "worker-2 is gone"});
  for (int epoch = 1; epoch <= 600; ++epoch) history.events.push_back({2, false, "EpochDone", "an epoch is done"});
  const std::string page = RenderReport(history);
  EXPECT_THAT(page, HasSubstr("worker-2 is gone"));
  EXPECT_THAT(page, HasSubstr("an epoch is done (600 times)"));
}

TEST(RenderReportTest, WithoutParameterServersItIsTheWorkersWhoseTablesWereNotRead) {
  RunHistory history;
  EXPECT_THAT(RenderReport(history), HasSubstr("The parameter servers' tables were not read"));
  history.job.spec.strategy = api::Strategy::kAllReduce;
  EXPECT_THAT(RenderReport(history), HasSubstr("The workers' tables were not read"));
}

}  // namespace
}  // namespace downpour::cli
