#include "trainer/worker/model_spec.h"

namespace downpour::worker {

model::ModelSpec MakeModelSpec(const v1::ModelConfig& config) {
  model::ModelSpec spec;
  spec.name = config.name();
  spec.parameters = config.parameters();
  spec.layers = config.layers();
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
