#include "trainer/model/zoo/networks.h"

namespace downpour::model {
namespace {

using Json = nlohmann::ordered_json;

// LeNet of "Dive into Deep Learning", section 12.5.
Json Layers(const std::map<std::string, std::int64_t>& sizes, const data::SampleFields& fields) {
  return {
      {{"type", "conv2d"}, {"name", "conv1"}, {"filters", 20}, {"kernel", 3}},
      {{"type", "relu"}},
      {{"type", "avgPool2d"}, {"size", 2}},
      {{"type", "conv2d"}, {"name", "conv2"}, {"filters", 50}, {"kernel", 5}},
      {{"type", "relu"}},
      {{"type", "avgPool2d"}, {"size", 2}},
      {{"type", "flatten"}},
      {{"type", "dense"}, {"name", "fc1"}, {"units", sizes.at("hidden")}},
      {{"type", "relu"}},
      {{"type", "dense"}, {"name", "fc2"}, {"units", fields.targets.front().classes}},
  };
}

}  // namespace

ZooNetwork LeNet() { return {"LeNet", {{"hidden", 128}}, "CrossEntropy", Layers}; }

}  // namespace downpour::model
