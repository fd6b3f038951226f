#include "trainer/model/zoo/layer_json.h"
#include "trainer/model/zoo/networks.h"

namespace downpour::model::zoo {
namespace {

// The acoustic model of Dean et al., "Large Scale Distributed Deep Networks" (2012): 11 frames of 40 values, four
// layers of 2,560 logistic units, 8,192 states of a hidden Markov model. Parameters: 440*2560+2560 + 3*(2560*2560+2560)
// + 2560*8192+8192 = 41,777,152.
Json Layers(const Sizes& sizes, const data::SampleFields& fields) {
  Json layers = Json::array({Layer("flatten")});
  for (std::int64_t i = 1; i <= sizes.at("layers"); ++i) {
    layers.push_back(Layer("dense", {{"name", "hidden" + std::to_string(i)}, {"units", sizes.at("hidden")}}));
    layers.push_back(Layer("sigmoid"));
  }
  Append(layers, OutputLayers(fields));
  return layers;
}

}  // namespace

ZooNetwork Acoustic() {
  return {"Acoustic",
          {{"hidden", 2560, 1, 65536, "units of a hidden layer"}, {"layers", 4, 1, 32, "hidden layers"}},
          "CrossEntropy",
          Layers};
}

}  // namespace downpour::model::zoo
