#ifndef DOWNPOUR_OPERATOR_API_TESTING_RANDOM_JOB_H_
#define DOWNPOUR_OPERATOR_API_TESTING_RANDOM_JOB_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "operator/api/fields.h"
#include "operator/api/training_job.h"

// Jobs and statuses with random values, for tests of what must hold for all of them.
namespace downpour::api::testing {

// Fills every supported field with a random value that its rule allows.
class RandomFill {
 public:
  explicit RandomFill(std::mt19937_64& random) : random_(random) {}

  template <class Value, class Rule>
  void Field(std::string_view, Value& value, const Rule& rule,
             schema::Presence presence = schema::Presence::kOptional) {
    if (presence == schema::Presence::kUnsupported) return;
    if constexpr (requires { value.has_value(); }) {
      if (Below(2) == 0) Fill(value.emplace(), rule);
    } else {
      Fill(value, rule);
    }
  }
  void Dropped(std::string_view) {}

 private:
  std::size_t Below(std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_); }

  template <class Value>
  void Fill(Value& value, const schema::Object&) {
    schema::Fields(*this, value);
  }
  template <class Value>
  void Fill(Value& value, const schema::Integer& rule) {
    const std::int64_t max = std::min(rule.max, rule.supported_max);
    const std::int64_t choices[] = {rule.min, max, std::uniform_int_distribution<std::int64_t>(rule.min, max)(random_)};
    value = static_cast<Value>(choices[Below(3)]);
  }
  void Fill(double& value, const schema::Number&) {
    value = std::uniform_real_distribution<double>(1, 2)(random_) * std::pow(10, static_cast<int>(Below(600)) - 300);
    if (Below(2) == 0) value = -value;
    if (Below(4) == 0) value = 0;
  }
  void Fill(double& value, const schema::PositiveFloat& rule) {
    const double number =
        std::uniform_real_distribution<double>(1, 2)(random_) * std::pow(10, static_cast<int>(Below(76)) - 38);
    const double choices[] = {rule.kMin, rule.kMax, std::clamp(number, rule.kMin, rule.kMax)};
    value = choices[Below(3)];
  }
  void Fill(double& value, const schema::Time&) { Fill(value, schema::Number{}); }
  void Fill(bool& value, const schema::Flag&) { value = Below(2) == 0; }
  void Fill(std::string& value, const schema::Text& rule) {
    static const std::string kPool[] = {"",
                                        "a",
                                        "yes",
                                        "42",
                                        "worker-1",
                                        "OOMKilled",
                                        "DisruptionTarget",
                                        "/data/\"quoted\" {ünicode}: 😀 # no comment",
                                        "two\nlines\ttab\x01",
                                        "training.downpour.dev/operator",
                                        "512Mi",
                                        ";",
                                        kApiVersion,
                                        kKind};
    do {
      value = kPool[Below(std::size(kPool))];
    } while (!rule.check(value).empty() || (!rule.supported.empty() && value != rule.supported));
  }
  template <class Value, class Choice>
  void Fill(Value& value, const schema::Choice<Choice>& rule) {
    const schema::Name<Choice>* name = nullptr;
    do {
      name = &rule.names[Below(rule.names.size())];
    } while (!name->supported);
    value = name->value;
  }
  template <class Value, class Item>
  void Fill(std::vector<Value>& value, const schema::ListOf<Item>& rule) {
    value.assign(rule.min_size + Below(std::min<std::size_t>(rule.max_size - rule.min_size, 5) + 1), Value());
    for (Value& item : value) Fill(item, rule.item);
  }
  template <class Value, class Item>
  void Fill(std::map<std::string, Value>& value, const schema::MapOf<Item>& rule) {
    value.clear();
    for (std::size_t i = Below(4); i > 0; --i) {
      std::string key;
      Fill(key, schema::Text{rule.key});
      Fill(value[key], rule.item);
    }
  }
  void Fill(std::string& value, const schema::Template&) {
    static const std::string kPool[] = {
        "", "{}", R"({"metadata":{"labels":{"a":"1"}},"spec":{"restartPolicy":"Never"}})",
        R"({"spec":{"containers":[{"command":["","ünicode 😀"],"name":"trainer","x":[null,true,-1,1.5,1e+300,{"y":{}}]}]}})"};
    value = kPool[Below(std::size(kPool))];
  }
  void Fill(std::string& value, const schema::FreeMap&) { value = Below(2) == 0 ? "" : R"({"hidden":64})"; }
  void Fill(std::string& value, const schema::FreeList&) {
    value = Below(2) == 0 ? "" : R"([{"type":"flatten"},{"type":"dense","units":10}])";
  }
  void Fill(double& value, const schema::Fraction& rule) {
    value = rule.least + (rule.below - rule.least) * static_cast<double>(Below(8)) / 8;
  }
  void Fill(double& value, const schema::Share&) { value = static_cast<double>(1 + Below(8)) / 8; }
  void Fill(ResumeFrom& value, const schema::ResumePoint&) {
    const ResumeFrom choices[] = {{ResumeMode::kLatest, "", ""},
                                  {ResumeMode::kNever, "", ""},
                                  {ResumeMode::kTrainingJob, "before", ""},
                                  {ResumeMode::kUri, "", "s3://bucket/before"}};
    value = choices[Below(4)];
  }

