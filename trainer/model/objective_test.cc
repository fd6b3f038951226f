#include "trainer/model/objective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace downpour::model {
namespace {

using ::testing::ElementsAre;

const data::Field kLabel{"label", data::ElementType::kI64, {}, 10};
const data::Field kYesOrNo{"label", data::ElementType::kI64, {}, 2};
const data::Field kNext{"next", data::ElementType::kF32, {1, 8, 8}};

Value Output(std::vector<std::int64_t> shape) { return {false, 0, std::move(shape)}; }

TEST(Objective, FollowsTheTargetWhereTheManifestSaysNothing) {
  const auto labels = PlanObjective({}, Output({10}), kLabel);
  ASSERT_TRUE(labels.ok()) << labels.status();
  EXPECT_EQ(labels->loss, LossType::kCrossEntropy);
  EXPECT_THAT(labels->metrics, ElementsAre(Metric{MetricType::kAccuracy, ""}));
  const auto binary = PlanObjective({}, Output({1}), kYesOrNo);
  ASSERT_TRUE(binary.ok()) << binary.status();
  EXPECT_EQ(binary->loss, LossType::kBinaryCrossEntropy);
  EXPECT_THAT(binary->metrics, ElementsAre(Metric{MetricType::kBinaryAccuracy, ""}));
  const auto image = PlanObjective({}, Output({1, 8, 8}), kNext);
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(image->loss, LossType::kMeanSquaredError);
  EXPECT_THAT(image->metrics, ElementsAre(Metric{MetricType::kMeanAbsoluteError, ""}));
}

TEST(Objective, TakesWhatTheManifestNames) {
  ObjectiveSpec spec;
  spec.loss = "Huber";
  spec.delta = 0.5;
  const auto huber = PlanObjective(spec, Output({1, 8, 8}), kNext);
  ASSERT_TRUE(huber.ok()) << huber.status();
  EXPECT_EQ(huber->loss, LossType::kHuber);
  EXPECT_EQ(huber->delta, 0.5);
  spec = {};
  spec.metrics = {"Top5Accuracy", "Accuracy"};
  const auto both = PlanObjective(spec, Output({10}), kLabel);
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_THAT(both->metrics, ElementsAre(Metric{MetricType::kTop5Accuracy, ""}, Metric{MetricType::kAccuracy, ""}));
}

TEST(Objective, RefusesWhatDoesNotFitByItsPath) {
  const auto refusal = [](const ObjectiveSpec& spec, const Value& output, const data::Field& target) {
    return std::string(PlanObjective(spec, output, target).status().message());
  };
  ObjectiveSpec spec;
  EXPECT_EQ(refusal(spec, Output({9}), kLabel),
            "spec.model.loss: CrossEntropy needs one output for each class of an integer label; the network makes [9] "
            "and the target of the data set is label: i64 [] below 10");
  spec.loss = "MeanSquaredError";
  EXPECT_EQ(refusal(spec, Output({10}), kLabel),
            "spec.model.loss: MeanSquaredError needs an output of the target's shape and a target of fp32; the network "
            "makes [10] and the target of the data set is label: i64 [] below 10");
  spec.loss = "BinaryCrossEntropy";
  EXPECT_EQ(refusal(spec, Output({1}), kLabel),
            "spec.model.loss: BinaryCrossEntropy needs one output and a label of two classes, or fp32 targets in the "
            "output's shape; the network makes [1] and the target of the data set is label: i64 [] below 10");
  spec.loss = "Hinge";
  EXPECT_EQ(refusal(spec, Output({10}), kLabel),
            "spec.model.loss.type: expected one of CrossEntropy, BinaryCrossEntropy, MeanSquaredError, Huber, got "
            "\"Hinge\"");
  spec = {};
  spec.metrics = {"Accuracy", "MeanAbsoluteError"};
  EXPECT_EQ(
      refusal(spec, Output({10}), kLabel),
      "spec.model.metrics[1]: MeanAbsoluteError needs an output of the target's shape; the network makes [10] and "
      "the target of the data set is label: i64 [] below 10");
  spec.metrics = {"F1"};
  EXPECT_EQ(refusal(spec, Output({10}), kLabel),
            "spec.model.metrics[0]: expected one of Accuracy, Top5Accuracy, BinaryAccuracy, MeanAbsoluteError, got "
            "\"F1\"");
}

TEST(Objective, APluginsOwnMayBeNamed) {
  const OwnMeasures own{{"Focal", "MeanSquaredError"}, {"F1", "Accuracy"}};
  ObjectiveSpec spec;
  spec.loss = "Focal";
  spec.metrics = {"F1", "Top5Accuracy", "Accuracy"};
  const auto focal = PlanObjective(spec, Output({10}), kLabel, own);
  ASSERT_TRUE(focal.ok()) << focal.status();
  EXPECT_EQ(focal->own_loss, "Focal");
  EXPECT_THAT(focal->metrics, ElementsAre(Metric{MetricType::kAccuracy, "F1"}, Metric{MetricType::kTop5Accuracy, ""},
                                          Metric{MetricType::kAccuracy, "Accuracy"}));
  spec.metrics.clear();
  EXPECT_THAT(PlanObjective(spec, Output({10}), kLabel, own)->metrics, ElementsAre(Metric{MetricType::kAccuracy, ""}));
  const auto unusual = PlanObjective(spec, Output({3, 3}), kLabel, own);
  ASSERT_TRUE(unusual.ok()) << unusual.status();
  EXPECT_THAT(unusual->metrics, ::testing::IsEmpty());
  spec.loss = "MeanSquaredError";  // hides Downpour's, which would not fit
  EXPECT_EQ(PlanObjective(spec, Output({10}), kLabel, own)->own_loss, "MeanSquaredError");
  spec.loss = "Hinge";
  EXPECT_EQ(PlanObjective(spec, Output({10}), kLabel, {{"Focal"}, {}}).status().message(),
            "spec.model.loss.type: expected one of Focal, CrossEntropy, BinaryCrossEntropy, MeanSquaredError, Huber, "
            "got \"Hinge\"");
}

}  // namespace
}  // namespace downpour::model
