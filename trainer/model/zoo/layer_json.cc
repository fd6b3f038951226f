#include "trainer/model/zoo/layer_json.h"

namespace downpour::model::zoo {
namespace {

bool IsLabel(const data::Field& field) {
  return field.classes > 0 || field.type == data::ElementType::kI32 || field.type == data::ElementType::kI64;
}

}  // namespace

Json Layer(const char* type, std::initializer_list<std::pair<const char*, Json>> fields) {
  Json layer = Json::object();
  layer["type"] = type;
  for (const auto& [name, value] : fields) layer[name] = value;
  return layer;
}

void Append(Json& layers, const Json& more) {
  for (const Json& layer : more) layers.push_back(layer);
}

std::int64_t OutputChannels(const data::SampleFields& fields) {
  if (fields.targets.empty()) return 0;
  const data::Field& target = fields.targets.front();
  if (IsLabel(target)) return target.classes;
  return target.shape.size() < 3 ? 1 : target.shape.front();
}

Json OutputLayers(const data::SampleFields& fields, const std::string& name) {
  std::int64_t units = 0;
  std::vector<std::int64_t> shape = {1};
  if (!fields.targets.empty()) {
    const data::Field& target = fields.targets.front();
    if (IsLabel(target)) {
      units = target.classes;
    } else {
      units = 1;
      for (const std::int64_t extent : target.shape) units *= extent;
      if (!target.shape.empty()) shape = target.shape;
    }
  }
  Json layers = Json::array({Layer("dense", {{"name", name}, {"units", units}})});
  if (shape.size() > 1) layers.push_back(Layer("reshape", {{"shape", shape}}));
  return layers;
}

}  // namespace downpour::model::zoo
