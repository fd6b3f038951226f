#include "trainer/worker/model_spec.h"

#include "absl/strings/str_cat.h"

namespace downpour::worker {

model::ModelSpec MakeModelSpec(const v1::ModelConfig& config) {
  model::ModelSpec spec;
  spec.name = config.name();
  spec.parameters = config.parameters();
  spec.layers = config.layers();
  spec.plugin_path = config.plugin().path();
  spec.plugin_name = config.plugin().name();
  spec.plugin_parameters = config.plugin().parameters();
  spec.torch_script = config.torch_script();
  spec.objective.loss = config.loss().type();
  spec.objective.label_smoothing = config.loss().label_smoothing();
  if (config.loss().delta() > 0) spec.objective.delta = config.loss().delta();
  spec.objective.metrics.assign(config.metrics().begin(), config.metrics().end());
  spec.frozen.assign(config.frozen().begin(), config.frozen().end());
  return spec;
}

std::string ModelName(const v1::ModelConfig& config) {
  if (!config.plugin().name().empty()) return absl::StrCat(config.plugin().name(), " of ", config.plugin().path());
  if (!config.torch_script().empty()) return absl::StrCat("TorchScript of ", config.torch_script());
  return config.name().empty() ? "list of layers" : config.name();
}

}  // namespace downpour::worker
