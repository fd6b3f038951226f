#include "trainer/model/plugin_network.h"

#include <ATen/CPUGeneratorImpl.h>
#include <dlfcn.h>

#include <filesystem>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"
#include "trainer/model/thrown.h"
#include "trainer/model/torch_types.h"

namespace downpour::model {
namespace {

constexpr char kPath[] = "spec.model.plugin.path: ";
constexpr char kParameters[] = "spec.model.plugin.parameters";
constexpr char kSymbol[] = "downpour_plugin";

std::string LoaderError() {
  const char* text = dlerror();
  return text == nullptr ? "no reason given" : text;
}

// Of the loaded library: nothing else of it is used before this is OK.
absl::StatusOr<const plugin::Contract*> ContractOf(const std::string& path, void* library) {
  void* const symbol = dlsym(library, kSymbol);
  if (symbol == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(kPath, path, " is no Downpour plug-in: it has no symbol ", kSymbol,
                                                   ", which DOWNPOUR_MODEL and its like make"));
  }
  const plugin::Contract* const contract = reinterpret_cast<plugin::Symbol>(symbol)();
  if (contract == nullptr || contract->magic != plugin::kMagic) {
    return absl::InvalidArgumentError(
        absl::StrCat(kPath, path, " is no Downpour plug-in: its symbol ", kSymbol, " is something else"));
  }
  const auto refuse = [&path](const char* of, const auto& theirs, const auto& ours) {
    return absl::InvalidArgumentError(absl::StrCat(kPath, path, " is built for ", of, theirs, ", expected ", of, ours,
                                                   ": build it again with the package of this Downpour"));
  };
  if (contract->abi_version != plugin::kAbiVersion) {
    return refuse("plug-in contract ", contract->abi_version, plugin::kAbiVersion);
  }
  if (contract->torch_version != absl::string_view(TORCH_VERSION)) {
    return refuse("LibTorch ", contract->torch_version, TORCH_VERSION);
  }
  if (contract->cxx11_abi != _GLIBCXX_USE_CXX11_ABI) {
    return refuse("_GLIBCXX_USE_CXX11_ABI=", contract->cxx11_abi, _GLIBCXX_USE_CXX11_ABI);
  }
  return contract;
}

template <typename Function>
std::vector<std::string> Names(const std::vector<plugin::Named<Function>>& registered) {
  std::vector<std::string> names;
  names.reserve(registered.size());
  for (const plugin::Named<Function>& one : registered) names.push_back(one.name);
  return names;
}

template <typename Function>
absl::Status CheckNames(const std::string& path, const char* kind,
                        const std::vector<plugin::Named<Function>>& registered) {
  std::set<std::string> names;
  for (const plugin::Named<Function>& one : registered) {
    if (one.name.empty() || !names.insert(one.name).second) {
      return absl::InvalidArgumentError(absl::StrCat(kPath, path, " registers the ", kind, " \"", one.name, "\"",
                                                     one.name.empty() ? ", expected a name" : " twice"));
    }
  }
  return absl::OkStatus();
}

bool IsInteger(const nlohmann::json& json) {
  constexpr std::uint64_t kLargest = std::numeric_limits<std::int64_t>::max();
  return json.is_number_integer() && !(json.is_number_unsigned() && json.get<std::uint64_t>() > kLargest);
}

absl::StatusOr<Parameters::Value> ParameterValue(const nlohmann::json& json) {
  if (json.is_boolean()) return json.get<bool>();
  if (IsInteger(json)) return json.get<std::int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  if (json.is_array()) {
    bool integers = true, numbers = true;
    for (const nlohmann::json& item : json) {
      integers = integers && IsInteger(item);
      numbers = numbers && item.is_number();
    }
    if (integers) return json.get<std::vector<std::int64_t>>();
    if (numbers) return json.get<std::vector<double>>();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("expected true or false, a number, a text or a list of numbers, got ", json.dump()));
}

absl::StatusOr<Parameters> ParseParameters(const std::string& text) {
  std::map<std::string, Parameters::Value> values;
  if (text.empty()) return Parameters(values);
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError(absl::StrCat(kParameters, ": expected a map"));
  for (const auto& [name, item] : json.items()) {
    absl::StatusOr<Parameters::Value> value = ParameterValue(item);
    if (!value.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(kParameters, ".", name, ": ", value.status().message()));
    }
    values[name] = *std::move(value);
  }
  return Parameters(std::move(values));
}

