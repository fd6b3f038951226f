#ifndef DOWNPOUR_TRAINER_MODEL_ZOO_ZOO_H_
#define DOWNPOUR_TRAINER_MODEL_ZOO_ZOO_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "trainer/data/fields.h"

// The networks with a name. Each is a function that makes a list of layers (trainer/model/layers.h).
namespace downpour::model {

// A size of a network that spec.model.parameters may change.
struct NetworkSize {
  std::string name;
  std::int64_t standard = 0;
  std::int64_t least = 1;
  std::int64_t most = 1 << 20;
};

struct ZooNetwork {
  std::string name;
  std::vector<NetworkSize> sizes;
  std::string loss;  // where the manifest names none; empty: what fits the target
  // `sizes` holds every size, within its range. Shapes are not looked at: the layers know what they can take.
  nlohmann::ordered_json (*layers)(const std::map<std::string, std::int64_t>& sizes, const data::SampleFields& fields);
};

const std::vector<ZooNetwork>& Zoo();
const ZooNetwork* FindNetwork(const std::string& name);  // null: there is none

// kNotFound names the networks that there are; kInvalidArgument names the size, what was found and what is expected.
absl::StatusOr<nlohmann::ordered_json> ZooLayers(const std::string& name, const nlohmann::json& parameters,
                                                 const data::SampleFields& fields);

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_ZOO_ZOO_H_