  std::mt19937_64& random_;
};

template <class T>
void MakeUnique(std::vector<T>& values) {
  std::vector<T> unique;
  for (T& value : values) {
    if (std::find(unique.begin(), unique.end(), value) == unique.end()) unique.push_back(std::move(value));
  }
  values = std::move(unique);
}

// What the type has no use for.
inline void DropUnused(OptimizerSpec& optimizer) {
  using Type = OptimizerType;
  const Type type = optimizer.type;
  const bool adam = type == Type::kAdam || type == Type::kAdamW || type == Type::kLamb;
  const bool compensated = type == Type::kDelayCompensatedSgd;
  if (type != Type::kMomentum && type != Type::kNesterov) optimizer.momentum.reset();
  if (!adam) optimizer.beta1 = optimizer.beta2 = std::nullopt;
  if (!compensated) {
    optimizer.lambda.reset();
    optimizer.compensation.reset();
  }
  const bool constant = compensated && optimizer.compensation == Compensation::kConstant;
  if (constant || (type != Type::kRmsProp && !compensated)) optimizer.decay.reset();
  if (constant || type == Type::kSgd || type == Type::kMomentum || type == Type::kNesterov) optimizer.epsilon.reset();
  if (type != Type::kAdagrad) optimizer.initial_accumulator.reset();
  MakeUnique(optimizer.no_decay);
  if (!optimizer.no_decay.empty()) optimizer.weight_decay = 0.5;
  if (!optimizer.staleness_aware.value_or(true)) optimizer.staleness_rule = StalenessRule::kDivide;
}

// Likewise, and what it needs is given.
inline void DropUnused(ScheduleSpec& schedule) {
  const bool counts = schedule.type == ScheduleType::kStep || schedule.type == ScheduleType::kExponential;
  if (!counts) schedule.gamma.reset();
  if (!counts) schedule.every.reset();
  if (schedule.type == ScheduleType::kStep && !schedule.every.has_value()) schedule.every.emplace();
  if (schedule.type == ScheduleType::kExponential && !schedule.gamma.has_value()) schedule.gamma = 0.5;
  if (schedule.every.has_value()) {
    if (schedule.every->updates.has_value()) schedule.every->epochs.reset();
    if (!schedule.every->updates.has_value() && !schedule.every->epochs.has_value()) schedule.every->epochs = 3;
  }
  if (schedule.type != ScheduleType::kCosine) schedule.eta_min.reset();
  if (schedule.type != ScheduleType::kOneCycle) {
    schedule.pct_start = schedule.div_factor = schedule.final_div_factor = std::nullopt;
  }
  if (schedule.warmup.has_value()) {
    if (schedule.warmup->updates.has_value()) schedule.warmup->fraction.reset();
    if (!schedule.warmup->updates.has_value() && !schedule.warmup->fraction.has_value()) schedule.warmup->updates = 9;
  }
}

