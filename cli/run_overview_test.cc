#include "cli/run_overview.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cli/history_recorder.h"
#include "cli/run_folder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/api/manifest.h"

namespace downpour::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

constexpr char kManifest[] = R"({
  "apiVersion": "training.downpour.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "demo"},
  "spec": {"parameterServer": {"replicas": 2}, "worker": {"replicas": 3}, "model": {"name": "MLP"},
           "dataset": {"format": "IDX", "path": "/data"}, "training": {"epochs": 4}}})";

constexpr char kProgress[] =
    R"({"type":"progress","seconds":2.0,"updates":7,"epochs":1.5,"loss":0.5,"samplesPerSecond":10,"workers":3})";
constexpr char kEvaluation[] =
    R"({"type":"evaluation","seconds":2.0,"epochs":1,"accuracy":0.75,"metrics":{"Accuracy":0.75},"loss":0.5})";
// As an earlier version wrote it.
constexpr char kOldEvaluation[] = R"({"type":"evaluation","seconds":2.0,"epochs":1,"accuracy":0.75,"loss":0.5})";

class RunOverviewTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/overview-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    base = fs::canonical(pattern).string();
    absl::StatusOr<RunFolder> made = RunFolder::Create(base + "/demo-1", "", "demo");
    ASSERT_TRUE(made.ok());
    folder.emplace(*std::move(made));
    ASSERT_TRUE(WriteFileDurably(folder->paths().Job(), kManifest).ok());
    RunState state;
    state.start_time = 1000;
    state.status.phase = "Running";
    state.status.worker.ready = 2;
    state.status.parameter_server.ready = 2;
    state.status.restarts_total = 1;
    ASSERT_TRUE(WriteFileDurably(folder->paths().Status(), RunStateToJson(state)).ok());
    ASSERT_TRUE(
        WriteFileDurably(folder->paths().Metrics(), std::string(kProgress) + "\n" + kEvaluation + "\n{\"ty").ok());
  }
  void TearDown() override { fs::remove_all(base); }

  RunOverview Read() {
    const absl::StatusOr<RunOverview> overview = ReadRunOverview(base + "/demo-1", 1090);
    EXPECT_TRUE(overview.ok()) << overview.status();
    return overview.value_or(RunOverview());
  }

  std::string base;
  std::optional<RunFolder> folder;
};

TEST_F(RunOverviewTest, ARunningRunShowsItsStatus) {
  const RunOverview overview = Read();
  EXPECT_EQ(overview.name, "demo-1");
  EXPECT_TRUE(overview.running);
  EXPECT_EQ(overview.phase, "Running");
  EXPECT_EQ(overview.epochs, 1.5);
  EXPECT_THAT(overview.test_metrics, ElementsAre(TestMetric{"Accuracy", 0.75}));
  EXPECT_EQ(overview.age_seconds, 90);
  EXPECT_EQ(OverviewsToText({overview}),
            "NAME    PHASE    WORKERS  PS   STEP  EPOCHS  ACCURACY  RESTARTS  AGE    REASON\n"
            "demo-1  Running  2/3      2/2  7     1.5/4   0.7500    1         1m30s\n");
  const nlohmann::json document = nlohmann::json::parse(OverviewsToJson({overview}));
  ASSERT_EQ(document.size(), 1u);
  EXPECT_EQ(document[0].at("workers").at("desired"), 3);
  EXPECT_EQ(document[0].at("testAccuracy"), 0.75);
  EXPECT_EQ(document[0].at("testMetrics").dump(), R"({"Accuracy":0.75})");
}

