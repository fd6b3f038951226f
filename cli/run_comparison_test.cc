#include "cli/run_comparison.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/recorded_run.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace downpour::cli {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// `updates` of 100 samples and 1000 bytes each, ten a second and an epoch, from 2 s on.
void Train(RecordedRun* run, int first, int last, std::uint64_t generation = 1) {
  const double begin = run->metrics.curve.empty() ? 2 : run->metrics.curve.back().seconds + 0.1;
  for (int update = first; update <= last; ++update) {
    CurvePoint point;
    point.seconds = begin + 0.1 * (update - first);
    point.updates = static_cast<std::uint64_t>(update);
    point.epochs = 0.1 * update;
    point.loss = 1.0 / update;
    point.generation = generation;
    point.samples = point.updates * 100;
    point.bytes = NetworkBytes{point.updates * 700, point.updates * 300};
    run->metrics.curve.push_back(point);
  }
}

void Evaluate(RecordedRun* run, double seconds, double epochs, std::vector<TestMetric> metrics, double loss = 0.5) {
  run->metrics.evaluations.push_back({seconds, run->metrics.curve.back().generation, epochs, std::move(metrics), loss});
}

RecordedRun MakeRun(const std::string& name) {
  RecordedRun run;
  run.name = name;
  run.directory = "/runs/" + name;
  run.phase = "Succeeded";
  run.job.metadata.name = "mlp";
  run.job.metadata.uid = "uid of " + name;
  run.job.spec.parameter_server.emplace();
  return run;
}

Comparison Compare(const std::vector<RecordedRun>& runs, const std::vector<std::string>& targets = {}) {
  std::vector<MetricTarget> parsed;
  for (const std::string& text : targets) parsed.push_back(*ParseMetricTarget(text));
  const absl::StatusOr<Comparison> comparison = CompareRuns(runs, parsed);
  EXPECT_TRUE(comparison.ok()) << comparison.status();
  return comparison.value_or(Comparison());
}

const ComparedQuantity* Find(const Comparison& comparison, const std::string& name) {
  for (const ComparedQuantity& quantity : comparison.quantities) {
    if (quantity.name == name) return &quantity;
  }
  return nullptr;
}

TEST(CompareRunsTest, TheFiguresAreThoseOfTheSummaryAndElseOfTheCurve) {
  RecordedRun over = MakeRun("over");
  Train(&over, 1, 20);
  Evaluate(&over, 3.5, 1, {{"Accuracy", 0.8}});
  Evaluate(&over, 4.5, 2, {{"Accuracy", 0.7}});
  over.job.spec.worker.replicas = 3;
  over.first_update_seconds = 1.5;
  over.samples_per_second = 900;
  over.lost_updates = 4;
  over.bytes = NetworkBytes{15000, 8000};
  RecordedRun running = over;
  running.name = "running";
  running.directory = "/runs/running";
  running.phase = "Running";
  running.first_update_seconds.reset();
  running.samples_per_second.reset();
  running.lost_updates.reset();
  running.bytes.reset();

  const Comparison comparison = Compare({over, running}, {"accuracy=0.75", "Accuracy=0.9", "loss=0.5"});
  ASSERT_THAT(comparison.runs, SizeIs(2));
  const ComparedRun& first = comparison.runs[0];
  EXPECT_EQ(first.mode, "Async");
  EXPECT_EQ(first.optimizer, "SGD");
  EXPECT_EQ(first.codec, "fp32");
  EXPECT_EQ(first.workers, 3);
  EXPECT_EQ(first.ps, 1);
  EXPECT_EQ(first.loss, 0.05);
  EXPECT_THAT(first.best, ElementsAre(TestMetric{"Accuracy", 0.8}));
  EXPECT_EQ(first.samples_per_second, 900);
  EXPECT_THAT(first.seconds_to, ElementsAre(2.0, std::nullopt, 2.0)) << "since the first update";
  EXPECT_EQ(first.lost_updates, 4u);
  EXPECT_EQ(first.bytes, (NetworkBytes{15000, 8000}));
  const ComparedRun& second = comparison.runs[1];
  EXPECT_NEAR(second.samples_per_second.value_or(0), 1000, 1e-6);
  EXPECT_THAT(second.seconds_to, ElementsAre(1.5, std::nullopt, 1.5));
  EXPECT_EQ(second.lost_updates, std::nullopt);
  EXPECT_EQ(second.bytes, (NetworkBytes{14000, 6000}));
}

