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
  const absl::StatusOr<model::ModelSpec> spec = MakeModelSpec(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->name, "LeNet");
  EXPECT_EQ(spec->parameters["hidden"], 64);
  EXPECT_TRUE(spec->layers.is_null());
  EXPECT_EQ(spec->objective.loss, "Huber");
  EXPECT_EQ(spec->objective.label_smoothing, 0.25);
  EXPECT_EQ(spec->objective.delta, 2);
  EXPECT_THAT(spec->objective.metrics, ::testing::ElementsAre("Accuracy"));
  EXPECT_THAT(spec->frozen, ::testing::ElementsAre("conv1.*"));
  EXPECT_EQ(ModelName(config), "LeNet");
}

TEST(ModelSpec, IsANameOrLayersInJson) {
  v1::ModelConfig config;
  EXPECT_EQ(MakeModelSpec(config).status().message(),
            "spec.model: expected exactly one of name and layers, got neither");
  config.set_layers(R"([{"type": "relu"}])");
  const absl::StatusOr<model::ModelSpec> spec = MakeModelSpec(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layers.size(), 1U);
  EXPECT_EQ(spec->objective.delta, 1);
  EXPECT_EQ(ModelName(config), "list of layers");
  config.set_layers("[{");
  EXPECT_EQ(MakeModelSpec(config).status().message(), "spec.model.layers: expected a list");
  config.set_layers("[]");
  config.set_name("MLP");
  EXPECT_EQ(MakeModelSpec(config).status().message(), "spec.model: expected exactly one of name and layers, got both");
  config.clear_layers();
  config.set_parameters("7");
  EXPECT_EQ(MakeModelSpec(config).status().message(), "spec.model.parameters: expected a map");
}

}  // namespace
}  // namespace downpour::worker
