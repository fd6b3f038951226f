#include "trainer/model/zoo/layer_json.h"
#include "trainer/model/zoo/networks.h"

namespace downpour::model::zoo {
namespace {

// The encoder of Vaswani et al., "Attention Is All You Need" (2017), normalised before each part as by Xiong et al.
// (2020), and the mean over the words.
// Parameters, of 10,000 words and four classes: embedding 1,280,000; each of two blocks 256 + 66,048 (attention) + 256
// + 66,048 + 65,664 = 198,272; norm 256; dense 516: 1,677,316.
Json Layers(const Sizes& sizes, const data::SampleFields& fields) {
  const std::int64_t width = sizes.at("width");
  Json layers =
      Json::array({Layer("embedding", {{"name", "embedding"}, {"size", width}}), Layer("positionalEncoding")});
  for (std::int64_t i = 1; i <= sizes.at("blocks"); ++i) {
    const std::string name = "block" + std::to_string(i);
    const Json attention =
        Json::array({Layer("layerNorm", {{"name", name + "_norm1"}}),
                     Layer("attention", {{"name", name + "_attention"}, {"heads", sizes.at("heads")}})});
    const Json dense = Json::array({Layer("layerNorm", {{"name", name + "_norm2"}}),
                                    Layer("dense", {{"name", name + "_fc1"}, {"units", 4 * width}}), Layer("gelu"),
                                    Layer("dense", {{"name", name + "_fc2"}, {"units", width}})});
    layers.push_back(Layer("residual", {{"layers", attention}}));
    layers.push_back(Layer("residual", {{"layers", dense}}));
  }
  layers.push_back(Layer("layerNorm", {{"name", "norm"}}));
  layers.push_back(Layer("sequenceMean"));
  Append(layers, OutputLayers(fields));
  return layers;
}

}  // namespace

ZooNetwork TextTransformer() {
  return {"TextTransformer",
          {{"width", 128, 1, 8192, "values of a word's vector; a multiple of heads"},
           {"heads", 4, 1, 128, "of each attention"},
           {"blocks", 2, 1, 64, "of attention and dense layers"}},
          "CrossEntropy",
          Layers};
}

}  // namespace downpour::model::zoo
