#include "trainer/model/layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace downpour::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

const data::Field kImage{"image", data::ElementType::kU8, {3, 32, 32}};
const data::Field kWords{"words", data::ElementType::kI32, {data::kRagged}, 10000};
const data::Field kFrames{"frames", data::ElementType::kF32, {11, 40}};

absl::StatusOr<LayerPlan> Plan(const std::string& layers, const data::Field& input = kImage) {
  return PlanLayers(Json::parse(layers), input, "spec.model.layers");
}

std::string Refusal(const std::string& layers, const data::Field& input = kImage) {
  const absl::StatusOr<LayerPlan> plan = Plan(layers, input);
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument) << layers;
  return std::string(plan.status().message());
}

// Of a list without its outer brackets: what it makes of a sample, and how many parameters it has.
using Made = std::pair<std::vector<std::int64_t>, std::int64_t>;
Made Make(const std::string& layers, const data::Field& input = kImage) {
  const absl::StatusOr<LayerPlan> plan = Plan("[" + layers + "]", input);
  EXPECT_TRUE(plan.ok()) << layers << ": " << plan.status();
  return plan.ok() ? Made{plan->output.shape, plan->parameters} : Made{};
}

TEST(Layers, ShapesAndParametersOfEachType) {
  const std::string flat = R"({"type": "flatten"}, )";
  const std::string words = R"({"type": "embedding", "size": 8}, )";
  constexpr std::int64_t kEmbedding = 80000;
  EXPECT_EQ(Make(flat + R"({"type": "dense", "units": 7})"), Made({7}, 3072 * 7 + 7));
  EXPECT_EQ(Make(R"({"type": "dense", "units": 7})", kFrames), Made({11, 7}, 287));
  EXPECT_EQ(Make(R"({"type": "conv1d", "filters": 5, "kernel": 3})", kFrames), Made({5, 38}, 5 * 11 * 3 + 5));
  EXPECT_EQ(Make(R"({"type": "conv2d", "filters": 4, "kernel": 5})"), Made({4, 28, 28}, 304));
  EXPECT_EQ(Make(R"({"type": "conv2d", "filters": 4, "kernel": 5, "stride": 2, "padding": 2, "bias": false})"),
            Made({4, 16, 16}, 300));
  EXPECT_EQ(Make(R"({"type": "conv2d", "filters": 4, "kernel": 4, "padding": "same"})"), Made({4, 32, 32}, 196));
  EXPECT_EQ(Make(R"({"type": "convTranspose2d", "filters": 4, "kernel": 2, "stride": 2})"), Made({4, 64, 64}, 52));
  EXPECT_EQ(Make(R"({"type": "locallyConnected2d", "filters": 2, "kernel": 31})"),
            Made({2, 2, 2}, 4 * 2 * 3 * 31 * 31 + 8));
  EXPECT_EQ(Make(R"({"type": "maxPool1d", "size": 3, "stride": 2})", kFrames), Made({11, 19}, 0));
  EXPECT_EQ(Make(R"({"type": "maxPool2d", "size": 3, "stride": 2, "padding": 1})"), Made({3, 16, 16}, 0));
  EXPECT_EQ(Make(R"({"type": "avgPool2d", "size": 5})"), Made({3, 6, 6}, 0));
  EXPECT_EQ(Make(R"({"type": "l2Pool2d", "size": 2})"), Made({3, 16, 16}, 0));
  EXPECT_EQ(Make(R"({"type": "globalAvgPool2d"})"), Made({3}, 0));
  EXPECT_EQ(Make(R"({"type": "localContrastNorm"})"), Made({3, 32, 32}, 0));
  EXPECT_EQ(Make(R"({"type": "upsample2d", "scale": 3})"), Made({3, 96, 96}, 0));
  EXPECT_EQ(Make(R"({"type": "batchNorm"})"), Made({3, 32, 32}, 6));
  EXPECT_EQ(Make(R"({"type": "layerNorm"})", kFrames), Made({11, 40}, 80));
  EXPECT_EQ(Make(R"({"type": "dropout", "rate": 0.5})"), Made({3, 32, 32}, 0));
  EXPECT_EQ(Make(R"({"type": "reshape", "shape": [1024, 3]})"), Made({1024, 3}, 0));
  for (const std::string type : {"relu", "leakyRelu", "elu", "tanh", "sigmoid", "gelu"}) {
    EXPECT_EQ(Make(R"({"type": ")" + type + R"("})"), Made({3, 32, 32}, 0));
  }
  EXPECT_EQ(Make(R"({"type": "embedding", "size": 8})", kWords), Made({data::kRagged, 8}, kEmbedding));
  EXPECT_EQ(Make(words + R"({"type": "positionalEncoding"})", kWords), Made({data::kRagged, 8}, kEmbedding));
  EXPECT_EQ(Make(words + R"({"type": "lstm", "units": 6})", kWords), Made({6}, kEmbedding + 4 * 6 * (8 + 6 + 2)));
  EXPECT_EQ(Make(words + R"({"type": "gru", "units": 6, "bidirectional": true, "output": "sequence"})", kWords),
            Made({data::kRagged, 12}, kEmbedding + 2 * 3 * 6 * 16));
  EXPECT_EQ(Make(words + R"({"type": "attention", "heads": 2})", kWords),
            Made({data::kRagged, 8}, kEmbedding + 4 * 64 + 32));
  EXPECT_EQ(Make(words + R"({"type": "sequenceMean"})", kWords), Made({8}, kEmbedding));
  EXPECT_EQ(Make(R"({"type": "residual", "layers": [{"type": "conv2d", "filters": 3, "kernel": 3, "padding": 1}]})"),
            Made({3, 32, 32}, 84));
  EXPECT_EQ(Make(R"({"type": "residual", "layers": [{"type": "conv2d", "filters": 5, "kernel": 3, "stride": 2,
                     "padding": 1}], "shortcut": [{"type": "conv2d", "filters": 5, "kernel": 1, "stride": 2}]})"),
            Made({5, 16, 16}, 140 + 20));
  EXPECT_EQ(Make(R"({"type": "concatenate", "layers": [{"type": "conv2d", "filters": 5, "kernel": 1}]})"),
            Made({8, 32, 32}, 20));
}