// As what it arrives; see AsPromised.
torch::Dtype PromisedType(data::ElementType type) {
  const bool integers = type == data::ElementType::kI32 || type == data::ElementType::kI64;
  return integers ? torch::kLong : torch::kFloat;
}

Field FieldOf(const data::Field& field) { return {field.name, PromisedType(field.type), field.shape, field.classes}; }

class PluginNetwork final : public Network {
 public:
  PluginNetwork(plugin::Network network, std::vector<std::int64_t> input_shape)
      : network_(std::move(network)), input_shape_(std::move(input_shape)) {}

  std::vector<NamedTensor> Parameters() const override { return Named(network_.module->named_parameters()); }
  std::vector<NamedTensor> Buffers() const override { return Named(network_.module->named_buffers()); }
  void Train(bool on) override { network_.module->train(on); }
  void To(torch::Device device) override { network_.module->to(device); }
  const std::vector<std::int64_t>& used_shape() const override { return input_shape_; }

  torch::Tensor Forward(const Flow& samples, bool /*fused*/) override {
    return network_.forward(AsPromised(samples.value), samples.lengths);
  }

 private:
  const plugin::Network network_;
  const std::vector<std::int64_t> input_shape_;
};

}  // namespace

absl::StatusOr<const plugin::Registry*> LoadPlugin(const std::string& path) {
  std::error_code error;
  // A name without a slash would be looked for where the system has its libraries.
  const std::filesystem::path file = std::filesystem::absolute(path, error);
  if (error || !std::filesystem::exists(file, error)) {
    return absl::NotFoundError(absl::StrCat(kPath, "no file ", path));
  }
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const absl::Status refused =
        absl::InvalidArgumentError(absl::StrCat(kPath, path, " cannot be loaded: ", LoaderError()));
    // What it needs of another LibTorch this one may not have: without its functions it can still tell its version.
    void* const incomplete = dlopen(file.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (incomplete == nullptr) return refused;
    const absl::StatusOr<const plugin::Contract*> contract = ContractOf(path, incomplete);
    return contract.ok() ? refused : contract.status();
  }
  const absl::StatusOr<const plugin::Contract*> contract = ContractOf(path, library);
  if (!contract.ok()) return contract.status();
  const plugin::Registry& registry = *(*contract)->registry;
  if (absl::Status unique = CheckNames(path, "network", registry.models); !unique.ok()) return unique;
  if (absl::Status unique = CheckNames(path, "loss", registry.losses); !unique.ok()) return unique;
  if (absl::Status unique = CheckNames(path, "metric", registry.metrics); !unique.ok()) return unique;
  return &registry;
}

OwnMeasures MeasuresOf(const plugin::Registry& registry) { return {Names(registry.losses), Names(registry.metrics)}; }

absl::StatusOr<std::shared_ptr<Network>> MakePluginNetwork(const plugin::Registry& registry, const ModelSpec& spec,
                                                           const data::Field& input, const data::Field& target,
                                                           std::uint64_t seed) {
  const std::string& name = spec.plugin_name;
  const plugin::Make* const make = FindNamed(registry.models, name);
  if (make == nullptr) {
    const std::vector<std::string> names = Names(registry.models);
    return absl::NotFoundError(absl::StrCat("spec.model.plugin.name: ", spec.plugin_path, " has no network \"", name,
                                            "\"; it has ", names.empty() ? "none" : absl::StrJoin(names, ", ")));
  }
  const absl::StatusOr<Parameters> parameters = ParseParameters(spec.plugin_parameters);
  if (!parameters.ok()) return parameters.status();
  {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_current_seed(seed);
  }
  plugin::Network network;
  try {
    network = (*make)(*parameters, {FieldOf(input), FieldOf(target)});
  } catch (const ParameterError& refused) {
    return absl::InvalidArgumentError(absl::StrCat(kParameters, ".", refused.what()));
  } catch (...) {
    return absl::InvalidArgumentError(
        absl::StrCat("spec.model.plugin.name: the constructor of ", name, " threw: ", WhatWasThrown()));
  }
  for (const auto& [parameter, value] : parameters->values()) {
    const std::set<std::string>& known = parameters->known();
    if (known.contains(parameter)) continue;
    return absl::InvalidArgumentError(absl::StrCat(kParameters, ".", parameter, ": ", name,
                                                   " has no such parameter; it has ",
                                                   known.empty() ? "none" : absl::StrJoin(known, ", ")));
  }
  return std::make_shared<PluginNetwork>(std::move(network), input.shape);
}

}  // namespace downpour::model
