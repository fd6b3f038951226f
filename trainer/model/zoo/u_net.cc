#include "trainer/model/zoo/layer_json.h"
#include "trainer/model/zoo/networks.h"

namespace downpour::model::zoo {
namespace {

Json DoubleConvolution(const std::string& name, std::int64_t middle, std::int64_t filters) {
  Json layers = Json::array();
  for (const auto& [suffix, channels] : {std::pair{"_conv1", middle}, std::pair{"_conv2", filters}}) {
    layers.push_back(Layer("conv2d", {{"name", name + suffix}, {"filters", channels}, {"kernel", 3}, {"padding", 1}}));
    layers.push_back(Layer("batchNorm", {{"name", name + suffix + "_norm"}}));
    layers.push_back(Layer("relu"));
  }
  return layers;
}

// From the level `level` - 1, which has `channels`, down to `level`, and what comes back beside it (the skip).
Json Below(std::int64_t level, std::int64_t levels, std::int64_t channels) {
  const std::string number = std::to_string(level);
  const bool deepest = level == levels;
  Json inner = Json::array({Layer("maxPool2d", {{"size", 2}})});
  const std::int64_t filters = deepest ? channels : 2 * channels;  // the upsampling leaves the channels as they are
  Append(inner, DoubleConvolution("down" + number, filters, filters));
  if (!deepest) Append(inner, Below(level + 1, levels, filters));
  inner.push_back(Layer("upsample2d", {{"scale", 2}}));
  Json layers = Json::array({Layer("concatenate", {{"layers", inner}})});
  Append(layers, DoubleConvolution("up" + number, channels, level == 1 ? channels : channels / 2));
  return layers;
}

// The U-Net of Ronneberger et al. (2015) in the form that Trebing et al., "SmaAt-UNet" (2021), compare with: padded
// convolutions, batch norm, parameter-free upsampling (theirs bilinear, ours nearest), deepest level not doubled.
// Parameters, of twelve radar images and one to predict: down 44,224 + 221,952 + 886,272 + 3,542,016 + 4,721,664,
// up 5,900,544 + 1,475,712 + 369,216 + 110,912, last 65: 17,272,577.
Json Layers(const Sizes& sizes, const data::SampleFields& fields) {
  const std::int64_t base = sizes.at("base");
  Json layers = DoubleConvolution("down0", base, base);
  Append(layers, Below(1, sizes.at("levels"), base));
  layers.push_back(Layer("conv2d", {{"name", "output"}, {"filters", OutputChannels(fields)}, {"kernel", 1}}));
  return layers;
}

}  // namespace

ZooNetwork UNet() {
  return {"UNet",
          {{"base", 64, 2, 512, "channels of the first level, doubled by each level but the deepest"},
           {"levels", 4, 1, 6, "how often the extents are halved; they must be divisible by 2 to this power"}},
          "MeanSquaredError",
          Layers};
}

}  // namespace downpour::model::zoo