// Likewise.
inline void DropUnused(TransformSpec& transform) {
  const std::string type = transform.type;
  const bool sized = type == "Resize" || type == "CenterCrop" || type == "RandomCrop";
  if (sized && !transform.height.has_value()) transform.height = 7;
  if (sized && !transform.width.has_value()) transform.width = 8;
  if (!sized) transform.height = transform.width = std::nullopt;
  if (type != "RandomCrop") transform.padding.reset();
  if (type != "RandomFlip") transform.probability.reset();
  if (type != "ColorJitter") transform.brightness = transform.contrast = transform.saturation = std::nullopt;
  transform.mean.assign(type == "Normalize" ? 2 : 0, 0.25);
  transform.std.assign(type == "Normalize" ? 2 : 0, 0.5);
  if (type != "Tokenize") transform.vocabulary = transform.max_length = std::nullopt;
  if (type == "Tokenize" && !transform.vocabulary.has_value()) transform.vocabulary = 1000;
  if (type != "OneHot") transform.classes.reset();
  transform.dtype = type == "Cast" ? "i32" : "";
}

inline void DropUnused(DatasetSpec& dataset, bool evaluates) {
  const bool generated = dataset.synthetic.has_value();
  if (generated) dataset.format = "Synthetic";
  if (!generated && dataset.format == "Synthetic") dataset.format = "IDX";
  const std::string& format = dataset.format;
  dataset.path = generated ? "" : "/data";
  const bool tested = generated || format == "IDX" || format == "CIFAR10" || format == "CIFAR100";
  if (tested) dataset.test_path.clear();
  if (tested || !dataset.test_path.empty()) dataset.split.reset();
  if (!tested && evaluates && dataset.test_path.empty() && !dataset.split.has_value()) dataset.test_path = "/test";
  if (dataset.split.has_value() && !dataset.split->validation.has_value()) dataset.split->validation = 0.25;
  for (TransformSpec& transform : dataset.transforms) DropUnused(transform);
  for (DatasetFieldSpec& field : dataset.fields) {
    if (!field.columns.empty()) field.column.clear();
    if (!field.columns.empty()) field.classes.reset();
    if (field.columns.empty() && field.column.empty()) field.column = "a";
    if (field.name.empty()) field.name = "b";
  }
  const bool typed = format == "CSV" || format == "TFRecord";
  const bool chosen = typed || format == "Parquet" || format == "SafeTensors" || format == "WebDataset";
  if (!chosen) dataset.columns.clear();
  for (ColumnSpec& column : dataset.columns) {
    column.type = typed ? "i64" : "";
    if (format != "TFRecord") column.shape.clear();
    column.class_names.clear();
  }
  if (format != "ImageFolder" && format != "Text") dataset.class_names.clear();
  if (format != "CSV") dataset.csv.reset();
  if (format != "Text") dataset.text_layout.clear();
  if (format != "ImageFolder" && format != "TFRecord" && format != "WebDataset") dataset.channels.reset();
  if (dataset.channels == 2) dataset.channels = 1;
  if (!dataset.shuffle_blocks) dataset.shuffle_block.reset();
  MakeUnique(dataset.class_names);
}

// What looks at evaluations, where there are none, and metrics that there are not.
inline void DropUnmeasured(TrainingJobSpec& spec) {
  TrainingSpec& training = spec.training;
  if (training.device == Device::kCpu && training.precision == Precision::kTf32) training.precision = Precision::kFp32;
  if (!training.evaluate || spec.update.mode == UpdateMode::kSandblaster) {
    training.early_stopping.reset();
    training.reduce_on_plateau.reset();
    training.keep_best.reset();
  }
  if (spec.output.directory.empty()) training.keep_best.reset();
  const std::string metric = spec.model.metrics.empty() ? "Loss" : spec.model.metrics.front();
  if (training.early_stopping.has_value()) training.early_stopping->metric = metric;
  if (training.keep_best.has_value()) training.keep_best->metric = metric;
  if (!training.reduce_on_plateau.has_value()) return;
  ReduceOnPlateauSpec& reduce = *training.reduce_on_plateau;
  reduce.metric = "Loss";
  if (reduce.factor == 1) reduce.factor = 0.5;
  const bool local = spec.update.local_optimizer.has_value();
  const double rate = local ? spec.update.local_optimizer->learning_rate : spec.update.optimizer.learning_rate;
  if (reduce.min_learning_rate >= rate) reduce.min_learning_rate = 0;
}

