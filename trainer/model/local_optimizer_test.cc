#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "trainer/data/dataset.h"
#include "trainer/model/model.h"
#include "trainer/model/testing/plain_optimizer.h"

namespace downpour::model {
namespace {

using Type = LocalOptimizer::Type;

constexpr char kLayers[] = R"([{"type": "flatten"}, {"type": "dense", "units": 6}, {"type": "batchNorm"},
    {"type": "relu"}, {"type": "dropout", "rate": 0.25}, {"type": "dense", "units": 3}])";

ModelOptions Options() {
  ModelOptions options;
  options.model.layers = kLayers;
  options.fields = {{{"image", data::ElementType::kF32, {1, 4, 4}}}, {{"label", data::ElementType::kI64, {}, 3}}};
  options.device = DeviceChoice::kCpu;
  return options;
}

std::unique_ptr<Model> Create(const std::optional<LocalOptimizer>& local) {
  ModelOptions options = Options();
  options.local_optimizer = local;
  absl::StatusOr<std::unique_ptr<Model>> model = CreateModel(options);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : nullptr;
}

data::Batch RandomBatch(std::uint64_t seed) {
  constexpr std::int64_t kSize = 8;
  const data::SampleFields fields = Options().fields;
  std::mt19937_64 random(seed);
  std::normal_distribution<float> pixel;
  data::Batch batch{{data::MakeArray(fields.inputs[0], kSize)}, {data::MakeArray(fields.targets[0], kSize)}};
  for (float& value : batch.inputs[0].mutable_values<float>()) value = pixel(random);
  for (std::int64_t& label : batch.targets[0].mutable_values<std::int64_t>()) {
    label = static_cast<std::int64_t>(random() % 3);
  }
  return batch;
}

Values ValuesOf(const Model& model) {
  Values values;
  for (std::size_t tensor = 0; tensor < model.tensors().size(); ++tensor) {
    values.emplace_back(static_cast<std::size_t>(model.tensors()[tensor].elements()));
    model.GetParameter(tensor, absl::MakeSpan(values.back()));
  }
  return values;
}

std::size_t Parameters(const Model& model) {
  std::size_t count = 0;
  for (const Tensor& tensor : model.tensors()) count += tensor.kind == TensorKind::kParameter ? 1 : 0;
  return count;
}

double Distance(const Values& a, const Values& b) {
  double most = 0;
  for (std::size_t tensor = 0; tensor < a.size(); ++tensor) {
    for (std::size_t i = 0; i < a[tensor].size(); ++i) {
      most = std::max(most, std::abs(double{a[tensor][i]} - double{b[tensor][i]}));
    }
  }
  return most;
}

std::vector<LocalOptimizer> Every() {
  std::vector<LocalOptimizer> all;
  for (const Type type : {Type::kSgd, Type::kMomentum, Type::kAdam, Type::kAdamW}) {
    for (const double decay : {0.0, 0.1}) {
      for (const double clip : {0.0, 0.2}) {
        LocalOptimizer optimizer;
        optimizer.type = type;
        optimizer.learning_rate = 0.01;
        optimizer.epsilon = 1e-3;
        optimizer.weight_decay = decay;
        optimizer.clip_norm = clip;
        all.push_back(optimizer);
      }
    }
  }
  return all;
}

TEST(LocalOptimizerTest, StepsAreThoseOfTheFormulas) {
  for (const LocalOptimizer& options : Every()) {
    SCOPED_TRACE(absl::StrCat("type ", static_cast<int>(options.type), ", decay ", options.weight_decay, ", clip ",
                              options.clip_norm));
    const std::unique_ptr<Model> model = Create(options);
    const std::unique_ptr<Model> plain = Create(std::nullopt);
    const Values initial = ValuesOf(*model);
    PlainOptimizer optimizer(options);
    for (std::uint64_t step = 0; step < 6; ++step) {
      if (step > 2) {
        const double learning_rate = options.learning_rate / static_cast<double>(step);
        model->SetLearningRate(learning_rate);
        optimizer.SetLearningRate(learning_rate);
      }
      const data::Batch batch = RandomBatch(step);
      const absl::StatusOr<StepResult> taken = model->TakeStep(batch, step, nullptr);
      ASSERT_TRUE(taken.ok()) << taken.status();
      Values values = ValuesOf(*plain);
      Values gradients(values.size());
      const absl::StatusOr<StepResult> computed =
          plain->ComputeGradients(batch, step, nullptr, [&](std::size_t tensor, absl::Span<const float> gradient) {
            gradients[tensor].assign(gradient.begin(), gradient.end());
          });
      ASSERT_TRUE(computed.ok()) << computed.status();
      EXPECT_NEAR(taken->loss, computed->loss, 1e-5);
      optimizer.Step(gradients, Parameters(*plain), &values);
      for (std::size_t tensor = 0; tensor < values.size(); ++tensor) plain->SetParameter(tensor, values[tensor]);
      EXPECT_LT(Distance(ValuesOf(*model), values), 1e-6) << "step " << step;
    }
    EXPECT_GT(Distance(ValuesOf(*model), initial), 1e-4);
  }
}

TEST(LocalOptimizerTest, WhatItRemembersStaysUntilItForgets) {
  LocalOptimizer options;
  options.type = Type::kAdamW;
  const std::unique_ptr<Model> model = Create(options);
  const Values start = ValuesOf(*model);
  const auto step_from_start = [&] {
    for (std::size_t tensor = 0; tensor < start.size(); ++tensor) model->SetParameter(tensor, start[tensor]);
    EXPECT_TRUE(model->TakeStep(RandomBatch(1), 1, nullptr).ok());
    return ValuesOf(*model);
  };
  const Values first = step_from_start();
  EXPECT_TRUE(model->TakeStep(RandomBatch(2), 2, nullptr).ok());
  EXPECT_NE(step_from_start(), first) << "moments of two steps before";
  model->ForgetSteps();
  EXPECT_EQ(step_from_start(), first);
}

TEST(LocalOptimizerTest, NothingMovesWhereTheLossIsRefused) {
  LocalOptimizer options;
  options.type = Type::kMomentum;
  const std::unique_ptr<Model> model = Create(options);
  const Values start = ValuesOf(*model);
  EXPECT_TRUE(model->TakeStep(RandomBatch(1), 1, [](double) { return false; }).ok());
  EXPECT_EQ(ValuesOf(*model), start);
  // Gradients do not come along with steps.
  Values gradients(start.size());
  const auto keep = [&](std::size_t tensor, absl::Span<const float> gradient) {
    gradients[tensor].assign(gradient.begin(), gradient.end());
  };
  ASSERT_TRUE(Create(std::nullopt)->ComputeGradients(RandomBatch(1), 1, nullptr, keep).ok());
  const Values expected = gradients;
  ASSERT_TRUE(model->ComputeGradients(RandomBatch(1), 1, nullptr, keep).ok());
  EXPECT_EQ(gradients, expected);
}

TEST(LocalOptimizerTest, AModelWithoutOneSaysSo) {
  EXPECT_EQ(Create(std::nullopt)->TakeStep(RandomBatch(1), 1, nullptr).status().code(),
            absl::StatusCode::kFailedPrecondition);
  LocalOptimizer bad;
  bad.learning_rate = -1;
  ModelOptions options = Options();
  options.local_optimizer = bad;
  EXPECT_EQ(CreateModel(options).status().code(), absl::StatusCode::kInternal) << "what LibTorch throws is a status";
}

}  // namespace
}  // namespace downpour::model
