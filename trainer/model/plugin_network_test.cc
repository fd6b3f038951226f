// Networks, losses and metrics of plug-ins (trainer/model/testing), through Model.
#include "trainer/model/plugin_network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "trainer/model/model.h"
#include "trainer/model/testing/steps.h"

namespace downpour::model {
namespace {

using ::testing::AllOf;
using testing::Compute;
using testing::Create;
using ::testing::ElementsAre;
using testing::ExpectSame;
using ::testing::HasSubstr;
using testing::NamesOf;
using testing::RandomBatch;
using testing::Step;
using testing::ValueOf;

const data::SampleFields kImages{{{"image", data::ElementType::kF32, {2, 6, 6}}},
                                 {{"label", data::ElementType::kI64, {}, 3}}};
const data::SampleFields kTexts{{{"words", data::ElementType::kI32, {data::kRagged}, 20}},
                                {{"label", data::ElementType::kI64, {}, 3}}};
// The same as the network Net of test_plugin.
constexpr char kLayers[] =
    R"([{"type": "conv2d", "name": "conv", "filters": 4, "kernel": 3}, {"type": "batchNorm", "name": "norm"},
        {"type": "tanh"}, {"type": "flatten"}, {"type": "dense", "name": "dense", "units": 3}])";

std::string Path(const std::string& plugin) { return std::string(DOWNPOUR_TEST_PLUGINS) + "/" + plugin + ".so"; }

ModelOptions Options(const std::string& network, const std::string& parameters = "",
                     const data::SampleFields& fields = kImages) {
  ModelOptions options;
  options.model.plugin_path = Path("test_plugin");
  options.model.plugin_name = network;
  options.model.plugin_parameters = parameters;
  options.fields = fields;
  options.device = DeviceChoice::kCpu;
  options.batch_size = 8;
  return options;
}

std::string Refusal(const ModelOptions& options) { return std::string(CreateModel(options).status().message()); }

data::Batch Samples(std::size_t count) { return RandomBatch(kImages, 1, std::vector<std::int64_t>(count)); }

TEST(PluginNetwork, ComputesWhatTheSameLayersCompute) {
  const std::unique_ptr<Model> own = Create(Options("Net"));
  ModelOptions options = Options("");
  options.model.plugin_path.clear();
  options.model.layers = kLayers;
  const std::unique_ptr<Model> layers = Create(options);
  ASSERT_EQ(NamesOf(*own), NamesOf(*layers));
  EXPECT_EQ(own->tensors().back().kind, TensorKind::kBuffer);
  EXPECT_THAT(own->description(), HasSubstr("contiguous"));
  for (std::size_t i = 0; i < own->tensors().size(); ++i) layers->SetParameter(i, ValueOf(*own, i));
  for (const std::size_t samples : {8, 3}) {
    const Step expected = Compute(*layers, Samples(samples)), found = Compute(*own, Samples(samples));
    ExpectSame(found, expected, 1e-5F);
  }
  EXPECT_NEAR(own->Evaluate(Samples(8))->loss.sum, layers->Evaluate(Samples(8))->loss.sum, 1e-5);
}

TEST(PluginNetwork, ItsInitialValuesAreAFunctionOfTheSeed) {
  ModelOptions options = Options("Net");
  const std::vector<float> first = ValueOf(*Create(options), 0);
  EXPECT_EQ(ValueOf(*Create(options), 0), first);
  options.seed = 2;
  EXPECT_NE(ValueOf(*Create(options), 0), first);
}

TEST(PluginNetwork, AnUpdateThatIsDoneAgainHasTheSameBits) {
  const std::unique_ptr<Model> model = Create(Options("Net", R"({"rate": 0.5})"));
  const Step first = Compute(*model, Samples(8), 42);
  EXPECT_NE(Compute(*model, Samples(8), 43).gradients, first.gradients);
  ASSERT_TRUE(model->Evaluate(Samples(8)).ok());
  EXPECT_EQ(Compute(*model, Samples(8), 42).gradients, first.gradients);
  EXPECT_EQ(Compute(*Create(Options("Net", R"({"rate": 0.5})")), Samples(8), 42).gradients, first.gradients);
}

TEST(PluginNetwork, FrozenParametersAndCountersAreNotShared) {
  ModelOptions options = Options("Net");
  options.model.frozen = {"conv.*"};
  const std::unique_ptr<Model> model = Create(options);
  EXPECT_THAT(NamesOf(*model), ElementsAre("norm.weight", "norm.bias", "dense.weight", "dense.bias",
                                           "norm.running_mean", "norm.running_var"));
  Compute(*model, Samples(8));
  const std::vector<Model::Frozen> frozen = model->frozen();
  ASSERT_EQ(frozen.size(), 3U);
  EXPECT_EQ(frozen[0].values, ValueOf(*Create(Options("Net")), 0));
  EXPECT_EQ(frozen[2].tensor.name, "norm.num_batches_tracked");
  EXPECT_EQ(frozen[2].values, std::vector<float>{0});
}

