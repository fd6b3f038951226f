#include "trainer/model/zoo/layer_json.h"
#include "trainer/model/zoo/networks.h"

namespace downpour::model::zoo {
namespace {

// The usual first network for CIFAR-10: 3 x 32 x 32 -> 32 x 15 x 15 -> 64 x 6 x 6 -> 64 x 4 x 4.
// Parameters, of ten classes: 896 + 18,496 + 36,928 + 1024*64+64 + 650 = 122,570.
Json Layers(const Sizes& sizes, const data::SampleFields& fields) {
  const std::int64_t filters = sizes.at("filters");
  Json layers = Json::array(
      {Layer("conv2d", {{"name", "conv1"}, {"filters", filters}, {"kernel", 3}}), Layer("relu"),
       Layer("maxPool2d", {{"size", 2}}), Layer("conv2d", {{"name", "conv2"}, {"filters", 2 * filters}, {"kernel", 3}}),
       Layer("relu"), Layer("maxPool2d", {{"size", 2}}),
       Layer("conv2d", {{"name", "conv3"}, {"filters", 2 * filters}, {"kernel", 3}}), Layer("relu"), Layer("flatten"),
       Layer("dense", {{"name", "fc1"}, {"units", sizes.at("hidden")}}), Layer("relu")});
  Append(layers, OutputLayers(fields, "fc2"));
  return layers;
}

}  // namespace

ZooNetwork CifarCnn() {
  return {"CifarCNN",
          {{"filters", 32, 1, 1024, "filters of the first convolution; the others have twice as many"},
           {"hidden", 64, 1, 65536, "units of the hidden dense layer"}},
          "CrossEntropy",
          Layers};
}

}  // namespace downpour::model::zoo