// "Hands-On Machine Learning", chapter 14, and Keras' count of it.
TEST(Layers, AConvolutionalNetworkHasTheParametersOfItsBook) {
  const std::string layers = R"([
    {"type": "conv2d", "filters": 32, "kernel": 3}, {"type": "relu"}, {"type": "maxPool2d", "size": 2},
    {"type": "conv2d", "filters": 64, "kernel": 3}, {"type": "relu"}, {"type": "maxPool2d", "size": 2},
    {"type": "conv2d", "filters": 64, "kernel": 3}, {"type": "relu"}, {"type": "flatten"},
    {"type": "dense", "units": 64}, {"type": "relu"}, {"type": "dense", "units": 10}])";
  const absl::StatusOr<LayerPlan> plan = Plan(layers);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->parameters, 122570);
  std::vector<std::string> names;
  for (const Layer& layer : plan->layers) names.push_back(layer.name);
  EXPECT_THAT(names, ElementsAre("conv2d1", "relu1", "maxPool2d1", "conv2d2", "relu2", "maxPool2d2", "conv2d3", "relu3",
                                 "flatten1", "dense1", "relu4", "dense2"));
}

TEST(Layers, ANameOfTheManifestIsNotGivenTwice) {
  const absl::StatusOr<LayerPlan> plan =
      Plan(R"([{"type": "relu"}, {"type": "relu", "name": "relu1"}, {"type": "relu"}])");
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->layers[0].name, "relu2");
  EXPECT_EQ(plan->layers[1].name, "relu1");
  EXPECT_EQ(plan->layers[2].name, "relu3");
}

TEST(Layers, WhatDoesNotFitIsNamedWithBothSides) {
  EXPECT_EQ(Refusal(R"([{"type": "flatten"}, {"type": "conv2d", "name": "late", "filters": 4, "kernel": 3}])"),
            "spec.model.layers[1] (conv2d late): gets [3072], needs [channels, height, width], no smaller than the "
            "kernel with its padding");
  EXPECT_EQ(Refusal(R"([{"type": "residual", "layers": [{"type": "conv2d", "filters": 4, "kernel": 3}]}])"),
            "spec.model.layers[0] (residual residual1): gets [3, 32, 32], its layers end in [4, 30, 30], needs layers "
            "that end in the shape of the shortcut");
  EXPECT_EQ(Refusal(R"([{"type": "embedding", "size": 8}, {"type": "flatten"}])", kWords),
            "spec.model.layers[1] (flatten flatten1): gets [*, 8], needs floats without a ragged dimension");
  EXPECT_EQ(Refusal(R"([{"type": "dense", "units": 3}])", kWords),
            "spec.model.layers[0] (dense dense1): gets integers [*], needs at least one dimension, and none ragged but "
            "the first of a sequence");
}