inline void DropUnused(ParameterServerSpec& ps, UpdateMode mode) {
  ps.replicas = std::max(ps.replicas, ps.replication_factor);
  if (ps.replication_factor < 2) ps.replication.reset();
  if (!ps.replication.has_value()) return;
  if (mode == UpdateMode::kSynchronous || mode == UpdateMode::kSandblaster) {
    ps.replication->type = ReplicationType::kSync;
  }
  if (ps.replication->type == ReplicationType::kSync) ps.replication->max_lag.reset();
}

// What the strategy has no use for, and what it needs is given.
inline void DropUnusedOfStrategy(TrainingJobSpec& spec) {
  if (spec.strategy == Strategy::kParameterServer) {
    if (!spec.parameter_server.has_value()) spec.parameter_server.emplace();
    DropUnused(*spec.parameter_server, spec.update.mode);
    if (spec.elastic.has_value()) {
      spec.elastic->batch_policy.reset();
      spec.elastic->state_copies.reset();
    }
    return;
  }
  spec.parameter_server.reset();
  spec.pod_cleanup.parameter_server.reset();
  if (spec.checkpoint.has_value()) spec.checkpoint->extra_memory.clear();
  UpdateSpec& update = spec.update;
  update.mode = UpdateMode::kSynchronous;
  update.codec = update.pull_codec = Codec::kFp32;
  update.local_optimizer.reset();
  const bool scales = spec.elastic.has_value() && spec.elastic->batch_policy == BatchPolicy::kScaleLearningRate;
  if (scales) update.updates_per_step.reset();
  if (update.optimizer.type == OptimizerType::kLamb && spec.elastic.has_value()) spec.elastic->state_copies.reset();
}

