#include "trainer/model/zoo/zoo.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "trainer/model/zoo/networks.h"

namespace downpour::model {
namespace {

constexpr char kField[] = "spec.model.parameters";

bool InRange(const nlohmann::json& value, const NetworkSize& size) {
  // An unsigned integer may be too large for an int64.
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(size.most)) return false;
  const auto integer = value.get<std::int64_t>();
  return integer >= size.least && integer <= size.most;
}

absl::StatusOr<std::map<std::string, std::int64_t>> Sizes(const ZooNetwork& network, const nlohmann::json& parameters) {
  std::map<std::string, std::int64_t> sizes;
  for (const NetworkSize& size : network.sizes) sizes[size.name] = size.standard;
  if (parameters.is_null()) return sizes;
  if (!parameters.is_object()) return absl::InvalidArgumentError(absl::StrCat(kField, ": expected a map"));
  for (const auto& [name, value] : parameters.items()) {
    const auto size = std::find_if(network.sizes.begin(), network.sizes.end(),
                                   [&name = name](const NetworkSize& some) { return some.name == name; });
    if (size == network.sizes.end()) {
      const std::string known = absl::StrJoin(
          network.sizes, ", ", [](std::string* text, const NetworkSize& some) { text->append(some.name); });
      return absl::InvalidArgumentError(absl::StrCat(kField, ".", name, ": ", network.name,
                                                     " has no such size; it has ", known.empty() ? "none" : known));
    }
    const std::string expected = absl::StrCat("expected an integer from ", size->least, " to ", size->most);
    if (!value.is_number_integer() || !InRange(value, *size)) {
      const std::string found = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
      return absl::InvalidArgumentError(absl::StrCat(kField, ".", name, ": ", expected, ", not ", found));
    }
    sizes[name] = value.get<std::int64_t>();
  }
  return sizes;
}

}  // namespace

const std::vector<ZooNetwork>& Zoo() {
  static const auto* const kZoo = new std::vector<ZooNetwork>{
      zoo::Acoustic(), zoo::AlexNet(),  zoo::BiLstm(),   zoo::CifarCnn(),        zoo::LeNet(), zoo::LocallyConnected(),
      zoo::Mlp(),      zoo::PhotoCnn(), zoo::ResNet18(), zoo::TextTransformer(), zoo::UNet()};
  return *kZoo;
}

const ZooNetwork* FindNetwork(const std::string& name) {
  for (const ZooNetwork& network : Zoo()) {
    if (network.name == name) return &network;
  }
  return nullptr;
}

absl::StatusOr<nlohmann::ordered_json> ZooLayers(const std::string& name, const nlohmann::json& parameters,
                                                 const data::SampleFields& fields) {
  const ZooNetwork* const network = FindNetwork(name);
  if (network == nullptr) {
    const std::string known =
        absl::StrJoin(Zoo(), ", ", [](std::string* text, const ZooNetwork& some) { text->append(some.name); });
    return absl::NotFoundError(absl::StrCat("spec.model.name: no network \"", name, "\"; known: ", known));
  }
  const auto sizes = Sizes(*network, parameters);
  if (!sizes.ok()) return sizes.status();
  return network->layers(*sizes, fields);
}

}  // namespace downpour::model
