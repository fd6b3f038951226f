#include "trainer/model/model_plan.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"
#include "trainer/model/zoo/zoo.h"

namespace downpour::model {
namespace {

absl::Status CheckOneSource(const ModelSpec& spec) {
  std::vector<std::string> given;
  if (!spec.name.empty()) given.emplace_back("name");
  if (!spec.layers.empty()) given.emplace_back("layers");
  if (!spec.plugin_name.empty()) given.emplace_back("plugin.name");
  if (!spec.torch_script.empty()) given.emplace_back("torchScript");
  if (given.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("spec.model: expected exactly one of name, layers, plugin.name and torchScript, got ",
                     given.empty() ? "none" : absl::StrJoin(given, " and ")));
  }
  if (spec.plugin_name.empty() && !spec.plugin_parameters.empty()) {
    return absl::InvalidArgumentError("spec.model.plugin.parameters: are for a network, and plugin.name names none");
  }
  if (!spec.plugin_name.empty() && spec.plugin_path.empty()) {
    return absl::InvalidArgumentError("spec.model.plugin.path: is missing");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelPlan> PlanModel(const ModelSpec& spec, const data::SampleFields& fields, const OwnMeasures& own) {
  if (fields.inputs.size() != 1 || fields.targets.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("spec.model: takes one input and one target; the data set has ", data::ToString(fields)));
  }
  ModelPlan plan;
  plan.input = fields.inputs.front();
  plan.target = fields.targets.front();
  if (absl::Status one = CheckOneSource(spec); !one.ok()) return one;
  if (!spec.plugin_name.empty() || !spec.torch_script.empty()) return plan;
  nlohmann::ordered_json layers;
  std::string path = "spec.model.layers";
  ObjectiveSpec objective = spec.objective;
  if (spec.name.empty()) {
    layers = nlohmann::ordered_json::parse(spec.layers, nullptr, /*allow_exceptions=*/false);
    if (!layers.is_array()) return absl::InvalidArgumentError("spec.model.layers: expected a list");
  } else {
    nlohmann::json parameters;
    if (!spec.parameters.empty()) {
      parameters = nlohmann::json::parse(spec.parameters, nullptr, /*allow_exceptions=*/false);
      if (!parameters.is_object()) return absl::InvalidArgumentError("spec.model.parameters: expected a map");
    }
    absl::StatusOr<nlohmann::ordered_json> made = ZooLayers(spec.name, parameters, fields);
    if (!made.ok()) return made.status();
    layers = *std::move(made);
    path = absl::StrCat("spec.model: ", spec.name, " cannot take ", data::ToString(plan.input), ": layers");
    if (objective.loss.empty()) objective.loss = FindNetwork(spec.name)->loss;
  }
  absl::StatusOr<LayerPlan> planned = PlanLayers(layers, plan.input, path);
  if (!planned.ok()) return planned.status();
  plan.layers = *std::move(planned);
  const absl::StatusOr<Objective> fitting = PlanObjective(objective, plan.layers.output, plan.target, own);
  if (!fitting.ok()) return fitting.status();
  plan.objective = *fitting;
  return plan;
}

}  // namespace downpour::model
