// A model that is given its values and minibatches through queues computes what one does that is given them directly.
#include "trainer/model/copied_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "trainer/model/model_plan.h"
#include "trainer/model/network.h"
#include "trainer/model/testing/late_copies.h"
#include "trainer/model/testing/steps.h"
#include "trainer/model/tf32.h"

namespace downpour::model {
namespace {

using testing::Compute;
using testing::LateCopies;
using testing::RandomBatch;
using testing::Step;
using testing::ValueOf;

const data::SampleFields kImages{{{"image", data::ElementType::kF32, {2, 6, 6}}},
                                 {{"label", data::ElementType::kI64, {}, 3}}};
const data::SampleFields kPixels{{{"image", data::ElementType::kU8, {2, 6, 6}}},
                                 {{"label", data::ElementType::kI64, {}, 3}}};
const data::SampleFields kTexts{{{"words", data::ElementType::kI32, {data::kRagged}, 20}},
                                {{"label", data::ElementType::kI64, {}, 3}}};
constexpr char kLayers[] =
    R"([{"type": "conv2d", "name": "conv", "filters": 4, "kernel": 3}, {"type": "batchNorm", "name": "norm"},
        {"type": "residual", "name": "around", "layers": [{"type": "conv2d", "name": "inner", "filters": 4, "kernel": 3,
         "padding": 1}]},
        {"type": "dropout", "name": "drop", "rate": 0.25}, {"type": "flatten"},
        {"type": "dense", "name": "dense", "units": 3}])";

ModelOptions Options(const data::SampleFields& fields, const std::string& layers) {
  ModelOptions options;
  options.model.layers = layers;
  options.fields = fields;
  options.device = DeviceChoice::kCpu;
  return options;
}

std::shared_ptr<const data::Batch> MakeBatch(const data::SampleFields& fields, std::uint64_t seed) {
  if (fields.inputs[0].type != data::ElementType::kU8) {
    return std::make_shared<const data::Batch>(RandomBatch(fields, seed, {5, 3, 1, static_cast<std::int64_t>(seed)}));
  }
  data::Batch batch{{data::MakeArray(fields.inputs[0], 4)}, {data::MakeArray(fields.targets[0], 4)}};
  std::mt19937_64 random(seed);
  for (std::uint8_t& pixel : batch.inputs[0].mutable_values<std::uint8_t>())
    pixel = static_cast<std::uint8_t>(random());
  return std::make_shared<const data::Batch>(std::move(batch));
}

void ExpectSame(const Step& found, const Step& expected) {
  EXPECT_EQ(found.loss, expected.loss);
  EXPECT_EQ(found.gradients, expected.gradients);
}

// New values for all before each step, as from a ps, and the next minibatch announced before it comes.
void ExpectSameTraining(const ModelOptions& options) {
  LateCopies::Record record;
  absl::StatusOr<std::unique_ptr<Model>> made =
      CreateCopiedModel(options, [&record] { return std::make_unique<LateCopies>(&record); });
  ASSERT_TRUE(made.ok()) << made.status();
  Model& copied = **made;
  const std::unique_ptr<Model> plain = testing::Create(options);
  std::vector<std::shared_ptr<const data::Batch>> batches;
  for (std::uint64_t i = 0; i < 6; ++i) batches.push_back(MakeBatch(options.fields, i + 1));
  std::size_t next = 0;
  int asked = 0;
  copied.StageFrom([&]() -> std::shared_ptr<const data::Batch> {
    ++asked;
    return next == 3 ? nullptr : batches[next];  // one is not there in time
  });
  std::mt19937_64 random(5);
  std::normal_distribution<float> normal;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    for (std::size_t tensor = 0; tensor < plain->tensors().size(); ++tensor) {
      std::vector<float> values = ValueOf(*plain, tensor);
      for (float& value : values)
        value = plain->tensors()[tensor].kind == TensorKind::kBuffer ? value + 1 : normal(random);
      plain->SetParameter(tensor, values);
      copied.SetParameter(tensor, values);
      values.assign(values.size(), 0);  // is the caller's again
    }
    next = (i + 1) % batches.size();
    ExpectSame(Compute(copied, *batches[i], i), Compute(*plain, *batches[i], i));
    if (i % 2 == 0) {
      const auto found = copied.Evaluate(*batches[0]), expected = plain->Evaluate(*batches[0]);
      ASSERT_TRUE(found.ok() && expected.ok()) << found.status() << expected.status();
      EXPECT_EQ(found->loss.sum, expected->loss.sum);
    }
    for (std::size_t tensor = 0; tensor < plain->tensors().size(); ++tensor) {
      EXPECT_EQ(ValueOf(copied, tensor), ValueOf(*plain, tensor)) << plain->tensors()[tensor].name;
    }
  }
  EXPECT_EQ(asked, options.pin_memory ? 6 : 0);
}

