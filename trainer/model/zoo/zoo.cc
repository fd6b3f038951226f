#include "trainer/model/zoo/zoo.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "trainer/model/zoo/networks.h"

namespace downpour::model {

const std::vector<ZooNetwork>& Zoo() {
  static const auto* const networks = new std::vector<ZooNetwork>{LeNet(), Mlp()};
  return *networks;
}

const ZooNetwork* FindNetwork(const std::string& name) {
  const auto found =
      std::find_if(Zoo().begin(), Zoo().end(), [&](const ZooNetwork& network) { return network.name == name; });
  return found == Zoo().end() ? nullptr : &*found;
}

absl::StatusOr<nlohmann::ordered_json> ZooLayers(const std::string& name, const nlohmann::json& parameters,
                                                 const data::SampleFields& fields) {
  const auto names = [](const auto& of) {
    return absl::StrJoin(of, ", ", [](std::string* text, const auto& one) { text->append(one.name); });
  };
  const ZooNetwork* const network = FindNetwork(name);
  if (network == nullptr) {
    return absl::NotFoundError(absl::StrCat("spec.model.name: no network \"", name, "\"; known: ", names(Zoo())));
  }
  std::map<std::string, std::int64_t> sizes;
  for (const NetworkSize& size : network->sizes) sizes[size.name] = size.standard;
  for (const auto& [key, value] : parameters.items()) {
    const auto size = std::find_if(network->sizes.begin(), network->sizes.end(),
                                   [&key = key](const NetworkSize& one) { return one.name == key; });
    const std::string path = absl::StrCat("spec.model.parameters.", key);
    if (size == network->sizes.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": ", name, " has no such size; known: ", names(network->sizes)));
    }
    const double number = value.is_number() ? value.get<double>() : std::nan("");
    if (!(number == std::floor(number) && number >= static_cast<double>(size->least) &&
          number <= static_cast<double>(size->most))) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": expected an integer from ", size->least, " to ", size->most, ", got ", value.dump()));
    }
    sizes[key] = static_cast<std::int64_t>(number);
  }
  return network->layers(sizes, fields);
}

}  // namespace downpour::model
