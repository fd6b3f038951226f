#include "trainer/model/zoo/layer_json.h"
#include "trainer/model/zoo/networks.h"

namespace downpour::model::zoo {
namespace {

// AlexNet of "Dive into Deep Learning", section 8.1 (after Krizhevsky et al., 2012), on images of 1 x 224 x 224.
// Parameters: conv 11,712 + 614,656 + 885,120 + 1,327,488 + 884,992, of the 6,400 values behind them
// 6400*4096+4096 = 26,218,496, then 16,781,312 and, of ten classes, 40,970: 46,764,746.
Json Layers(const Sizes& sizes, const data::SampleFields& fields) {
  const std::int64_t hidden = sizes.at("hidden");
  Json layers =
      Json::array({Layer("conv2d", {{"name", "conv1"}, {"filters", 96}, {"kernel", 11}, {"stride", 4}, {"padding", 1}}),
                   Layer("relu"),
                   Layer("maxPool2d", {{"size", 3}, {"stride", 2}}),
                   Layer("conv2d", {{"name", "conv2"}, {"filters", 256}, {"kernel", 5}, {"padding", 2}}),
                   Layer("relu"),
                   Layer("maxPool2d", {{"size", 3}, {"stride", 2}}),
                   Layer("conv2d", {{"name", "conv3"}, {"filters", 384}, {"kernel", 3}, {"padding", 1}}),
                   Layer("relu"),
                   Layer("conv2d", {{"name", "conv4"}, {"filters", 384}, {"kernel", 3}, {"padding", 1}}),
                   Layer("relu"),
                   Layer("conv2d", {{"name", "conv5"}, {"filters", 256}, {"kernel", 3}, {"padding", 1}}),
                   Layer("relu"),
                   Layer("maxPool2d", {{"size", 3}, {"stride", 2}}),
                   Layer("flatten"),
                   Layer("dense", {{"name", "fc1"}, {"units", hidden}}),
                   Layer("relu"),
                   Layer("dropout", {{"rate", 0.5}}),
                   Layer("dense", {{"name", "fc2"}, {"units", hidden}}),
                   Layer("relu"),
                   Layer("dropout", {{"rate", 0.5}})});
  Append(layers, OutputLayers(fields, "fc3"));
  return layers;
}

}  // namespace

ZooNetwork AlexNet() {
  return {
      "AlexNet", {{"hidden", 4096, 1, 65536, "units of each of the two hidden dense layers"}}, "CrossEntropy", Layers};
}

}  // namespace downpour::model::zoo
