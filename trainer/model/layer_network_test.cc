// What the layers compute, through Model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "trainer/model/model.h"
#include "trainer/model/testing/steps.h"

namespace downpour::model {
namespace {

using testing::Compute;
using testing::Create;
using ::testing::HasSubstr;
using testing::RandomBatch;
using testing::Step;
using testing::ValueOf;
using Values = std::vector<std::vector<float>>;

const data::SampleFields kImages{{{"image", data::ElementType::kF32, {2, 12, 12}}},
                                 {{"label", data::ElementType::kI64, {}, 3}}};
const data::SampleFields kTexts{{{"words", data::ElementType::kI32, {data::kRagged}, 20}},
                                {{"label", data::ElementType::kI64, {}, 3}}};
const data::SampleFields kFrames{{{"frames", data::ElementType::kF32, {6, 9}}},
                                 {{"label", data::ElementType::kI64, {}, 3}}};

ModelOptions Options(const std::string& layers, const data::SampleFields& fields) {
  ModelOptions options;
  options.model.layers = layers;
  options.fields = fields;
  options.device = DeviceChoice::kCpu;
  return options;
}

struct Case {
  std::string layers;
  data::SampleFields fields;
};

// Each type at least once, in networks without kinks where that is possible.
std::vector<Case> EveryType() {
  const std::string end = R"({"type": "flatten"}, {"type": "dense", "units": 3}])";
  const std::string words = R"([{"type": "embedding", "size": 6}, )";
  return {
      {R"([{"type": "conv2d", "filters": 3, "kernel": 3, "padding": "same"}, {"type": "tanh"},
           {"type": "maxPool2d", "size": 2, "padding": 1}, )" +
           end,
       kImages},
      {R"([{"type": "conv2d", "filters": 3, "kernel": 3, "bias": false, "stride": 2}, {"type": "gelu"},
           {"type": "avgPool2d", "size": 2}, )" +
           end,
       kImages},
      {R"([{"type": "locallyConnected2d", "filters": 3, "kernel": 5, "stride": 3}, {"type": "l2Pool2d", "size": 2},
           {"type": "localContrastNorm", "kernel": 3}, )" +
           end,
       kImages},
      {R"([{"type": "avgPool2d", "size": 3}, {"type": "convTranspose2d", "filters": 2, "kernel": 2, "stride": 2},
           {"type": "sigmoid"}, {"type": "upsample2d", "scale": 2}, {"type": "globalAvgPool2d"},
           {"type": "dense", "units": 3}])",
       kImages},
      {R"([{"type": "residual", "layers": [{"type": "conv2d", "filters": 4, "kernel": 3, "padding": 1, "stride": 2},
           {"type": "tanh"}], "shortcut": [{"type": "conv2d", "filters": 4, "kernel": 1, "stride": 2}]},
           {"type": "concatenate", "layers": [{"type": "conv2d", "filters": 1, "kernel": 1}]}, )" +
           end,
       kImages},
      {R"([{"type": "conv2d", "filters": 3, "kernel": 3}, {"type": "elu"}, )" + end, kImages},
      {R"([{"type": "reshape", "shape": [8, 36]}, {"type": "layerNorm"}, {"type": "leakyRelu"}, )" + end, kImages},
      {R"([{"type": "conv1d", "filters": 4, "kernel": 3, "padding": "same"}, {"type": "tanh"},
           {"type": "maxPool1d", "size": 2}, )" +
           end,
       kFrames},
      {R"([{"type": "gru", "units": 4, "output": "sequence"}, {"type": "lstm", "units": 3}, {"type": "dense", "units": 3}])",
       kFrames},
      {words + R"({"type": "lstm", "units": 5, "bidirectional": true}, {"type": "dense", "units": 3}])", kTexts},
      {words + R"({"type": "gru", "units": 5, "bidirectional": true, "output": "sequence"}, {"type": "sequenceMean"},
                  {"type": "dense", "units": 3}])",
       kTexts},
      {words + R"({"type": "positionalEncoding"}, {"type": "residual", "layers": [{"type": "layerNorm"},
                  {"type": "attention", "heads": 2}]}, {"type": "sequenceMean"}, {"type": "dense", "units": 3}])",
       kTexts},
  };
}

