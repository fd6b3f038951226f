#include "operator/api/relations.h"

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "operator/api/all_reduce_relations.h"
#include "operator/api/dataset_relations.h"
#include "operator/api/document.h"
#include "operator/api/field_names.h"
#include "operator/api/training_relations.h"

namespace downpour::api {
namespace {

void CheckUpdate(const UpdateSpec& update, FieldErrors& errors) {
  const bool local = update.local_steps > 1;
  if (local && update.accumulate > 1) errors.Add("spec.update.accumulate", "is not for localSteps of more than 1");
  if (local && !update.local_optimizer.has_value()) {
    errors.Add("spec.update.localOptimizer", "is required for localSteps of more than 1");
  }
  if (!local && update.fetch_every > 1) errors.Add("spec.update.fetchEvery", "is for localSteps of more than 1");
  if (!update.local_optimizer.has_value()) return;
  const LocalOptimizerSpec& optimizer = *update.local_optimizer;
  const std::string path = "spec.update.localOptimizer";
  if (!local) errors.Add(path, "is for localSteps of more than 1");
  const auto check_type = [&](const std::optional<double>& value, const char* name, bool used, const char* types) {
    if (value.has_value() && !used) errors.Add(JoinPath(path, name), absl::StrCat("is for the ", types));
  };
  const LocalOptimizerType type = optimizer.type;
  const bool moments = type == LocalOptimizerType::kAdam || type == LocalOptimizerType::kAdamW;
  check_type(optimizer.momentum, "momentum", type == LocalOptimizerType::kMomentum, "type Momentum");
  check_type(optimizer.beta1, "beta1", moments, "types Adam and AdamW");
  check_type(optimizer.beta2, "beta2", moments, "types Adam and AdamW");
  check_type(optimizer.epsilon, "epsilon", moments, "types Adam and AdamW");
}

void CheckSchedule(const ScheduleSpec& schedule, FieldErrors& errors) {
  const std::string path = "spec.update.schedule";
  using Type = ScheduleType;
  const auto only_with = [&](const char* field, bool given, std::initializer_list<Type> types, const char* names) {
    if (!given || std::find(types.begin(), types.end(), schedule.type) != types.end()) return;
    const std::string type(schema::Choice<Type>(schema::kSchedules).NameOf(schedule.type));
    errors.Add(JoinPath(path, field), absl::StrCat("only with ", names, "; the type is ", type));
  };
  only_with("gamma", schedule.gamma.has_value(), {Type::kStep, Type::kExponential}, "Step, Exponential");
  only_with("every", schedule.every.has_value(), {Type::kStep, Type::kExponential}, "Step, Exponential");
  only_with("etaMin", schedule.eta_min.has_value(), {Type::kCosine}, "Cosine");
  only_with("pctStart", schedule.pct_start.has_value(), {Type::kOneCycle}, "OneCycle");
  only_with("divFactor", schedule.div_factor.has_value(), {Type::kOneCycle}, "OneCycle");
  only_with("finalDivFactor", schedule.final_div_factor.has_value(), {Type::kOneCycle}, "OneCycle");
  if (schedule.type == Type::kStep && !schedule.every.has_value()) {
    errors.Add(path + ".every", "is required for the type Step");
  }
  if (schedule.type == Type::kExponential && !schedule.gamma.has_value()) {
    errors.Add(path + ".gamma", "is required for the type Exponential");
  }
  if (schedule.every.has_value() && schedule.every->updates.has_value() == schedule.every->epochs.has_value()) {
    errors.Add(path + ".every", "must have exactly one of updates and epochs");
  }
  if (schedule.warmup.has_value() && schedule.warmup->updates.has_value() == schedule.warmup->fraction.has_value()) {
    errors.Add(path + ".warmup", "must have exactly one of updates and fraction");
  }
}

void CheckSandblaster(const UpdateSpec& update, FieldErrors& errors) {
  if (update.mode != UpdateMode::kSandblaster) {
    if (update.lbfgs.has_value()) errors.Add("spec.update.lbfgs", "is for the mode Sandblaster");
    return;
  }
  const auto refuse = [&errors](const char* path, bool given) {
    if (given) errors.Add(path, "is not for the mode Sandblaster");
  };
  refuse("spec.update.optimizer", !(update.optimizer == OptimizerSpec{}));
  refuse("spec.update.schedule", update.schedule.has_value());
  refuse("spec.update.accumulate", update.accumulate > 1);
  refuse("spec.update.localSteps", update.local_steps > 1);
  refuse("spec.update.clipNorm", update.clip_norm.has_value());
  refuse("spec.update.warmStart", update.warm_start.has_value());
  // The search needs the gradient of the point that it has, and all of it: no residual of the one before.
  refuse("spec.update.codec", update.codec != Codec::kFp32);
  refuse("spec.update.pullCodec", update.pull_codec != Codec::kFp32);
}

void CheckReplication(const TrainingJobSpec& spec, FieldErrors& errors) {
  const ParameterServerSpec& ps = *spec.parameter_server;
  const std::string path = "spec.parameterServer";
  if (ps.replicas < ps.replication_factor) {
    errors.Add(path + ".replicas",
               absl::StrCat("must be at least replicationFactor, ", ps.replication_factor, ", got ", ps.replicas));
  }
  if (!ps.replication.has_value()) return;
  const ReplicationSpec& replication = *ps.replication;
  if (ps.replication_factor < 2) errors.Add(path + ".replication", "is for a replicationFactor of more than 1");
  if (replication.type == ReplicationType::kSync) {
    if (replication.max_lag.has_value()) errors.Add(path + ".replication.maxLag", "is for the type Async");
    return;
  }
  // A step, or the point of a search, that is lost with its primary would be taken again from other values.
  const UpdateMode mode = spec.update.mode;
  if (mode == UpdateMode::kSynchronous || mode == UpdateMode::kSandblaster) {
    errors.Add(path + ".replication.type",
               absl::StrCat("must not be Async in the mode ",
                            std::string(schema::Choice<UpdateMode>(schema::kUpdateModes).NameOf(mode))));
  }
}

void CheckOptimizer(const OptimizerSpec& optimizer, FieldErrors& errors) {
  const std::string path = "spec.update.optimizer";
  const auto name_of = [](OptimizerType type) {
    return std::string(schema::Choice<OptimizerType>(schema::kOptimizers).NameOf(type));
  };
  const auto only_with = [&](const char* field, bool given, std::initializer_list<OptimizerType> types) {
    if (!given || std::find(types.begin(), types.end(), optimizer.type) != types.end()) return;
    std::string names;
    for (const OptimizerType type : types) absl::StrAppend(&names, names.empty() ? "" : ", ", name_of(type));
    errors.Add(absl::StrCat(path, ".", field),
               absl::StrCat("only with ", names, "; the type is ", name_of(optimizer.type)));
  };
  using Type = OptimizerType;
  only_with("momentum", optimizer.momentum.has_value(), {Type::kMomentum, Type::kNesterov});
  only_with("beta1", optimizer.beta1.has_value(), {Type::kAdam, Type::kAdamW, Type::kLamb});
  only_with("beta2", optimizer.beta2.has_value(), {Type::kAdam, Type::kAdamW, Type::kLamb});
  only_with("epsilon", optimizer.epsilon.has_value(),
            {Type::kAdagrad, Type::kRmsProp, Type::kAdam, Type::kAdamW, Type::kLamb, Type::kDelayCompensatedSgd});
  only_with("decay", optimizer.decay.has_value(), {Type::kRmsProp, Type::kDelayCompensatedSgd});
  only_with("initialAccumulator", optimizer.initial_accumulator.has_value(), {Type::kAdagrad});
  only_with("compensation", optimizer.compensation.has_value(), {Type::kDelayCompensatedSgd});
  only_with("lambda", optimizer.lambda.has_value(), {Type::kDelayCompensatedSgd});
  if (optimizer.type == Type::kDelayCompensatedSgd && optimizer.compensation == Compensation::kConstant) {
    const std::string message = "only with the compensation Adaptive; it is Constant";
    if (optimizer.epsilon.has_value()) errors.Add(path + ".epsilon", message);
    if (optimizer.decay.has_value()) errors.Add(path + ".decay", message);
  }
  const bool decays = optimizer.weight_decay.has_value()
                          ? *optimizer.weight_decay > 0
                          : optimizer.type == Type::kAdamW || optimizer.type == Type::kLamb;
  if (!optimizer.no_decay.empty() && !decays) {
    errors.Add(path + ".noDecay", "needs a weightDecay greater than 0");
  }
  if (optimizer.staleness_rule == StalenessRule::kGap && !optimizer.staleness_aware.value_or(true)) {
    errors.Add(path + ".stalenessRule", "Gap needs stalenessAware: true");
  }
}

void CheckMode(const UpdateSpec& update, FieldErrors& errors) {
  const std::string optimizer = "spec.update.optimizer";
  if (update.staleness.has_value() && update.mode != UpdateMode::kBoundedStaleness) {
    errors.Add("spec.update.staleness", "is for the mode BoundedStaleness");
  }
  const bool synchronous = update.mode == UpdateMode::kSynchronous;
  if (update.updates_per_step.has_value() && !synchronous) {
    errors.Add("spec.update.updatesPerStep", "is for the mode Synchronous");
  }
  if (update.fetch_every > 1 && update.mode != UpdateMode::kAsync) {
    errors.Add("spec.update.fetchEvery", "is for the mode Async");
  }
  const bool compensates = update.optimizer.type == OptimizerType::kDelayCompensatedSgd;
  const bool gap = update.optimizer.staleness_rule == StalenessRule::kGap;
  // A worker that goes on with its own values computes with none that a ps knows.
  if (update.fetch_every > 1 && (compensates || gap)) {
    errors.Add("spec.update.fetchEvery",
               compensates ? "is not for DelayCompensatedSGD" : "is not for the stalenessRule Gap");
  }
  if (synchronous && update.warm_start.has_value())
    errors.Add("spec.update.warmStart", "is not for the mode Synchronous");
  if (!synchronous || !errors.IsClean(optimizer)) return;
  const std::string why = "; in the mode Synchronous no update is late";
  if (compensates) errors.Add(optimizer + ".type", absl::StrCat("must not be DelayCompensatedSGD", why));
  if (gap) errors.Add(optimizer + ".stalenessRule", absl::StrCat("must not be Gap", why));
  if (update.optimizer.staleness_aware.value_or(false)) {
    errors.Add(optimizer + ".stalenessAware", absl::StrCat("must not be true", why));
  }
}

}  // namespace

void CheckRelations(const TrainingJobSpec& spec, FieldErrors& errors) {
  // Of a strategy that is none of both, nothing is known of what it needs.
  const bool all_reduce = spec.strategy == Strategy::kAllReduce;
  if (errors.IsClean("spec.strategy")) {
    if (all_reduce) {
      CheckAllReduce(spec, errors);
    } else {
      if (!spec.parameter_server.has_value()) {
        errors.Add("spec.parameterServer", "is required for the strategy ParameterServer");
      }
      const auto refuse = [&errors](const std::string& path, bool given) {
        if (given && errors.IsClean(path)) errors.Add(path, "is for the strategy AllReduce");
      };
      const ElasticSpec elastic = spec.elastic.value_or(ElasticSpec());
      refuse("spec.elastic.batchPolicy", elastic.batch_policy.has_value());
      refuse("spec.elastic.stateCopies", elastic.state_copies.has_value());
    }
  }
  if (errors.IsClean("spec.parameterServer") && errors.IsClean("spec.update.mode") &&
      spec.parameter_server.has_value() && !all_reduce) {
    CheckReplication(spec, errors);
  }
  if (errors.IsClean("spec.elastic") && spec.elastic.has_value() &&
      spec.elastic->min_replicas > spec.elastic->max_replicas) {
    errors.Add("spec.elastic.minReplicas", absl::StrCat("must be at most maxReplicas, ", spec.elastic->max_replicas,
                                                        ", got ", spec.elastic->min_replicas));
  }
  const ModelSpec& model = spec.model;
  if (errors.IsClean("spec.model")) {
    const bool of_plugin = model.plugin.has_value() && !model.plugin->name.empty();
    if (!model.name.empty() + !model.layers.empty() + of_plugin + model.torch_script.has_value() != 1) {
      errors.Add("spec.model", "must have exactly one of name, layers, plugin.name and torchScript");
    }
    if (model.name.empty() && !model.parameters.empty()) {
      errors.Add("spec.model.parameters", "is for a network with a name");
    }
    if (model.plugin.has_value() && !of_plugin && !model.plugin->parameters.empty()) {
      errors.Add("spec.model.plugin.parameters", "is for a network of the plug-in");
    }
  }
  // Others are in the plug-in, where only the trainer can look.
  const auto check_known = [&](const std::string& name, const auto& table, const std::string& path) {
    if (name.empty() || model.plugin.has_value() || !errors.IsClean(path)) return;
    std::string known;
    for (const auto& entry : table) {
      if (name == entry.name) return;
      absl::StrAppend(&known, known.empty() ? "" : ", ", std::string(entry.name));
    }
    errors.Add(path, absl::StrCat("must be one of ", known, "; got ", Quote(name)));
  };
  if (model.loss.has_value()) check_known(model.loss->type, schema::kLosses, "spec.model.loss.type");
  for (std::size_t i = 0; i < model.metrics.size(); ++i) {
    check_known(model.metrics[i], schema::kMetrics, JoinPath("spec.model.metrics", i));
  }
  if (errors.IsClean("spec.model.loss") && model.loss.has_value()) {
    if (model.loss->label_smoothing.has_value() && model.loss->type != "CrossEntropy") {
      errors.Add("spec.model.loss.labelSmoothing", "is for the type CrossEntropy");
    }
    if (model.loss->delta.has_value() && model.loss->type != "Huber") {
      errors.Add("spec.model.loss.delta", "is for the type Huber");
    }
  }
  if (errors.IsClean("spec.update.mode") && !all_reduce) CheckMode(spec.update, errors);
  if (errors.IsClean("spec.update.codec") && spec.update.top_k.has_value() && spec.update.codec != Codec::kTopK) {
    errors.Add("spec.update.topK", "is for the codec topK");
  }
  if (errors.IsClean("spec.dataset") && errors.IsClean("spec.training.evaluate")) {
    CheckDataset(spec.dataset, spec.training.evaluate, errors);
  }
  if (errors.IsClean("spec.checkpoint") && errors.IsClean("spec.model") && spec.checkpoint.has_value() &&
      !spec.checkpoint->keep_best.empty()) {
    const std::string path = "spec.checkpoint.keepBest";
    const std::string& best = spec.checkpoint->keep_best;
    if (std::find(model.metrics.begin(), model.metrics.end(), best) == model.metrics.end()) {
      errors.Add(path, absl::StrCat("must be one of spec.model.metrics",
                                    model.metrics.empty() ? ", which is empty" : "", "; got ", Quote(best)));
    } else if (!spec.training.evaluate) {
      errors.Add(path, "needs spec.training.evaluate: true, as metrics are measured then");
    }
  }
  if (errors.IsClean("spec.training") && spec.training.precision == Precision::kTf32 &&
      spec.training.device == Device::kCpu) {
    errors.Add("spec.training.precision", "tf32 is not for the device CPU: it is how a GPU multiplies");
  }
  if (errors.IsClean("spec.training") && spec.training.steps.has_value()) {
    if (spec.training.epochs.has_value()) errors.Add("spec.training.steps", "is not for a job of so many epochs");
    if (spec.update.mode == UpdateMode::kSandblaster) {
      errors.Add("spec.training.steps", "is not for the mode Sandblaster");
    }
  }
  if (errors.IsClean("spec.training") && errors.IsClean("spec.model") && errors.IsClean("spec.update")) {
    CheckMonitors(spec, errors);
  }
  if (errors.IsClean("spec.worker") && errors.IsClean("spec.training") && errors.IsClean("spec.update")) {
    CheckGpus(spec, errors);
  }
  if (errors.IsClean("spec.update") && !all_reduce) {
    CheckSandblaster(spec.update, errors);
    CheckUpdate(spec.update, errors);
  }
  if (errors.IsClean("spec.update.schedule") && spec.update.schedule.has_value()) {
    CheckSchedule(*spec.update.schedule, errors);
  }
  if (errors.IsClean("spec.update.optimizer")) CheckOptimizer(spec.update.optimizer, errors);
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
  check_unique(spec.dataset.class_names, "spec.dataset.classNames");
  for (std::size_t i = 0; i < spec.dataset.columns.size(); ++i) {
    check_unique(spec.dataset.columns[i].class_names, absl::StrCat("spec.dataset.columns[", i, "].classNames"));
  }
  check_unique(spec.update.optimizer.no_decay, "spec.update.optimizer.noDecay");
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