TEST(CompareRunsTest, CurvesBeginWithTheFirstUpdateAndEvaluationsLieWhereTheirEpochEnded) {
  RecordedRun run = MakeRun("a");
  Train(&run, 1, 20);
  run.first_update_seconds = 2;
  Evaluate(&run, 3.7, 1.05, {{"Accuracy", 0.8}});  // it trained on until 3.7 s
  const Comparison comparison = Compare({run});
  const ComparedQuantity* loss = Find(comparison, "training loss");
  ASSERT_NE(loss, nullptr);
  ASSERT_THAT(loss->series, SizeIs(1));
  ASSERT_THAT(loss->series[0].points, SizeIs(20));
  EXPECT_EQ(loss->series[0].points[0].seconds, 0);
  EXPECT_EQ(loss->series[0].points[19].samples, 2000);
  EXPECT_EQ(loss->series[0].points[19].bytes, 20000);
  const ComparedQuantity* accuracy = Find(comparison, "test accuracy");
  ASSERT_NE(accuracy, nullptr);
  ASSERT_THAT(accuracy->series, SizeIs(1));
  ASSERT_THAT(accuracy->series[0].points, SizeIs(1));
  const ComparedPoint& point = accuracy->series[0].points[0];
  EXPECT_EQ(point.value, 0.8);
  EXPECT_NEAR(point.seconds, 1.7, 1e-9);
  EXPECT_NEAR(point.samples.value_or(0), 1050, 1e-6);
  EXPECT_NEAR(point.bytes.value_or(0), 10500, 1e-6);
  EXPECT_EQ(point.title, "a after epoch 1.05: accuracy 0.8000");
  EXPECT_EQ(comparison.quantities.back().name, "test loss");
}

TEST(CompareRunsTest, AnotherGenerationBreaksTheLines) {
  RecordedRun run = MakeRun("a");
  Train(&run, 1, 15);
  Evaluate(&run, 3.1, 1, {{"Accuracy", 0.6}});
  Train(&run, 1, 12, 2);
  Evaluate(&run, 4.5, 1, {{"Accuracy", 0.7}});
  const Comparison comparison = Compare({run});
  const std::vector<ComparedPoint>& loss = Find(comparison, "training loss")->series.at(0).points;
  ASSERT_THAT(loss, SizeIs(15 + 1 + 12));
  EXPECT_TRUE(std::isnan(loss[15].value));
  EXPECT_EQ(loss[16].samples, 100);
  const std::vector<ComparedPoint>& accuracy = Find(comparison, "test accuracy")->series.at(0).points;
  ASSERT_THAT(accuracy, SizeIs(3));
  EXPECT_TRUE(std::isnan(accuracy[1].value));
  EXPECT_EQ(accuracy[2].samples, 1000);
}

TEST(CompareRunsTest, LongCurvesAreThinnedToTheirEnds) {
  RecordedRun run = MakeRun("a");
  Train(&run, 1, 4321);
  const std::vector<ComparedPoint> points = Find(Compare({run}), "training loss")->series.at(0).points;
  EXPECT_LE(points.size(), 1001u);
  EXPECT_GT(points.size(), 500u);
  EXPECT_EQ(points.front().samples, 100);
  EXPECT_EQ(points.back().samples, 432100);
}