inline TrainingJob RandomJob(std::mt19937_64& random) {
  TrainingJob job;
  RandomFill fill(random);
  schema::Fields(fill, job);
  DropUnusedOfStrategy(job.spec);
  ModelSpec& model = job.spec.model;
  const bool of_plugin = model.plugin.has_value() && !model.plugin->name.empty();
  if (of_plugin) model.layers.clear();
  if (of_plugin || !model.layers.empty()) model.torch_script.reset();
  model.name = of_plugin || !model.layers.empty() || model.torch_script.has_value() ? "" : "LeNet";
  if (model.name.empty()) model.parameters.clear();
  if (model.plugin.has_value() && !of_plugin) model.plugin->parameters.clear();
  if (!model.plugin.has_value()) {
    model.metrics = {"Accuracy", "Top5Accuracy"};
    if (model.loss.has_value()) model.loss->type = "Huber";
  }
  DropUnused(job.spec.dataset, job.spec.training.evaluate);
  if (model.loss.has_value()) {
    if (model.loss->type != "CrossEntropy") model.loss->label_smoothing.reset();
    if (model.loss->type != "Huber") model.loss->delta.reset();
  }
  if (job.spec.update.mode != UpdateMode::kBoundedStaleness) job.spec.update.staleness.reset();
  if (UpdateSpec& search = job.spec.update; search.mode == UpdateMode::kSandblaster) {
    const std::optional<LbfgsSpec> lbfgs = search.lbfgs;
    search = UpdateSpec{};
    search.mode = UpdateMode::kSandblaster;
    search.lbfgs = lbfgs;
  } else {
    search.lbfgs.reset();
  }
  if (job.spec.training.epochs.has_value() || job.spec.update.mode == UpdateMode::kSandblaster) {
    job.spec.training.steps.reset();
  }
  DropUnmeasured(job.spec);
  if (job.spec.update.codec != Codec::kTopK) job.spec.update.top_k.reset();
  MakeUnique(model.metrics);
  if (job.spec.checkpoint.has_value()) {
    const bool measures = job.spec.training.evaluate && !model.metrics.empty();
    job.spec.checkpoint->keep_best = measures ? model.metrics.front() : "";
  }
  UpdateSpec& update = job.spec.update;
  if (update.mode != UpdateMode::kSynchronous) update.updates_per_step.reset();
  if (update.mode == UpdateMode::kSynchronous) {
    update.warm_start.reset();
    OptimizerSpec& optimizer = update.optimizer;
    if (optimizer.type == OptimizerType::kDelayCompensatedSgd) optimizer.type = OptimizerType::kSgd;
    optimizer.staleness_aware.reset();
    optimizer.staleness_rule = StalenessRule::kDivide;
  }
  const bool compensates = update.optimizer.type == OptimizerType::kDelayCompensatedSgd;
  const bool gap = update.optimizer.staleness_rule == StalenessRule::kGap;
  if (update.mode != UpdateMode::kAsync || compensates || gap) update.fetch_every = 1;
  if (update.local_optimizer.has_value()) {
    update.local_steps = std::max(update.local_steps, 2);
    update.accumulate = 1;
    LocalOptimizerSpec& optimizer = *update.local_optimizer;
    if (optimizer.type != LocalOptimizerType::kMomentum) optimizer.momentum.reset();
    if (optimizer.type == LocalOptimizerType::kSgd || optimizer.type == LocalOptimizerType::kMomentum) {
      optimizer.beta1.reset();
      optimizer.beta2.reset();
      optimizer.epsilon.reset();
    }
  } else {
    update.local_steps = 1;
    update.fetch_every = 1;
  }
  if (job.spec.worker.gpus.value_or(1) > job.spec.training.batch_size || update.local_steps > 1) {
    job.spec.worker.gpus.reset();
  }
  MakeUnique(model.frozen);
  DropUnused(job.spec.update.optimizer);
  if (update.schedule.has_value()) DropUnused(*update.schedule);
  FailurePolicy& policy = job.spec.failure_policy;
  if (policy.backoff.initial_seconds > policy.backoff.max_seconds) policy.backoff.max_seconds = 86400;
  if (std::optional<ElasticSpec>& elastic = job.spec.elastic; elastic.has_value()) {
    if (elastic->min_replicas > elastic->max_replicas) std::swap(elastic->min_replicas, elastic->max_replicas);
  }
  for (std::size_t i = 0; i < policy.rules.size(); ++i) {
    FailureRule& rule = policy.rules[i];
    rule.name = "rule-" + std::to_string(i);
    rule.roles.push_back(Role::kWorker);
    MakeUnique(rule.roles);
    MakeUnique(rule.on_pod_conditions);
    MakeUnique(rule.on_container_reasons);
    if (rule.on_exit_codes.has_value()) MakeUnique(rule.on_exit_codes->values);
  }
  return job;
}

// Puts every time on a whole microsecond of the years 1970 to 2200.
class WholeMicroseconds {
 public:
  explicit WholeMicroseconds(std::mt19937_64& random) : random_(random) {}

  template <class Value, class Rule>
  void Field(std::string_view, Value& value, const Rule& rule, schema::Presence = schema::Presence::kOptional) {
    if constexpr (requires { value.has_value(); }) {
      if (value.has_value()) Round(*value, rule);
    } else {
      Round(value, rule);
    }
  }

 private:
  template <class Value, class Rule>
  void Round(Value&, const Rule&) {}
  template <class Value>
  void Round(Value& value, const schema::Object&) {
    schema::Fields(*this, value);
  }
  template <class Value, class Item>
  void Round(std::vector<Value>& values, const schema::ListOf<Item>& rule) {
    for (Value& value : values) Round(value, rule.item);
  }
  void Round(double& value, const schema::Time&) {
    value = static_cast<double>(std::uniform_int_distribution<std::int64_t>(0, 7258118400000000)(random_)) / 1e6;
  }

  std::mt19937_64& random_;
};

// Survives being written with times as RFC 3339.
inline TrainingJobStatus RandomStatus(std::mt19937_64& random) {
  TrainingJobStatus status;
  RandomFill fill(random);
  schema::Fields(fill, status);
  WholeMicroseconds round(random);
  schema::Fields(round, status);
  return status;
}

}  // namespace downpour::api::testing

#endif  // DOWNPOUR_OPERATOR_API_TESTING_RANDOM_JOB_H_
