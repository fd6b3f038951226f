#include "trainer/model/zoo/layer_json.h"
#include "trainer/model/zoo/networks.h"

namespace downpour::model::zoo {
namespace {

// The vision model of Dean et al., "Large Scale Distributed Deep Networks" (2012), after Le et al. (2012): three stages
// of local filters, L2 pooling and local contrast normalisation. The filters are linear: the pooling is the
// nonlinearity.
// Parameters, of 3 x 100 x 100 and 1,000 classes: 91*91 * (8*300+8) = 19,940,648; pooled to 45 x 45,
// 36*36 * (8*800+8) = 8,304,768; pooled to 18 x 18, 9*9 * 6,408 = 519,048; pooled to 4 x 4, 128*1000+1000 = 129,000:
// 28,893,464.
Json Layers(const Sizes& sizes, const data::SampleFields& fields) {
  Json layers = Json::array();
  for (int i = 1; i <= 3; ++i) {
    layers.push_back(Layer(
        "locallyConnected2d",
        {{"name", "local" + std::to_string(i)}, {"filters", sizes.at("filters")}, {"kernel", sizes.at("kernel")}}));
    layers.push_back(Layer("l2Pool2d", {{"size", sizes.at("pool")}}));
    layers.push_back(Layer("localContrastNorm", {{"kernel", 5}}));
  }
  layers.push_back(Layer("flatten"));
  Append(layers, OutputLayers(fields));
  return layers;
}

}  // namespace

ZooNetwork LocallyConnected() {
  return {"LocallyConnected",
          {{"filters", 8, 1, 256, "filters at each position"},
           {"kernel", 10, 1, 64, "extent of a filter"},
           {"pool", 2, 1, 16, "extent and stride of the pooling"}},
          "CrossEntropy",
          Layers};
}

}  // namespace downpour::model::zoo