TEST(CompareRunsTest, RunsOfOtherMetricsHaveWhatTheyHave) {
  RecordedRun images = MakeRun("images"), signals = MakeRun("signals"), begun = MakeRun("begun");
  Train(&images, 1, 10);
  Evaluate(&images, 3, 1, {{"BinaryAccuracy", 0.9}, {"Top5Accuracy", std::nan("")}});
  Train(&signals, 1, 10);
  Evaluate(&signals, 3, 1, {{"MeanAbsoluteError", 0.3}});
  Evaluate(&signals, 4, 1, {{"MeanAbsoluteError", 0.2}});
  for (CurvePoint& point : signals.metrics.curve) point.bytes.reset();
  const Comparison comparison = Compare({images, signals, begun}, {"binaryaccuracy=0.9", "MEANABSOLUTEERROR=0.25"});
  std::vector<std::string> names;
  for (const ComparedQuantity& quantity : comparison.quantities) names.push_back(quantity.name);
  EXPECT_THAT(names, ElementsAre("training loss", "test accuracy", "test MeanAbsoluteError", "test loss"));
  EXPECT_THAT(comparison.quantities[1].series, SizeIs(1));
  EXPECT_EQ(comparison.quantities[2].series.at(0).run, 1u);
  EXPECT_EQ(comparison.quantities[2].series.at(0).points.at(0).bytes, std::nullopt);
  EXPECT_THAT(comparison.quantities[3].series, SizeIs(2));
  EXPECT_THAT(comparison.runs[0].seconds_to, ElementsAre(1.0, std::nullopt));
  EXPECT_THAT(comparison.runs[1].seconds_to, ElementsAre(std::nullopt, 2.0)) << "of errors less is better";
  EXPECT_THAT(comparison.runs[1].best, ElementsAre(TestMetric{"MeanAbsoluteError", 0.2}));
  EXPECT_EQ(comparison.runs[1].bytes, std::nullopt);
  EXPECT_THAT(comparison.runs[2].best, IsEmpty());
  EXPECT_EQ(comparison.runs[2].loss, std::nullopt);
  EXPECT_EQ(comparison.runs[2].samples_per_second, std::nullopt);
}

TEST(CompareRunsTest, TheManifestsDifferWhereTheirFieldsDo) {
  RecordedRun first = MakeRun("a"), second = MakeRun("b");
  first.job.spec.update.optimizer.learning_rate = 0.1;
  second.job.spec.update.optimizer.learning_rate = 0.4;
  second.job.spec.elastic.emplace();
  first.job.spec.model.metrics = {"Accuracy"};
  second.job.spec.model.metrics = {"Accuracy", "Top5Accuracy"};
  const Comparison comparison = Compare({first, second});
  std::vector<std::string> paths;
  for (const ManifestDifference& difference : comparison.differences) paths.push_back(difference.path);
  EXPECT_THAT(paths, ElementsAre("spec.update.optimizer.learningRate", "spec.elastic.minReplicas",
                                 "spec.elastic.maxReplicas", "spec.elastic.shrinkAfterSeconds",
                                 "spec.elastic.growCooldownSeconds", "spec.model.metrics[1]"));
  EXPECT_THAT(comparison.differences.at(0).values, ElementsAre("0.1", "0.4"));
  EXPECT_THAT(comparison.differences.at(1).values, ElementsAre(std::nullopt, "1"));
  second.job = first.job;
  EXPECT_THAT(Compare({first, second}).differences, IsEmpty());
  EXPECT_THAT(Compare({first}).differences, IsEmpty());
}

TEST(CompareRunsTest, RunsOfOneNameAreCalledByTheirFolders) {
  RecordedRun first = MakeRun("mlp-1"), second = MakeRun("mlp-1"), third = MakeRun("mlp-2");
  second.directory = "/other/mlp-1";
  const Comparison comparison = Compare({first, second, third});
  EXPECT_EQ(comparison.runs[0].name, "/runs/mlp-1");
  EXPECT_EQ(comparison.runs[1].name, "/other/mlp-1");
  EXPECT_EQ(comparison.runs[2].name, "mlp-2");
  EXPECT_THAT(std::string(CompareRuns({first, third, first}, {}).status().message()),
              HasSubstr("/runs/mlp-1: is named twice"));
}

TEST(CompareRunsTest, AMetricThatNoRunHasIsAnError) {
  RecordedRun run = MakeRun("a");
  const MetricTarget target = *ParseMetricTarget("F1=0.5");
  const absl::Status none = CompareRuns({run}, {target}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(none));
  EXPECT_EQ(none.message(), "--target F1=0.5: no run has the metric F1; none was evaluated yet");
  Train(&run, 1, 10);
  Evaluate(&run, 3, 1, {{"Accuracy", 0.9}});
  EXPECT_EQ(CompareRuns({run}, {target}).status().message(),
            "--target F1=0.5: no run has the metric F1; there are accuracy, loss");
  run.job.spec.model.metrics = {"F1"};
  EXPECT_TRUE(CompareRuns({run}, {target}).ok()) << "it will be measured";
}