TEST(PluginNetwork, IsGivenWordsAndLengths) {
  const std::unique_ptr<Model> model = Create(Options("Words", "", kTexts));
  EXPECT_THAT(NamesOf(*model), ElementsAre("embedding.weight"));
  // What comes behind the end of a text has no part.
  data::Batch batch = RandomBatch(kTexts, 1, {5, 2});
  const Step step = Compute(*model, batch);
  batch.inputs[0].mutable_values<std::int32_t>()[8] = 7;
  EXPECT_EQ(Compute(*model, batch).gradients, step.gradients);
}

TEST(PluginNetwork, ItsLossesAndMetricsServeAnyNetwork) {
  ModelOptions layers = Options("");
  layers.model.layers = kLayers;
  for (ModelOptions options : {layers, Options("Net")}) {
    const std::unique_ptr<Model> usual = Create(options);
    const Step expected = Compute(*usual, Samples(5));
    const EvaluationResult measured = *usual->Evaluate(Samples(5));
    for (const char* loss : {"OwnCrossEntropy", "OwnCrossEntropyAsSum"}) {
      options.model.objective.loss = loss;
      options.model.objective.metrics = {"Top5Accuracy", "OwnAccuracy"};
      const std::unique_ptr<Model> own = Create(options);
      const Step found = Compute(*own, Samples(5));
      ExpectSame(found, expected, 1e-6F);
      const EvaluationResult result = *own->Evaluate(Samples(5));
      EXPECT_EQ(result.loss.name, loss);
      EXPECT_EQ(result.loss.count, 5);
      EXPECT_NEAR(result.loss.sum, measured.loss.sum, 1e-5);
      EXPECT_EQ(result.metrics.at(0).name, "Top5Accuracy");
      EXPECT_EQ(result.metrics.at(1).name, "OwnAccuracy");
      EXPECT_EQ(result.metrics.at(1).sum, measured.metrics.at(0).sum);
      EXPECT_EQ(result.metrics.at(1).count, 5);
    }
  }
  ModelOptions options = layers;
  options.model.objective.loss = "OneForTheBatch";
  EXPECT_EQ(
      Refusal(options),
      "spec.model.loss.type: OneForTheBatch threw, given two outputs of [3] and two of label: i64 [] below 3: got "
      "one value for the batch, expected one a sample, or {sum, count} of them");
  options.model.objective.loss = "";
  options.model.objective.metrics = {"Nothing"};  // which there may be to count
  EXPECT_EQ(Create(options)->Evaluate(Samples(5))->metrics.at(0).count, 0);
}

TEST(PluginNetwork, RefusesLibrariesThatAreNone) {
  const auto refusal = [](const std::string& path) { return LoadPlugin(path).status(); };
  EXPECT_EQ(refusal("/nowhere/net.so"), absl::NotFoundError("spec.model.plugin.path: no file /nowhere/net.so"));
  EXPECT_EQ(refusal("libc.so.6").code(), absl::StatusCode::kNotFound) << "is not looked for elsewhere";
  const std::string text = ::testing::TempDir() + "text.so";
  std::ofstream(text) << "no library\n";
  EXPECT_THAT(std::string(refusal(text).message()),
              AllOf(HasSubstr("spec.model.plugin.path: " + text + " cannot be loaded: "), HasSubstr("file too short")));
  std::filesystem::remove(text);
  EXPECT_EQ(refusal(Path("no_plugin")).message(),
            "spec.model.plugin.path: " + Path("no_plugin") +
                " is no Downpour plug-in: it has no symbol downpour_plugin, which DOWNPOUR_MODEL and its like make");
  EXPECT_EQ(refusal(Path("other_contract_plugin")).message(),
            "spec.model.plugin.path: " + Path("other_contract_plugin") +
                " is built for plug-in contract 1000, expected plug-in contract 1: build it again with the package of "
                "this Downpour");
  EXPECT_EQ(refusal(Path("other_torch_plugin")).message(), "spec.model.plugin.path: " + Path("other_torch_plugin") +
                                                               " is built for LibTorch 1.13.1, expected LibTorch " +
                                                               TORCH_VERSION +
                                                               ": build it again with the package of this Downpour");
}

