#ifndef DOWNPOUR_TRAINER_MODEL_ZOO_ZOO_H_
#define DOWNPOUR_TRAINER_MODEL_ZOO_ZOO_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "trainer/data/fields.h"

// The model zoo: networks by name, as lists of layers. docs/models.md describes them. Everything here may be called
// from several threads.
namespace downpour::model {

// A size of a network that the manifest may change.
struct NetworkSize {
  std::string name;
  std::int64_t standard = 0;
  std::int64_t least = 0;
  std::int64_t most = 0;
  std::string meaning;
};

struct ZooNetwork {
  std::string name;                // "LeNet"
  std::vector<NetworkSize> sizes;  // spec.model.parameters
  std::string loss;                // of this network where the manifest says nothing
  // `sizes` has every size, checked. Checks nothing of the fields: what builds the layers does.
  nlohmann::ordered_json (*layers)(const std::map<std::string, std::int64_t>& sizes, const data::SampleFields& fields);
};

// In alphabetical order.
const std::vector<ZooNetwork>& Zoo();

// Null if there is none of this name.
const ZooNetwork* FindNetwork(const std::string& name);

// The layers of the network with its standard sizes, but for those in `parameters`, an object (or null: all standard).
// Errors: kNotFound with the known names; kInvalidArgument, which names spec.model.parameters.<size>: unknown, not an
// integer, out of range.
absl::StatusOr<nlohmann::ordered_json> ZooLayers(const std::string& name, const nlohmann::json& parameters,
                                                 const data::SampleFields& fields);

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_ZOO_ZOO_H_