TEST_F(RunOverviewTest, OtherMetricsHaveAColumn) {
  RunOverview error = Read(), both = Read(), none = Read();
  error.test_metrics = {{"MeanAbsoluteError", 0.0312}, {"Bias", std::numeric_limits<double>::quiet_NaN()}};
  both.test_metrics = {{"Top5Accuracy", 0.9911}, {"Accuracy", 0.8712}};
  none.test_metrics.clear();
  EXPECT_EQ(
      OverviewsToText({error, both, none}),
      "NAME    PHASE    WORKERS  PS   STEP  EPOCHS  ACCURACY  METRICS                           RESTARTS  AGE    "
      "REASON\n"
      "demo-1  Running  2/3      2/2  7     1.5/4   -         MeanAbsoluteError 0.0312, Bias -  1         1m30s\n"
      "demo-1  Running  2/3      2/2  7     1.5/4   0.8712    Top5Accuracy 0.9911               1         1m30s\n"
      "demo-1  Running  2/3      2/2  7     1.5/4   -         -                                 1         1m30s\n");
  const nlohmann::ordered_json document = nlohmann::ordered_json::parse(OverviewsToJson({error, both, none}));
  EXPECT_TRUE(document[0].at("testAccuracy").is_null());
  EXPECT_EQ(document[0].at("testMetrics").dump(), R"({"MeanAbsoluteError":0.0312,"Bias":null})");
  EXPECT_EQ(document[1].at("testAccuracy"), 0.8712);
  EXPECT_EQ(document[1].at("testMetrics").dump(), R"({"Top5Accuracy":0.9911,"Accuracy":0.8712})");
  EXPECT_EQ(document[2].at("testMetrics").dump(), "{}");
}

TEST_F(RunOverviewTest, AFolderOfAnEarlierVersionHasAnAccuracyAlone) {
  ASSERT_TRUE(WriteFileDurably(folder->paths().Metrics(), std::string(kOldEvaluation) + "\n").ok());
  EXPECT_THAT(Read().test_metrics, ElementsAre(TestMetric{"Accuracy", 0.75}));
  for (const auto& [accuracy, expected] :
       {std::pair("0.5", std::vector<TestMetric>{{"Accuracy", 0.5}}), std::pair("null", std::vector<TestMetric>{})}) {
    RunSummary stopped;
    stopped.phase = kStopped;
    nlohmann::json summary = nlohmann::json::parse(SummaryToJson(stopped));
    summary.erase("testMetrics");
    summary["testAccuracy"] = nlohmann::json::parse(accuracy);
    ASSERT_TRUE(WriteFileDurably(folder->paths().Summary(), summary.dump()).ok());
    EXPECT_EQ(Read().phase, "Stopped");
    EXPECT_EQ(Read().test_metrics, expected);
  }
}

TEST_F(RunOverviewTest, ARunWithoutItsProcessIsLost) {
  folder.reset();
  const RunOverview overview = Read();
  EXPECT_EQ(overview.phase, kLost);
  EXPECT_FALSE(overview.running);
  EXPECT_EQ(overview.workers_ready, 0);
}

TEST_F(RunOverviewTest, AnEndedRunShowsItsSummary) {
  RunSummary summary;
  summary.phase = kStopped;
  summary.epochs = 2.25;
  summary.test_metrics = {{"Top5Accuracy", 0.75}, {"Accuracy", 0.5}};
  summary.restarts = 3;
  ASSERT_TRUE(WriteFileDurably(folder->paths().Summary(), SummaryToJson(summary)).ok());
  folder.reset();
  const RunOverview overview = Read();
  EXPECT_EQ(overview.phase, "Stopped");
  EXPECT_EQ(overview.epochs, 2.25);
  EXPECT_EQ(overview.test_metrics, summary.test_metrics) << "in their order";
  EXPECT_EQ(overview.restarts, 3);
}

TEST_F(RunOverviewTest, ARunIsFoundByItsFolderAndElseTheErrorSaysHowAJobIsMeant) {
  EXPECT_EQ(FindRun(base + "/demo-1").value_or(""), base + "/demo-1");
  const absl::StatusOr<std::string> none = FindRun("demo-1");
  EXPECT_TRUE(absl::IsNotFound(none.status()));
  EXPECT_NE(none.status().message().find("a job on a cluster is meant if -n"), std::string::npos) << none.status();
}

TEST_F(RunOverviewTest, AFolderThatIsNoRunIsAnError) {
  EXPECT_FALSE(ReadRunOverview(base, 0).ok());
  ASSERT_TRUE(WriteFileDurably(folder->paths().Status(), "{").ok());
  EXPECT_FALSE(ReadRunOverview(base + "/demo-1", 0).ok());
}

