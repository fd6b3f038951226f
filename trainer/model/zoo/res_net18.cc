#include "trainer/model/zoo/layer_json.h"
#include "trainer/model/zoo/networks.h"

namespace downpour::model::zoo {
namespace {

Json Convolution(const std::string& name, std::int64_t filters, std::int64_t kernel, std::int64_t stride) {
  return Json::array({Layer("conv2d", {{"name", name},
                                       {"filters", filters},
                                       {"kernel", kernel},
                                       {"stride", stride},
                                       {"padding", kernel / 2},
                                       {"bias", false}}),
                      Layer("batchNorm", {{"name", name + "_norm"}})});
}

void AddBlock(Json& layers, const std::string& name, std::int64_t filters, bool halve) {
  const std::int64_t stride = halve ? 2 : 1;
  Json body = Convolution(name + "_conv1", filters, 3, stride);
  body.push_back(Layer("relu"));
  Append(body, Convolution(name + "_conv2", filters, 3, 1));
  Json block = Layer("residual", {{"name", name}, {"layers", body}});
  if (halve) block["shortcut"] = Convolution(name + "_shortcut", filters, 1, stride);
  layers.push_back(block);
  layers.push_back(Layer("relu"));
}

// ResNet-18 of He et al., "Deep Residual Learning for Image Recognition" (2016), as torchvision has it.
// Parameters, of 3 x 224 x 224 and 1,000 classes: stem 9,408 + 128; stages of two blocks 147,968 + 525,568 + 2,099,712
// + 8,393,728; dense 513,000: 11,689,512.
Json Layers(const Sizes& sizes, const data::SampleFields& fields) {
  const std::int64_t base = sizes.at("base");
  Json layers = Convolution("conv1", base, 7, 2);
  layers.push_back(Layer("relu"));
  layers.push_back(Layer("maxPool2d", {{"size", 3}, {"stride", 2}, {"padding", 1}}));
  for (int stage = 1; stage <= 4; ++stage) {
    const std::int64_t filters = base << (stage - 1);
    const std::string name = "stage" + std::to_string(stage);
    // The first block of a later stage halves the extents and doubles the channels.
    AddBlock(layers, name + "_block1", filters, stage > 1);
    AddBlock(layers, name + "_block2", filters, false);
  }
  layers.push_back(Layer("globalAvgPool2d"));
  Append(layers, OutputLayers(fields, "fc"));
  return layers;
}

}  // namespace

ZooNetwork ResNet18() {
  return {"ResNet18",
          {{"base", 64, 1, 1024, "channels of the first stage, doubled by each of the other three"}},
          "CrossEntropy",
          Layers};
}

}  // namespace downpour::model::zoo
