#include "trainer/model/zoo/layer_json.h"
#include "trainer/model/zoo/networks.h"

namespace downpour::model::zoo {
namespace {

// Parameters, of 784 pixels and ten classes: 784*128+128 + 1,290 = 101,770.
Json Layers(const Sizes& sizes, const data::SampleFields& fields) {
  Json layers =
      Json::array({Layer("flatten"), Layer("dense", {{"name", "fc1"}, {"units", sizes.at("hidden")}}), Layer("relu")});
  Append(layers, OutputLayers(fields, "fc2"));
  return layers;
}

}  // namespace

ZooNetwork Mlp() { return {"MLP", {{"hidden", 128, 1, 65536, "units of the hidden layer"}}, "CrossEntropy", Layers}; }

}  // namespace downpour::model::zoo
