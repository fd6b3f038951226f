#include "cli/render/test_metrics.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace downpour::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

v1::Evaluation Evaluation(const std::vector<TestMetric>& metrics) {
  v1::Evaluation evaluation;
  for (const TestMetric& metric : metrics) {
    v1::Metric* added = evaluation.add_metrics();
    added->set_name(metric.name);
    added->set_value(metric.value);
  }
  return evaluation;
}

TEST(TestMetricsTest, AnAccuracyIsCalledSoAndTheOthersByTheirNames) {
  EXPECT_EQ(MetricsText({}), "");
  EXPECT_EQ(MetricsText({{"Accuracy", 0.87125}}), "accuracy 0.8712");
  EXPECT_EQ(MetricsText({{"BinaryAccuracy", 0.5}}), "accuracy 0.5000");
  EXPECT_EQ(MetricsText({{"MeanAbsoluteError", 0.0312}}), "MeanAbsoluteError 0.0312");
  EXPECT_EQ(MetricsText({{"Top5Accuracy", 0.9911}, {"Accuracy", 0.8712}}), "Top5Accuracy 0.9911, accuracy 0.8712");
  EXPECT_EQ(MetricsText({{"Accuracy", std::numeric_limits<double>::quiet_NaN()}}), "accuracy -");
  EXPECT_EQ(MetricLabel("F1\x1b[2J"), "F1 [2J");
}

TEST(TestMetricsTest, TheFirstAccuracyIsTheAccuracy) {
  EXPECT_EQ(AccuracyOf({}), std::nullopt);
  EXPECT_EQ(AccuracyOf({{"Top5Accuracy", 0.9}, {"MeanAbsoluteError", 0.5}}), std::nullopt);
  EXPECT_EQ(AccuracyOf({{"Top5Accuracy", 0.9}, {"BinaryAccuracy", 0.5}, {"Accuracy", 0.25}}), 0.5);
}

TEST(TestMetricsTest, WhatAnEarlierVersionWroteIsAnAccuracy) {
  EXPECT_THAT(MetricsOf(v1::Evaluation()), IsEmpty());
  v1::Evaluation evaluation = Evaluation({});
  evaluation.set_accuracy(0.75);
  EXPECT_THAT(MetricsOf(evaluation), ElementsAre(TestMetric{"Accuracy", 0.75}));
  evaluation = Evaluation({{"Top5Accuracy", 0.9}, {"Accuracy", 0.75}});
  evaluation.set_accuracy(0.75);
  EXPECT_THAT(MetricsOf(evaluation), ElementsAre(TestMetric{"Top5Accuracy", 0.9}, TestMetric{"Accuracy", 0.75}));

  api::ProgressStatus progress;
  EXPECT_THAT(MetricsOf(progress), IsEmpty());
  progress.test_accuracy = "0.7500";
  EXPECT_THAT(MetricsOf(progress), ElementsAre(TestMetric{"Accuracy", 0.75}));
  progress.test_metrics = {{"MeanAbsoluteError", "0.0312"}, {"Custom", "much"}};
  EXPECT_EQ(MetricsText(MetricsOf(progress)), "MeanAbsoluteError 0.0312, Custom -");
}

TEST(TestMetricsTest, BeforeTheFirstEvaluationTheManifestSaysWhatIsExpected) {
  api::TrainingJob job;
  EXPECT_EQ(MetricsText(ExpectedMetrics(job)), "accuracy -");
  job.spec.model.metrics = {"Top5Accuracy", "Accuracy"};
  EXPECT_EQ(MetricsText(ExpectedMetrics(job)), "Top5Accuracy -, accuracy -");
}

}  // namespace
}  // namespace downpour::cli