TEST(Layers, BrokenListsAreRefusedByPath) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{}", "spec.model.layers: expected a list of at least one layer, got {}"},
      {"[]", "spec.model.layers: expected a list of at least one layer, got []"},
      {"[1]", "spec.model.layers[0]: expected a map with a type, such as {type: relu}, got 1"},
      {R"([{"units": 3}])", "spec.model.layers[0]: expected a map with a type"},
      {R"([{"type": 5}])", "spec.model.layers[0]: expected a map with a type"},
      {R"([{"type": "dens"}])", R"(spec.model.layers[0].type: no layer "dens"; known: dense, conv1d,)"},
      {R"([{"type": "flatten"}, {"type": "dense"}])", "spec.model.layers[1].units: is required by dense"},
      {R"([{"type": "dense", "units": 0}])",
       "spec.model.layers[0].units: expected an integer from 1 to 2147483648, got 0"},
      {R"([{"type": "dense", "units": -1}])", ".units: expected an integer"},
      {R"([{"type": "dense", "units": 2.5}])", ".units: expected an integer"},
      {R"([{"type": "dense", "units": "8"}])", R"(.units: expected an integer from 1 to 2147483648, got "8")"},
      {R"([{"type": "dense", "units": 1e300}])", ".units: expected an integer"},
      {R"([{"type": "relu", "units": 3}])", "spec.model.layers[0].units: relu has no such field; known: name"},
      {R"([{"type": "conv2d", "filter": 3}])",
       "spec.model.layers[0].filter: conv2d has no such field; known: name, filters, kernel, stride, padding, bias"},
      {R"([{"type": "conv2d", "filters": 3, "kernel": 0}])", ".kernel: expected an integer from 1"},
      {R"([{"type": "conv2d", "filters": 3, "kernel": 33}])", "(conv2d conv2d1): gets [3, 32, 32]"},
      {R"([{"type": "conv2d", "filters": 3, "kernel": 3, "padding": "valid"}])",
       R"(.padding: expected an integer from 0 to 2147483648, or same, got "valid")"},
      {R"([{"type": "conv2d", "filters": 3, "kernel": 3, "padding": -1}])", ".padding: expected an integer from 0"},
      {R"([{"type": "conv2d", "filters": 3, "kernel": 3, "stride": 2, "padding": "same"}])", "(conv2d conv2d1): gets"},
      {R"([{"type": "conv2d", "filters": 3, "kernel": 3, "bias": 1}])", ".bias: expected true or false, got 1"},
      {R"([{"type": "maxPool2d", "size": 2, "padding": 2}])", "(maxPool2d maxPool2d1): gets"},
      {R"([{"type": "maxPool2d", "size": 64}])", "(maxPool2d maxPool2d1): gets [3, 32, 32]"},
      {R"([{"type": "localContrastNorm", "kernel": 4}])", "an odd kernel"},
      {R"([{"type": "dropout"}])", ".rate: is required by dropout"},
      {R"([{"type": "dropout", "rate": 1}])", ".rate: expected a number from 0 to 0.999, got 1"},
      {R"([{"type": "dropout", "rate": "x"}])", ".rate: expected a number"},
      {R"([{"type": "reshape", "shape": [7]}])", "(reshape reshape1): gets [3, 32, 32], needs as many values"},
      {R"([{"type": "reshape", "shape": [0]}])", ".shape: expected a list of 1 to 8 positive integers, got [0]"},
      {R"([{"type": "reshape", "shape": []}])", ".shape: expected a list"},
      {R"([{"type": "reshape", "shape": 5}])", ".shape: expected a list"},
      {R"([{"type": "embedding", "size": 4}])", "(embedding embedding1): gets [3, 32, 32], needs a list of integers"},
      {R"([{"type": "lstm", "units": 4}])", "(lstm lstm1): gets [3, 32, 32], needs a sequence"},
      {R"([{"type": "attention", "heads": 4}])", "(attention attention1): gets [3, 32, 32]"},
      {R"([{"type": "relu", "name": "a.b"}])", R"([0].name: expected 1 to 63 letters, digits and _, got "a.b")"},
      {R"([{"type": "relu", "name": ""}])", ".name: expected 1 to 63 letters"},
      {R"([{"type": "relu", "name": 4}])", ".name: expected 1 to 63 letters"},
      {R"([{"type": "relu", "name": "a"}, {"type": "tanh", "name": "a"}])",
       R"(spec.model.layers[1].name: "a" is taken by a layer before)"},
      {R"([{"type": "residual", "layers": []}])", "spec.model.layers[0].layers: expected a list of at least one layer"},
      {R"([{"type": "residual"}])", "spec.model.layers[0].layers: is required by residual"},
      {R"([{"type": "residual", "layers": [{"type": "dense"}]}])", "layers[0].layers[0].units: is required"},
      {R"([{"type": "concatenate", "layers": [{"type": "flatten"}]}])",
       "its layers end in [3072], needs layers that end in the shape of what comes in"},
      {R"([{"type": "flatten"}, {"type": "dense", "units": 1000000000}])",
       "spec.model.layers[1] (dense dense1): with it the model has 3073000000000 parameters, expected at most"},
      {R"([{"type": "upsample2d", "scale": 2000000000}])", "of a sample, expected at most"},
      {R"([{"type": "upsample2d", "scale": 2147483648}, {"type": "upsample2d", "scale": 2147483648}])",
       "expected at most"},
  };
  EXPECT_GE(cases.size(), 40U);
  for (const auto& [layers, message] : cases) EXPECT_THAT(Refusal(layers), HasSubstr(message)) << layers;
  EXPECT_THAT(Refusal(R"([{"type": "embedding", "size": 4, "vocabulary": 10}])", kWords), HasSubstr("its vocabulary"));
  EXPECT_THAT(Refusal(R"([{"type": "embedding", "size": 6}, {"type": "attention", "heads": 4}])", kWords),
              HasSubstr("features a multiple of heads"));
}

TEST(Layers, ListsInListsEnd) {
  std::string inner = R"({"type": "relu"})";
  for (int depth = 0; depth < 40; ++depth) inner = R"({"type": "residual", "layers": [)" + inner + "]}";
  EXPECT_THAT(Refusal("[" + inner + "]"), HasSubstr("more than 32 lists inside each other"));
}

}  // namespace
}  // namespace downpour::model