TEST(CopiedModel, TrainsAsOneThatIsGivenAllDirectly) {
  for (const bool pinned : {true, false}) {
    for (const LayoutChoice layout : {LayoutChoice::kContiguous, LayoutChoice::kChannelsLast}) {
      for (const data::SampleFields& fields : {kImages, kPixels}) {
        SCOPED_TRACE(data::ToString(fields));
        ModelOptions options = Options(fields, kLayers);
        options.layout = layout;
        options.pin_memory = pinned;
        ExpectSameTraining(options);
      }
    }
  }
}

TEST(CopiedModel, AlsoWithTextsOfAnyLength) {
  ExpectSameTraining(Options(kTexts, R"([{"type": "embedding", "name": "words", "size": 4}, {"type": "sequenceMean"},
                                         {"type": "dense", "name": "dense", "units": 3}])"));
}

TEST(CopiedModel, AlsoWithANetworkThatDoesNotTellItsUse) {
  ModelOptions options = Options(kImages, "");
  options.model.plugin_path = std::string(DOWNPOUR_TEST_PLUGINS) + "/test_plugin.so";
  options.model.plugin_name = "Net";
  ExpectSameTraining(options);
}

TEST(CopiedModel, TakesItsOwnStepsFromNewValues) {
  ModelOptions options = Options(kImages, kLayers);
  options.local_optimizer = LocalOptimizer{};
  LateCopies::Record record;
  absl::StatusOr<std::unique_ptr<Model>> copied =
      CreateCopiedModel(options, [&record] { return std::make_unique<LateCopies>(&record); });
  ASSERT_TRUE(copied.ok()) << copied.status();
  const std::unique_ptr<Model> plain = testing::Create(options);
  const auto first = MakeBatch(kImages, 2), second = MakeBatch(kImages, 3);
  (*copied)->StageFrom([&second] { return second; });
  for (Model* model : {copied->get(), plain.get()}) {
    for (std::size_t tensor = 0; tensor < model->tensors().size(); ++tensor) {
      model->SetParameter(tensor, std::vector<float>(model->tensors()[tensor].elements(), 0.25F));
    }
    ASSERT_TRUE(model->TakeStep(*first, 1, nullptr).ok());
    ASSERT_TRUE(model->TakeStep(*second, 2, nullptr).ok());
  }
  for (std::size_t tensor = 0; tensor < plain->tensors().size(); ++tensor) {
    EXPECT_EQ(ValueOf(**copied, tensor), ValueOf(*plain, tensor)) << plain->tensors()[tensor].name;
  }
}

TEST(CopiedModel, ANetworkOfLayersTellsBeforeEachUsesItsTensors) {
  const ModelOptions options = Options(kImages, kLayers);
  const absl::StatusOr<ModelPlan> plan = PlanModel(options.model, options.fields);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::shared_ptr<Network> network = MakeLayerNetwork(plan->layers, plan->input, 1);
  std::vector<std::string> used;
  ASSERT_TRUE(network->TellUse([&used](const std::string& layer) { used.push_back(layer); }));
  network->Forward({at::zeros({2, 2, 6, 6}), {}}, false);
  EXPECT_THAT(used, ::testing::ElementsAre("conv", "norm", "inner", "dense"));
}

TEST(CopiedModel, Tf32IsForAllProductsOrForNone) {
  for (const bool allow : {true, false, true, false}) {
    AllowTf32(allow);
    EXPECT_EQ(at::globalContext().allowTF32CuBLAS(), allow);
    EXPECT_EQ(at::globalContext().allowTF32CuDNN(), allow);
  }
}

TEST(CopiedModel, WhatGoesWrongWithACopyIsAnErrorOfTheNextStep) {
  LateCopies::Record record;
  absl::StatusOr<std::unique_ptr<Model>> model =
      CreateCopiedModel(Options(kImages, kLayers), [&record] { return std::make_unique<LateCopies>(&record); });
  ASSERT_TRUE(model.ok()) << model.status();
  record.fails = true;
  (*model)->SetParameter(0, ValueOf(*testing::Create(Options(kImages, kLayers)), 0));
  const absl::Status status = (*model)->ComputeGradients(*MakeBatch(kImages, 2), 1, nullptr, nullptr).status();
  EXPECT_TRUE(absl::IsInternal(status));
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("the copy engine is gone"));
  EXPECT_TRUE((*model)->ComputeGradients(*MakeBatch(kImages, 2), 1, nullptr, nullptr).ok());
}

TEST(CopiedModel, AWrongMinibatchIsRefusedWhenItsTurnComes) {
  LateCopies::Record record;
  absl::StatusOr<std::unique_ptr<Model>> model =
      CreateCopiedModel(Options(kImages, kLayers), [&record] { return std::make_unique<LateCopies>(&record); });
  ASSERT_TRUE(model.ok()) << model.status();
  const auto wrong = MakeBatch(kPixels, 1), empty = std::make_shared<const data::Batch>();
  for (const auto& next : {wrong, empty}) {
    (*model)->StageFrom([&next] { return next; });
    EXPECT_TRUE((*model)->ComputeGradients(*MakeBatch(kImages, 2), 1, nullptr, nullptr).ok());
    EXPECT_TRUE(absl::IsInvalidArgument((*model)->ComputeGradients(*next, 1, nullptr, nullptr).status()));
  }
}

}  // namespace
}  // namespace downpour::model
