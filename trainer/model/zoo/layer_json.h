#ifndef DOWNPOUR_TRAINER_MODEL_ZOO_LAYER_JSON_H_
#define DOWNPOUR_TRAINER_MODEL_ZOO_LAYER_JSON_H_

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>

#include "nlohmann/json.hpp"
#include "trainer/data/fields.h"

// What the networks are written with. Internal to the zoo.
namespace downpour::model::zoo {

using Json = nlohmann::ordered_json;
using Sizes = std::map<std::string, std::int64_t>;

// Layer("dense", {{"units", 10}}): {"type": "dense", "units": 10}.
Json Layer(const char* type, std::initializer_list<std::pair<const char*, Json>> fields = {});

void Append(Json& layers, const Json& more);

// The channels of an image that answers the target: its classes, or the first extent of a target of numbers.
std::int64_t OutputChannels(const data::SampleFields& fields);

// The last layers of a network that ends in a vector: as many outputs as the target has classes, or a value for each
// of the target's numbers, in its shape. A target without known classes has none, which the engine refuses.
Json OutputLayers(const data::SampleFields& fields, const std::string& name = "output");

}  // namespace downpour::model::zoo

#endif  // DOWNPOUR_TRAINER_MODEL_ZOO_LAYER_JSON_H_