TEST(LayerNetwork, HasTheParametersOfItsPlanAndTheirGradients) {
  for (const Case& one : EveryType()) {
    SCOPED_TRACE(one.layers);
    const ModelOptions options = Options(one.layers, one.fields);
    const std::unique_ptr<Model> model = Create(options);
    ASSERT_NE(model, nullptr);
    std::int64_t elements = 0;
    for (const Tensor& tensor : model->tensors()) elements += tensor.elements();
    const absl::StatusOr<ModelPlan> plan = PlanModel(options.model, one.fields);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(elements, plan->layers.parameters);
    const data::Batch batch = RandomBatch(one.fields, 3, {5, 2, 7, 1, 4});
    const Step step = Compute(*model, batch);
    // Along the gradient of one tensor at a time; the loss is float32, and its rounding grows as the step shrinks.
    for (std::size_t tensor = 0; tensor < model->tensors().size(); ++tensor) {
      const std::vector<float>& gradient = step.gradients[tensor];
      ASSERT_EQ(static_cast<std::int64_t>(gradient.size()), model->tensors()[tensor].elements());
      const double length = std::sqrt(std::inner_product(gradient.begin(), gradient.end(), gradient.begin(), 0.0));
      if (length < 1e-3) continue;  // lost in rounding
      constexpr double kStep = 5e-3;
      const std::vector<float> start = ValueOf(*model, tensor);
      double loss[2];
      for (int side = 0; side < 2; ++side) {
        std::vector<float> moved = start;
        for (std::size_t i = 0; i < moved.size(); ++i) {
          moved[i] += static_cast<float>((side == 0 ? -kStep : kStep) * gradient[i] / length);
        }
        model->SetParameter(tensor, moved);
        loss[side] = Compute(*model, batch).loss;
      }
      model->SetParameter(tensor, start);
      EXPECT_NEAR((loss[1] - loss[0]) / (2 * kStep), length, 0.03 * length + 1e-4) << model->tensors()[tensor].name;
    }
  }
}

TEST(LayerNetwork, PaddingHasNoPart) {
  for (const Case& one : EveryType()) {
    if (!one.fields.inputs[0].ragged()) continue;
    SCOPED_TRACE(one.layers);
    const std::unique_ptr<Model> model = Create(Options(one.layers, one.fields));
    const data::Batch alone = RandomBatch(one.fields, 5, {3});
    data::Batch padded = RandomBatch(one.fields, 6, {3, 9});
    const absl::Span<std::int32_t> words = padded.inputs[0].mutable_values<std::int32_t>();
    std::copy_n(alone.inputs[0].values<std::int32_t>().begin(), 3, words.begin());
    padded.targets[0].mutable_values<std::int64_t>()[0] = alone.targets[0].values<std::int64_t>()[0];
    data::Batch other = RandomBatch(one.fields, 6, {9});
    std::copy_n(words.begin() + 9, 9, other.inputs[0].mutable_values<std::int32_t>().begin());
    other.targets[0].mutable_values<std::int64_t>()[0] = padded.targets[0].values<std::int64_t>()[1];
    const auto loss = [&](const data::Batch& batch) { return model->Evaluate(batch)->loss.sum; };
    EXPECT_NEAR(loss(padded), loss(alone) + loss(other), 1e-5);
  }
}

constexpr char kDrawing[] = R"([{"type": "conv2d", "filters": 4, "kernel": 3}, {"type": "batchNorm"}, {"type": "relu"},
    {"type": "dropout", "rate": 0.5}, {"type": "flatten"}, {"type": "dense", "units": 3}])";

TEST(LayerNetwork, AnUpdateThatIsDoneAgainHasTheSameBits) {
  const data::Batch batch = RandomBatch(kImages, 1, std::vector<std::int64_t>(8));
  const std::unique_ptr<Model> model = Create(Options(kDrawing, kImages));
  const Step first = Compute(*model, batch, 42);
  EXPECT_NE(Compute(*model, batch, 43).gradients, first.gradients) << "draws of its own for each update";
  ASSERT_TRUE(model->Evaluate(batch).ok());
  EXPECT_EQ(Compute(*model, batch, 42).gradients, first.gradients);
  EXPECT_EQ(Compute(*Create(Options(kDrawing, kImages)), batch, 42).gradients, first.gradients);
  EXPECT_EQ(model->Evaluate(batch)->loss.sum, model->Evaluate(batch)->loss.sum) << "nothing is drawn";
}

TEST(LayerNetwork, ABufferIsReportedAsADifferenceAndLeftAsItWas) {
  const std::unique_ptr<Model> model = Create(Options(
      R"([{"type": "flatten"}, {"type": "batchNorm", "momentum": 0.25}, {"type": "dense", "units": 3}])", kImages));
  std::size_t mean = 0;
  while (model->tensors()[mean].name != "batchNorm1.running_mean") ++mean;
  EXPECT_EQ(model->tensors()[mean].kind, TensorKind::kBuffer);
  EXPECT_EQ(model->tensors()[mean + 1].name, "batchNorm1.running_var");
  EXPECT_EQ(model->tensors().size(), mean + 2) << "buffers come last, and LibTorch's counter is none";
  data::Batch batch = RandomBatch(kImages, 1, std::vector<std::int64_t>(4));
  model->SetParameter(mean, std::vector<float>(288, 0.5F));
  const Step step = Compute(*model, batch);
  EXPECT_EQ(ValueOf(*model, mean), std::vector<float>(288, 0.5F));
  const absl::Span<const float> samples = batch.inputs[0].values<float>();
  for (std::size_t i = 0; i < 288; ++i) {
    const double average = (samples[i] + samples[288 + i] + samples[576 + i] + samples[864 + i]) / 4;
    EXPECT_NEAR(step.gradients[mean][i], 0.25 * (0.5 - average), 1e-6);
  }
  // One vector has no variance: the running statistics serve, and stay.
  const Step one = Compute(*model, RandomBatch(kImages, 1, {0}));
  EXPECT_EQ(one.gradients[mean], std::vector<float>(288, 0.0F));
  EXPECT_TRUE(std::isfinite(one.loss));
}