TEST(ParseMetricsTest, WhatIsNullIsNotKnown) {
  const std::string unknown =
      R"({"type":"progress","seconds":1.0,"updates":1,"epochs":0.1,"loss":null,"samplesPerSecond":null,"workers":3})";
  const MetricsTail tail = ParseMetrics(unknown + "\n" + kProgress + "\n");
  ASSERT_EQ(tail.curve.size(), 2u);
  EXPECT_FALSE(tail.curve[0].loss.has_value());
  EXPECT_FALSE(tail.curve[0].samples_per_second.has_value());
  EXPECT_EQ(tail.curve[1].loss, 0.5);
  EXPECT_EQ(tail.curve[1].samples_per_second, 10);
}

TEST(ParseMetricsTest, ReadsWhatIsKnownOfEachPoint) {
  const MetricsTail tail = ParseMetrics(
      R"({"type":"progress","seconds":1.0,"generation":2,"updates":1,"epochs":0.1,"samples":32,"loss":null,)"
      R"("samplesPerSecond":null,"receivedBytes":70,"sentBytes":7,"workers":3})"
      "\n" +
      std::string(kProgress) + "\n" + kEvaluation + "\n" + kOldEvaluation);
  ASSERT_EQ(tail.curve.size(), 2u);
  EXPECT_EQ(tail.curve[0].generation, 2u);
  EXPECT_EQ(tail.curve[0].samples, 32u);
  EXPECT_EQ(tail.curve[0].bytes, (NetworkBytes{70, 7}));
  EXPECT_FALSE(tail.curve[1].bytes.has_value()) << "of an earlier version";
  ASSERT_EQ(tail.evaluations.size(), 2u);
  for (const EvaluationPoint& evaluation : tail.evaluations) {
    EXPECT_EQ(evaluation.seconds, 2);
    EXPECT_EQ(evaluation.epochs, 1);
    EXPECT_EQ(evaluation.loss, 0.5);
    EXPECT_THAT(evaluation.metrics, ElementsAre(TestMetric{"Accuracy", 0.75}));
  }
}

TEST(ParseMetricsTest, DamagedLinesAreLeftOut) {
  const std::string good = std::string(kProgress) + "\n" + kEvaluation + "\n";
  EXPECT_EQ(ParseMetrics(good).curve.size(), 1u);
  for (unsigned seed = 0; seed < 500; ++seed) {
    std::mt19937 random(seed);
    std::string text = good;
    for (unsigned i = 0; i <= random() % 4; ++i) text[random() % text.size()] = static_cast<char>(random());
    EXPECT_LE(ParseMetrics(text).curve.size(), 1u);
  }
}

TEST(OverviewsToTextTest, WhatAClusterSaysCannotPaint) {
  RunOverview job;
  job.name = "a";
  job.namespace_name = "team\x1b]0;x\x07";
  job.phase = "Running\x1b[2J";
  job.reason = "\x1b[31mOops\r\nb  Succeeded\x9b";
  const std::string text = OverviewsToText({job}, /*namespaces=*/true);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  for (const unsigned char c : text) EXPECT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7f)) << int{c};
}

TEST(OverviewsToTextTest, AJobWithoutParameterServersHasARing) {
  RunOverview overview;
  overview.name = "lenet";
  overview.has_ps = false;
  EXPECT_THAT(OverviewsToText({overview}), ::testing::Not(::testing::HasSubstr("  0/0  0/0  ")));
  nlohmann::json document = nlohmann::json::parse(OverviewsToJson({overview})).front();
  EXPECT_TRUE(document.at("ps").is_null());
  EXPECT_TRUE(document.at("ring").is_null());
  overview.ring.emplace();
  overview.ring->members = 2;
  overview.ring->wanted = 3;
  overview.ring->updates_per_step = 4;
  overview.ring->message = "rank 1 is gone";
  document = nlohmann::json::parse(OverviewsToJson({overview})).front();
  EXPECT_EQ(
      document.at("ring"),
      nlohmann::json(
          {{"members", 2}, {"wanted", 3}, {"formed", false}, {"updatesPerStep", 4}, {"message", "rank 1 is gone"}}));
}

}  // namespace
}  // namespace downpour::cli
