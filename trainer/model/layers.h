#ifndef DOWNPOUR_TRAINER_MODEL_LAYERS_H_
#define DOWNPOUR_TRAINER_MODEL_LAYERS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "trainer/data/fields.h"

// A network as a list of layers, before anything of it is built: what every layer is given, what it makes of it and how
// many parameters it has. Knows no LibTorch, so a manifest is checked where there is none. docs/models.md lists the
// types of layers and their fields.
namespace downpour::model {

// What one sample is between two layers.
struct Value {
  bool integers = false;            // numbers of words, say
  std::int64_t classes = 0;         // of integers; 0: not known
  std::vector<std::int64_t> shape;  // the first extent may be data::kRagged
  bool image() const { return shape.size() == 3 && shape.front() != data::kRagged; }
  bool sequence() const { return shape.size() == 2; }
};
std::string ToString(const Value& value);  // "[20, 13, 13]", "integers [*]"

struct Layer {
  std::string type;
  std::string name;
  Value input;
  Value output;
  std::int64_t parameters = 0;  // with those of the layers inside
  // Every field of the type, with its default where the manifest says nothing. Flags are 0 or 1; a padding of "same" is
  // kSame.
  std::map<std::string, std::int64_t> integers;
  std::map<std::string, double> numbers;
  std::vector<Layer> layers;    // of residual and concatenate
  std::vector<Layer> shortcut;  // of residual
  std::int64_t integer(const std::string& field) const { return integers.at(field); }
};

inline constexpr std::int64_t kSame = -1;

struct LayerPlan {
  std::vector<Layer> layers;
  Value output;
  std::int64_t parameters = 0;
};

// The most parameters of a model: 256 GiB of float32.
inline constexpr std::int64_t kMaxParameters = std::int64_t{1} << 36;

// kInvalidArgument names the layer by `path` ("spec.model.layers"), what comes in and what it needs; or the field, what
// was found and what is expected.
absl::StatusOr<LayerPlan> PlanLayers(const nlohmann::ordered_json& layers, const data::Field& input,
                                     const std::string& path);

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_LAYERS_H_
