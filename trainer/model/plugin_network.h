#ifndef DOWNPOUR_TRAINER_MODEL_PLUGIN_NETWORK_H_
#define DOWNPOUR_TRAINER_MODEL_PLUGIN_NETWORK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "downpour/plugin.h"
#include "trainer/data/fields.h"
#include "trainer/model/model_plan.h"
#include "trainer/model/network.h"

// Networks, losses and metrics of a shared library of the user's own: the host's side of downpour/plugin.h.
namespace downpour::model {

// What the library at `path` has. It stays loaded as long as the process lives, as what it gave out and what it told
// LibTorch refers to it. kNotFound: no such file; kInvalidArgument: no shared library, no plug-in, or one of another
// contract or LibTorch. Messages begin with spec.model.plugin.path.
absl::StatusOr<const plugin::Registry*> LoadPlugin(const std::string& path);

// Null: not there.
template <typename Function>
const Function* FindNamed(const std::vector<plugin::Named<Function>>& registered, const std::string& name) {
  for (const plugin::Named<Function>& one : registered) {
    if (one.name == name) return &one.function;
  }
  return nullptr;
}

OwnMeasures MeasuresOf(const plugin::Registry& registry);

// The network spec.plugin_name, on the CPU. Its initial parameters are a function of the arguments as far as it draws
// from LibTorch's default generator alone. kNotFound: no such network, with those that there are; kInvalidArgument:
// parameters that it refuses or does not know, by their path, and what its constructor throws.
absl::StatusOr<std::shared_ptr<Network>> MakePluginNetwork(const plugin::Registry& registry, const ModelSpec& spec,
                                                           const data::Field& input, const data::Field& target,
                                                           std::uint64_t seed);

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_PLUGIN_NETWORK_H_
