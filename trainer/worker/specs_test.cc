#include "trainer/worker/model_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace downpour::worker {
namespace {

TEST(ModelSpec, CarriesEveryField) {
  v1::ModelConfig config;
  config.set_name("LeNet");
  config.set_parameters(R"({"hidden": 64})");
  config.mutable_loss()->set_type("Huber");
  config.mutable_loss()->set_label_smoothing(0.25);
  config.mutable_loss()->set_delta(2);
  config.add_metrics("Accuracy");
  config.add_frozen("conv1.*");
  const model::ModelSpec spec = MakeModelSpec(config);
  EXPECT_EQ(spec.name, "LeNet");
  EXPECT_EQ(spec.parameters, R"({"hidden": 64})");
  EXPECT_EQ(spec.layers, "");
  EXPECT_EQ(spec.objective.loss, "Huber");
  EXPECT_EQ(spec.objective.label_smoothing, 0.25);
  EXPECT_EQ(spec.objective.delta, 2);
  EXPECT_THAT(spec.objective.metrics, ::testing::ElementsAre("Accuracy"));
  EXPECT_THAT(spec.frozen, ::testing::ElementsAre("conv1.*"));
  EXPECT_EQ(ModelName(config), "LeNet");
}

TEST(ModelSpec, OfLayersHasNoName) {
  v1::ModelConfig config;
  config.set_layers(R"([{"type": "relu"}])");
  const model::ModelSpec spec = MakeModelSpec(config);
  EXPECT_EQ(spec.layers, R"([{"type": "relu"}])");
  EXPECT_EQ(spec.objective.delta, 1);
  EXPECT_EQ(ModelName(config), "list of layers");
}

}  // namespace
}  // namespace downpour::worker