TEST(ParseMetricTargetTest, IsANameAndANumber) {
  const absl::StatusOr<MetricTarget> target = ParseMetricTarget("accuracy=0.85");
  ASSERT_TRUE(target.ok());
  EXPECT_EQ(target->metric, "accuracy");
  EXPECT_EQ(target->value, 0.85);
  for (const char* text : {"", "accuracy", "=1", "accuracy=", "accuracy=high", "accuracy=nan", "accuracy=inf"}) {
    const absl::Status status = ParseMetricTarget(text).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("expected METRIC=NUMBER")) << text;
  }
}

TEST(ComparisonToJsonTest, HasTheTableAndTheDifferences) {
  RecordedRun first = MakeRun("a"), second = MakeRun("b\xff");
  Train(&first, 1, 10);
  Evaluate(&first, 3, 1, {{"Accuracy", 0.9}});
  first.first_update_seconds = 2;
  second.job.spec.update.optimizer.learning_rate = 0.4;
  const json document = json::parse(ComparisonToJson(Compare({first, second}, {"accuracy=0.85"}), false));
  const json expected = json::parse(R"({
    "name": "a", "directory": "/runs/a", "job": "mlp", "phase": "Succeeded", "mode": "Async", "optimizer": "SGD",
    "codec": "fp32", "workers": 1, "ps": 1, "loss": 0.1, "bestMetrics": {"Accuracy": 0.9}, "samplesPerSecond": 1000.0,
    "secondsTo": {"accuracy=0.85": 1.0}, "lostUpdates": null, "receivedBytes": 7000, "sentBytes": 3000})");
  ASSERT_EQ(document.at("runs").size(), 2u);
  json run = document.at("runs").at(0);
  EXPECT_NEAR(run.at("samplesPerSecond").get<double>(), 1000, 1e-6);
  run["samplesPerSecond"] = 1000.0;
  EXPECT_EQ(run, expected) << run.dump(2);
  EXPECT_TRUE(document.at("runs").at(1).at("secondsTo").at("accuracy=0.85").is_null());
  EXPECT_TRUE(document.at("runs").at(1).at("receivedBytes").is_null());
  EXPECT_EQ(document.at("differences").at(0).at("path"), "spec.update.optimizer.learningRate");
  EXPECT_EQ(document.at("differences").at(0).at("values").at("a"), "0.01");
  EXPECT_FALSE(document.contains("quantities"));
}

TEST(ComparisonToJsonTest, HasTheCurvesIfAsked) {
  RecordedRun run = MakeRun("a");
  Train(&run, 1, 10);
  Evaluate(&run, 3, 1, {{"Accuracy", 0.9}});
  run.first_update_seconds = 2;
  Comparison comparison = Compare({run});
  comparison.quantities.front().series.front().points.front().value = std::numeric_limits<double>::quiet_NaN();
  const json quantities = json::parse(ComparisonToJson(comparison, true)).at("quantities");
  ASSERT_EQ(quantities.size(), comparison.quantities.size());
  EXPECT_EQ(quantities.at(0).at("name"), "training loss");
  EXPECT_TRUE(quantities.at(0).at("series").at(0).at("points").at(0).at("value").is_null()) << "a gap";
  const json& accuracy = quantities.at(1);
  EXPECT_EQ(accuracy.at("unit"), "accuracy");
  EXPECT_EQ(accuracy.at("series").at(0).at("run"), "a");
  const json& point = accuracy.at("series").at(0).at("points").at(0);
  EXPECT_EQ(point.at("value"), 0.9);
  EXPECT_EQ(point.at("seconds"), 1.0);
  EXPECT_TRUE(point.contains("samples"));
  EXPECT_TRUE(point.contains("bytes"));
}

TEST(CompareRunsTest, ARunWithoutParameterServersHasNoneAndNoBytes) {
  RecordedRun run;
  run.name = "ring";
  run.directory = "/runs/ring";
  run.job.spec.strategy = api::Strategy::kAllReduce;
  run.bytes = NetworkBytes{};
  run.metrics.curve.emplace_back().bytes = NetworkBytes{};
  const absl::StatusOr<Comparison> comparison = CompareRuns({run}, {});
  ASSERT_TRUE(comparison.ok()) << comparison.status();
  EXPECT_EQ(comparison->runs[0].mode, "AllReduce");
  EXPECT_FALSE(comparison->runs[0].ps.has_value());
  EXPECT_FALSE(comparison->runs[0].bytes.has_value());
}

}  // namespace
}  // namespace downpour::cli