TEST(PluginNetwork, RefusesNamesAndParametersByPath) {
  EXPECT_EQ(CreateModel(Options("Met")).status(),
            absl::NotFoundError("spec.model.plugin.name: " + Path("test_plugin") +
                                " has no network \"Met\"; it has Net, Words, Pair, Tied, Doubles, ThrowsInConstructor, "
                                "ThrowsInForward, ThrowsInTraining, RunsOutOfMemory, Crashes"));
  const auto of_net = [](const char* parameters) { return Refusal(Options("Net", parameters)); };
  EXPECT_EQ(of_net("7"), "spec.model.plugin.parameters: expected a map");
  EXPECT_EQ(of_net(R"({"filters": 0})"), "spec.model.plugin.parameters.filters: expected at least 1, got 0");
  EXPECT_EQ(of_net(R"({"filters": 1.5})"), "spec.model.plugin.parameters.filters: expected an integer, got 1.500000");
  EXPECT_EQ(of_net(R"({"rate": "high"})"), "spec.model.plugin.parameters.rate: expected a number, got \"high\"");
  EXPECT_EQ(of_net(R"({"filtres": 2})"),
            "spec.model.plugin.parameters.filtres: Net has no such parameter; it has filters, rate");
  EXPECT_EQ(of_net(R"({"filters": null})"),
            "spec.model.plugin.parameters.filters: expected true or false, a number, a text or a list of numbers, got "
            "null");
  ModelOptions pair = Options("Pair", R"({"shape": [1, 2], "scales": [1, 0.5], "flag": true, "text": "x"})");
  pair.fields.targets[0].classes = 2;
  EXPECT_EQ(Refusal(pair), "");
  pair.model.plugin_parameters = R"({"shape": [1, 0.5]})";
  EXPECT_EQ(Refusal(pair), "spec.model.plugin.parameters.shape: expected a list of integers, got a list");
  EXPECT_EQ(Refusal(Options("Words", R"({"size": 2})", kTexts)),
            "spec.model.plugin.parameters.size: Words has no such parameter; it has none");
}

TEST(PluginNetwork, RefusesWhatDoesNotFit) {
  EXPECT_EQ(Refusal(Options("Pair")),
            "spec.model.loss: CrossEntropy needs one output for each class of an integer label; the network makes [2] "
            "and the target of the data set is label: i64 [] below 3; the network is given image: fp32 [2, 6, 6]");
  EXPECT_EQ(Refusal(Options("ThrowsInConstructor")),
            "spec.model.plugin.name: the constructor of ThrowsInConstructor threw: no such weather");
  EXPECT_THAT(Refusal(Options("ThrowsInForward")),
              AllOf(HasSubstr("spec.model.plugin.name: ThrowsInForward threw, given two samples of image: fp32 [2, 6, "
                              "6]: "),
                    HasSubstr("size")));
  EXPECT_EQ(Refusal(Options("Tied")),
            "spec.model.plugin.name: Tied: the parameter b has the memory of a: tied weights cannot be trained");
  EXPECT_EQ(Refusal(Options("Doubles")), "spec.model.plugin.name: Doubles: the parameter a is Double, expected Float");
}

TEST(PluginNetwork, WhatItThrowsInTrainingIsAnError) {
  ModelOptions options = Options("ThrowsInTraining");
  options.fields.targets[0].classes = 2;
  const std::unique_ptr<Model> model = Create(options);
  data::Batch batch = Samples(2);
  for (std::int64_t& label : batch.targets[0].mutable_values<std::int64_t>()) label = 0;
  EXPECT_EQ(model->ComputeGradients(batch, 1, nullptr, nullptr).status(),
            absl::InternalError("spec.model.plugin.name: ThrowsInTraining: what is no std::exception"));
  EXPECT_TRUE(model->Evaluate(batch).ok());
}

TEST(PluginNetwork, ADeviceWithoutMemoryIsToldWithTheSizes) {
  ModelOptions options = Options("RunsOutOfMemory");
  options.fields.targets[0].classes = 2;
  const std::unique_ptr<Model> model = Create(options);
  data::Batch batch = Samples(2);
  for (std::int64_t& label : batch.targets[0].mutable_values<std::int64_t>()) label = 0;
  EXPECT_EQ(model->ComputeGradients(batch, 1, nullptr, nullptr).status(),
            absl::ResourceExhaustedError(
                "spec.model.plugin.name: RunsOutOfMemory: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a "
                "total capacity of 139.81 GiB of which 1.12 GiB is free. A smaller training.batchSize needs less, and "
                "so does dataset.onDevice: Never"));
}

TEST(PluginNetwork, TwoLibrariesOfOneProcessDoNotMix) {
  const auto first = LoadPlugin(Path("test_plugin")), second = LoadPlugin(Path("second_plugin"));
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  EXPECT_EQ((*first)->models.size(), 10U);
  EXPECT_EQ((*second)->models.size(), 1U);
  EXPECT_TRUE((*second)->losses.empty());
  EXPECT_EQ(*LoadPlugin(Path("second_plugin")), *second);
  ModelOptions options = Options("Net");
  options.model.plugin_path = Path("second_plugin");
  EXPECT_THAT(NamesOf(*Create(options)), ElementsAre("values"));
  EXPECT_EQ(NamesOf(*Create(Options("Net"))).size(), 8U);
}

}  // namespace
}  // namespace downpour::model
