#include "trainer/worker/model_spec.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace downpour::worker {

absl::StatusOr<model::ModelSpec> MakeModelSpec(const v1::ModelConfig& config) {
  model::ModelSpec spec;
  spec.name = config.name();
  if (!config.parameters().empty()) {
    spec.parameters = nlohmann::json::parse(config.parameters(), nullptr, /*allow_exceptions=*/false);
    if (!spec.parameters.is_object()) return absl::InvalidArgumentError("spec.model.parameters: expected a map");
  }
  if (!config.layers().empty()) {
    spec.layers = nlohmann::ordered_json::parse(config.layers(), nullptr, /*allow_exceptions=*/false);
    if (!spec.layers.is_array()) return absl::InvalidArgumentError("spec.model.layers: expected a list");
  }
  if (spec.name.empty() == spec.layers.is_null()) {
    return absl::InvalidArgumentError(absl::StrCat("spec.model: expected exactly one of name and layers, got ",
                                                   spec.name.empty() ? "neither" : "both"));
  }
  spec.objective.loss = config.loss().type();
  spec.objective.label_smoothing = config.loss().label_smoothing();
  if (config.loss().delta() > 0) spec.objective.delta = config.loss().delta();
  spec.objective.metrics.assign(config.metrics().begin(), config.metrics().end());
  spec.frozen.assign(config.frozen().begin(), config.frozen().end());
  return spec;
}

std::string ModelName(const v1::ModelConfig& config) {
  return config.name().empty() ? "list of layers" : config.name();
}

}  // namespace downpour::worker
