#include "trainer/model/zoo/layer_json.h"
#include "trainer/model/zoo/networks.h"

namespace downpour::model::zoo {
namespace {

// LeNet of "Dive into Deep Learning", section 12.5.
// Parameters, of 1 x 28 x 28 and ten classes: 200 + 25,050 + 800*128+128 + 1,290 = 129,068.
Json Layers(const Sizes& /*sizes*/, const data::SampleFields& fields) {
  Json layers = Json::array({Layer("conv2d", {{"name", "conv1"}, {"filters", 20}, {"kernel", 3}}), Layer("relu"),
                             Layer("avgPool2d", {{"size", 2}}),
                             Layer("conv2d", {{"name", "conv2"}, {"filters", 50}, {"kernel", 5}}), Layer("relu"),
                             Layer("avgPool2d", {{"size", 2}}), Layer("flatten"),
                             Layer("dense", {{"name", "fc1"}, {"units", 128}}), Layer("relu")});
  Append(layers, OutputLayers(fields, "fc2"));
  return layers;
}

}  // namespace

ZooNetwork LeNet() { return {"LeNet", {}, "CrossEntropy", Layers}; }

}  // namespace downpour::model::zoo
