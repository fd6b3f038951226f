#include "operator/api/relations.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "operator/api/document.h"

namespace downpour::api {

void CheckRelations(const TrainingJobSpec& spec, FieldErrors& errors) {
  if (errors.IsClean("spec.strategy")) {
    if (!spec.parameter_server.has_value()) {
      errors.Add("spec.parameterServer", "is required for the strategy ParameterServer");
    }
  }
  if (errors.IsClean("spec.elastic") && spec.elastic.has_value() &&
      spec.elastic->min_replicas > spec.elastic->max_replicas) {
    errors.Add("spec.elastic.minReplicas", absl::StrCat("must be at most maxReplicas, ", spec.elastic->max_replicas,
                                                        ", got ", spec.elastic->min_replicas));
  }
  const ModelSpec& model = spec.model;
  if (errors.IsClean("spec.model")) {
    if (model.name.empty() == model.layers.empty()) errors.Add("spec.model", "must have either name or layers");
    if (model.name.empty() && !model.parameters.empty()) {
      errors.Add("spec.model.parameters", "is for a network with a name");
    }
  }
  if (errors.IsClean("spec.model.loss") && model.loss.has_value()) {
    if (model.loss->label_smoothing.has_value() && model.loss->type != "CrossEntropy") {
      errors.Add("spec.model.loss.labelSmoothing", "is for the type CrossEntropy");
    }
    if (model.loss->delta.has_value() && model.loss->type != "Huber") {
      errors.Add("spec.model.loss.delta", "is for the type Huber");
    }
  }
  const std::string policy = "spec.failurePolicy";
  const Backoff& backoff = spec.failure_policy.backoff;
  if (errors.IsClean(policy + ".backoff") && backoff.initial_seconds > backoff.max_seconds) {
    errors.Add(policy + ".backoff.initialSeconds",
               absl::StrCat("must be at most maxSeconds, ", backoff.max_seconds, ", got ", backoff.initial_seconds));
  }
  const auto check_unique = [&](const auto& values, const std::string& path) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto first = std::find(values.begin(), values.end(), values[i]);
      const auto index = static_cast<std::size_t>(first - values.begin());
      const std::string at = JoinPath(path, i);
      if (index < i && errors.IsClean(at)) errors.Add(at, absl::StrCat("must be unique, is the same as [", index, "]"));
    }
  };
  check_unique(model.metrics, "spec.model.metrics");
  check_unique(model.frozen, "spec.model.frozen");
  std::set<std::string> names;
  const std::vector<FailureRule>& rules = spec.failure_policy.rules;
  for (std::size_t i = 0; i < rules.size(); ++i) {
    const FailureRule& rule = rules[i];
    const std::string path = JoinPath(policy + ".rules", i);
    if (errors.IsClean(path + ".name") && !names.insert(rule.name).second) {
      errors.Add(path + ".name", absl::StrCat("must be unique, got ", Quote(rule.name), " again"));
    }
    if (errors.IsClean(path) && rule.roles.empty() && rule.on_pod_conditions.empty() &&
        rule.on_container_reasons.empty() && !rule.on_exit_codes.has_value()) {
      errors.Add(path, "must have at least one of roles, onPodConditions, onContainerReasons, onExitCodes");
    }
    check_unique(rule.roles, path + ".roles");
    check_unique(rule.on_pod_conditions, path + ".onPodConditions");
    check_unique(rule.on_container_reasons, path + ".onContainerReasons");
    if (rule.on_exit_codes.has_value()) check_unique(rule.on_exit_codes->values, path + ".onExitCodes.values");
  }
}

void CheckRelations(const Metadata& metadata, FieldErrors& errors) {
  if (!errors.IsClean("metadata.name") || !errors.IsClean("metadata.generateName")) return;
  if (metadata.name.empty() && metadata.generate_name.empty()) {
    errors.Add("metadata.name", "is required, or generateName");
  }
}

}  // namespace downpour::api
