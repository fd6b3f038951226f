#include "trainer/model/zoo/networks.h"

namespace downpour::model {
namespace {

using Json = nlohmann::ordered_json;

Json Layers(const std::map<std::string, std::int64_t>& sizes, const data::SampleFields& fields) {
  return {
      {{"type", "flatten"}},
      {{"type", "dense"}, {"name", "fc1"}, {"units", sizes.at("hidden")}},
      {{"type", "relu"}},
      {{"type", "dense"}, {"name", "fc2"}, {"units", fields.targets.front().classes}},
  };
}

}  // namespace

ZooNetwork Mlp() { return {"MLP", {{"hidden", 128}}, "CrossEntropy", Layers}; }

}  // namespace downpour::model
