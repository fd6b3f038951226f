#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/worker/dataset_spec.h"
#include "trainer/worker/model_spec.h"

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

TEST(DatasetSpec, CarriesEveryField) {
  v1::DatasetConfig config;
  config.set_format("Synthetic");
  config.set_path("/data");
  v1::SyntheticConfig& synthetic = *config.mutable_synthetic();
  synthetic.set_kind("Text");
  synthetic.set_samples(1);
  synthetic.set_test_samples(2);
  synthetic.set_seed(3);
  synthetic.add_shape(4);
  synthetic.add_shape(5);
  synthetic.set_classes(6);
  synthetic.set_vocabulary(7);
  synthetic.set_min_length(8);
  synthetic.set_max_length(9);
  const data::DatasetSpec spec = MakeDatasetSpec(config);
  EXPECT_EQ(spec.format, "Synthetic");
  EXPECT_EQ(spec.directory, "/data");
  EXPECT_EQ(spec.synthetic.kind, "Text");
  EXPECT_EQ(spec.synthetic.samples, 1);
  EXPECT_EQ(spec.synthetic.test_samples, 2);
  EXPECT_EQ(spec.synthetic.seed, 3);
  EXPECT_THAT(spec.synthetic.shape, ::testing::ElementsAre(4, 5));
  EXPECT_EQ(spec.synthetic.classes, 6);
  EXPECT_EQ(spec.synthetic.vocabulary, 7);
  EXPECT_EQ(spec.synthetic.min_length, 8);
  EXPECT_EQ(spec.synthetic.max_length, 9);
}

TEST(ModelSpec, OfAPluginOrTorchScriptHasItsFile) {
  v1::ModelConfig config;
  config.mutable_plugin()->set_path("/models/net.so");
  config.mutable_plugin()->set_name("Net");
  config.mutable_plugin()->set_parameters(R"({"filters": 8})");
  model::ModelSpec spec = MakeModelSpec(config);
  EXPECT_EQ(spec.plugin_path, "/models/net.so");
  EXPECT_EQ(spec.plugin_name, "Net");
  EXPECT_EQ(spec.plugin_parameters, R"({"filters": 8})");
  EXPECT_EQ(ModelName(config), "Net of /models/net.so");
  config.mutable_plugin()->clear_name();
  config.set_torch_script("/models/net.pt");
  spec = MakeModelSpec(config);
  EXPECT_EQ(spec.torch_script, "/models/net.pt");
  EXPECT_EQ(ModelName(config), "TorchScript of /models/net.pt");
}

}  // namespace
}  // namespace downpour::worker
