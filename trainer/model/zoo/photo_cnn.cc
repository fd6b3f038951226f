#include "trainer/model/zoo/layer_json.h"
#include "trainer/model/zoo/networks.h"

namespace downpour::model::zoo {
namespace {

// No padding: 3 x 150 x 150 -> 32 x 74 x 74 -> 64 x 36 x 36 -> 128 x 17 x 17.
// Parameters, of five classes: 896 + 18,496 + 73,856 + 36992*256+256 + 1,285 = 9,564,741.
Json Layers(const Sizes& sizes, const data::SampleFields& fields) {
  Json layers = Json::array();
  for (std::int64_t i = 1; i <= 3; ++i) {
    const std::int64_t filters = sizes.at("filters") << (i - 1);
    layers.push_back(Layer("conv2d", {{"name", "conv" + std::to_string(i)}, {"filters", filters}, {"kernel", 3}}));
    layers.push_back(Layer("relu"));
    layers.push_back(Layer("maxPool2d", {{"size", 2}}));
  }
  layers.push_back(Layer("flatten"));
  layers.push_back(Layer("dense", {{"name", "fc1"}, {"units", sizes.at("hidden")}}));
  layers.push_back(Layer("relu"));
  Append(layers, OutputLayers(fields, "fc2"));
  return layers;
}

}  // namespace

ZooNetwork PhotoCnn() {
  return {"PhotoCNN",
          {{"filters", 32, 1, 1024, "filters of the first convolution, doubled by each of the other two"},
           {"hidden", 256, 1, 65536, "units of the hidden dense layer"}},
          "CrossEntropy",
          Layers};
}

}  // namespace downpour::model::zoo