TEST(LayerNetwork, FrozenParametersAreNotShared) {
  ModelOptions options = Options(kDrawing, kImages);
  const std::unique_ptr<Model> free = Create(options);
  options.model.frozen = {"conv*.weight", "dense1.bias"};
  const std::unique_ptr<Model> model = Create(options);
  std::vector<std::string> names;
  for (const Tensor& tensor : model->tensors()) names.push_back(tensor.name);
  EXPECT_THAT(names, ::testing::ElementsAre("conv2d1.bias", "batchNorm1.weight", "batchNorm1.bias", "dense1.weight",
                                            "batchNorm1.running_mean", "batchNorm1.running_var"));
  const std::vector<Model::Frozen> frozen = model->frozen();
  ASSERT_EQ(frozen.size(), 2U);
  EXPECT_EQ(frozen[0].tensor.name, "conv2d1.weight");
  EXPECT_EQ(frozen[0].values, ValueOf(*free, 0)) << "a function of the seed";
  Compute(*model, RandomBatch(kImages, 1, std::vector<std::int64_t>(4)));
  options.model.frozen = {"dense1.*", "convolution1.weight"};
  EXPECT_EQ(CreateModel(options).status().message(),
            "spec.model.frozen[1]: no parameter is called \"convolution1.weight\"; there are conv2d1.weight, "
            "conv2d1.bias, batchNorm1.weight, batchNorm1.bias, dense1.weight, dense1.bias");
  // As many stars as a name allows are no work; the parameter that is left is trained.
  std::string stars;
  for (int i = 0; i < 100; ++i) stars += "*1";
  options.model.frozen = {"*.weight", "**b*t*c*N*.b*s*", stars};
  EXPECT_THAT(std::string(CreateModel(options).status().message()), HasSubstr("frozen[2]: no parameter is called"));
  options.model.frozen.pop_back();
  EXPECT_TRUE(CreateModel(options).ok());
  options.model.frozen = {"*"};
  EXPECT_EQ(CreateModel(options).status().message(), "spec.model.frozen: leaves no parameter to train");
  options = Options(R"([{"type": "globalAvgPool2d"}, {"type": "reshape", "shape": [2]}])", kImages);
  options.fields.targets[0].classes = 2;
  EXPECT_EQ(CreateModel(options).status().message(), "spec.model: has no parameters, so there is nothing to train");
}

TEST(LayerNetwork, LossesAndMetricsAreSumsAndCounts) {
  const data::SampleFields fields{{{"x", data::ElementType::kF32, {2}}}, {{"y", data::ElementType::kF32, {1}}}};
  ModelOptions options = Options(R"([{"type": "dense", "units": 1}])", fields);
  data::Batch batch{{data::MakeArray(fields.inputs[0], 2)}, {data::MakeArray(fields.targets[0], 2)}};
  const std::vector<float> x = {1, 0, 0, 2}, y = {0.5F, 3};
  std::copy(x.begin(), x.end(), batch.inputs[0].mutable_values<float>().begin());
  std::copy(y.begin(), y.end(), batch.targets[0].mutable_values<float>().begin());
  const auto evaluate = [&](const char* loss) {
    options.model.objective.loss = loss;
    const std::unique_ptr<Model> model = Create(options);
    model->SetParameter(0, std::vector<float>{1, 0.5F});  // outputs 1 and 1: errors of 0.5 and -2
    return *model->Evaluate(batch);
  };
  const EvaluationResult squared = evaluate("MeanSquaredError");
  EXPECT_NEAR(squared.loss.sum, 0.25 + 4, 1e-6);
  EXPECT_EQ(squared.loss.count, 2);
  EXPECT_EQ(squared.metrics.at(0).name, "MeanAbsoluteError");
  EXPECT_NEAR(squared.metrics.at(0).sum, 2.5, 1e-6);
  EXPECT_EQ(squared.metrics.at(0).count, 2);
  EXPECT_NEAR(evaluate("Huber").loss.sum, 0.125 + 1.5, 1e-6);
  options.model.objective.delta = 3;
  EXPECT_NEAR(evaluate("Huber").loss.sum, 0.125 + 2, 1e-6);
}

}  // namespace
}  // namespace downpour::model
