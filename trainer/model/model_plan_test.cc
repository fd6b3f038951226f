#include "trainer/model/model_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "trainer/model/zoo/zoo.h"

namespace downpour::model {
namespace {

using ::testing::HasSubstr;

data::SampleFields Labelled(data::Field input, std::int64_t classes) {
  return {{std::move(input)}, {{"label", data::ElementType::kI64, {}, classes}}};
}
data::SampleFields Images(std::vector<std::int64_t> shape, std::int64_t classes) {
  return Labelled({"image", data::ElementType::kU8, std::move(shape)}, classes);
}
data::SampleFields Words(std::int64_t classes) {
  return Labelled({"words", data::ElementType::kI32, {data::kRagged}, 10000}, classes);
}

struct Known {
  std::string name;
  data::SampleFields fields;
  std::int64_t parameters;
};

// The counts of docs/models.md: those of the networks' sources where these state one.
std::vector<Known> KnownNetworks() {
  const data::SampleFields radar{{{"frames", data::ElementType::kF32, {12, 96, 96}}},
                                 {{"next", data::ElementType::kF32, {1, 96, 96}}}};
  return {
      {"Acoustic", Labelled({"frames", data::ElementType::kF32, {11, 40}}, 8192), 41777152},
      {"AlexNet", Images({1, 224, 224}, 10), 46764746},
      {"BiLSTM", Words(2), 1387137 + 512},
      {"CifarCNN", Images({3, 32, 32}, 10), 122570},
      {"LeNet", Images({1, 28, 28}, 10), 129068},
      {"LocallyConnected", Images({3, 100, 100}, 1000), 28893464},
      {"MLP", Images({1, 28, 28}, 10), 101770},
      {"PhotoCNN", Images({3, 150, 150}, 5), 9564741},
      {"ResNet18", Images({3, 224, 224}, 1000), 11689512},
      {"TextTransformer", Words(4), 1677316},
      {"UNet", radar, 17272577},
  };
}

TEST(ModelPlan, EveryNetworkHasTheParametersThatAreDocumented) {
  EXPECT_EQ(KnownNetworks().size(), Zoo().size());
  for (const Known& known : KnownNetworks()) {
    ModelSpec spec;
    spec.name = known.name;
    const absl::StatusOr<ModelPlan> plan = PlanModel(spec, known.fields);
    ASSERT_TRUE(plan.ok()) << known.name << ": " << plan.status();
    EXPECT_EQ(plan->layers.parameters, known.parameters) << known.name;
  }
}

TEST(ModelPlan, ANetworkSaysWhatItCannotTake) {
  ModelSpec spec;
  spec.name = "BiLSTM";
  EXPECT_THAT(std::string(PlanModel(spec, Images({1, 28, 28}, 10)).status().message()),
              HasSubstr("spec.model: BiLSTM cannot take image: u8 [1, 28, 28]: layers[0]"));
  spec.name = "MLP";
  spec.parameters = R"({"hidden": 0})";
  EXPECT_THAT(std::string(PlanModel(spec, Images({1, 28, 28}, 10)).status().message()),
              HasSubstr("spec.model.parameters.hidden: expected an integer from 1"));
  spec.parameters = R"({"hiden": 3})";
  EXPECT_THAT(std::string(PlanModel(spec, Images({1, 28, 28}, 10)).status().message()),
              HasSubstr("spec.model.parameters.hiden: MLP has no such size"));
  spec.parameters = "7";
  EXPECT_EQ(PlanModel(spec, Images({1, 28, 28}, 10)).status().message(), "spec.model.parameters: expected a map");
  spec = {};
  EXPECT_THAT(std::string(PlanModel(spec, Words(2)).status().message()),
              HasSubstr("exactly one of name, layers, plugin.name and torchScript, got none"));
  spec.layers = "[{";
  EXPECT_EQ(PlanModel(spec, Words(2)).status().message(), "spec.model.layers: expected a list");
  spec.name = "MLP";
  EXPECT_THAT(std::string(PlanModel(spec, Words(2)).status().message()), HasSubstr("got name and layers"));
  const data::SampleFields two{{{"a", data::ElementType::kF32, {1}}, {"b", data::ElementType::kF32, {1}}}, {}};
  EXPECT_THAT(std::string(PlanModel(spec, two).status().message()),
              HasSubstr("takes one input and one target; the data set has inputs {a: fp32 [1], b: fp32 [1]}"));
}

TEST(ModelPlan, OfAPluginOrTorchScriptHasTheFieldsAlone) {
  ModelSpec spec;
  spec.torch_script = "/models/net.pt";
  const absl::StatusOr<ModelPlan> script = PlanModel(spec, Words(2));
  ASSERT_TRUE(script.ok()) << script.status();
  EXPECT_EQ(script->input, Words(2).inputs[0]);
  EXPECT_EQ(script->target, Words(2).targets[0]);
  EXPECT_TRUE(script->layers.layers.empty());
  spec.plugin_path = "/models/net.so";  // for a loss of it, say
  EXPECT_TRUE(PlanModel(spec, Words(2)).ok());
  spec.plugin_parameters = "{}";
  EXPECT_EQ(PlanModel(spec, Words(2)).status().message(),
            "spec.model.plugin.parameters: are for a network, and plugin.name names none");
  spec.plugin_name = "Net";
  EXPECT_THAT(std::string(PlanModel(spec, Words(2)).status().message()), HasSubstr("got plugin.name and torchScript"));
  spec.torch_script.clear();
  EXPECT_TRUE(PlanModel(spec, Words(2)).ok());
  spec.plugin_path.clear();
  EXPECT_EQ(PlanModel(spec, Words(2)).status().message(), "spec.model.plugin.path: is missing");
}

TEST(ModelPlan, TakesLossesOfAPlugin) {
  ModelSpec spec;
  spec.name = "MLP";
  spec.plugin_path = "/models/losses.so";
  spec.objective.loss = "Focal";
  EXPECT_THAT(std::string(PlanModel(spec, Images({1, 28, 28}, 10)).status().message()),
              HasSubstr("spec.model.loss.type: expected one of CrossEntropy"));
  const absl::StatusOr<ModelPlan> plan = PlanModel(spec, Images({1, 28, 28}, 10), {{"Focal"}, {}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->objective.own_loss, "Focal");
}

}  // namespace
}  // namespace downpour::model
