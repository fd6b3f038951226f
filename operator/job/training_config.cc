#include "operator/job/training_config.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "operator/api/memory.h"
#include "operator/planner/context.h"

namespace downpour::job {
namespace {

v1::Device ToProto(api::Device device) {
  switch (device) {
    case api::Device::kAuto:
      return v1::DEVICE_AUTO;
    case api::Device::kCpu:
      return v1::DEVICE_CPU;
    case api::Device::kCuda:
      return v1::DEVICE_CUDA;
  }
  return v1::DEVICE_AUTO;
}

v1::Precision ToProto(api::Precision precision) {
  switch (precision) {
    case api::Precision::kFp32:
      return v1::PRECISION_FP32;
    case api::Precision::kTf32:
      return v1::PRECISION_TF32;
    case api::Precision::kBf16:
      return v1::PRECISION_BF16;
  }
  return v1::PRECISION_FP32;
}

v1::MemoryFormat ToProto(api::MemoryFormat format) {
  switch (format) {
    case api::MemoryFormat::kAuto:
      return v1::MEMORY_FORMAT_AUTO;
    case api::MemoryFormat::kContiguous:
      return v1::MEMORY_FORMAT_CONTIGUOUS;
    case api::MemoryFormat::kChannelsLast:
      return v1::MEMORY_FORMAT_CHANNELS_LAST;
  }
  return v1::MEMORY_FORMAT_AUTO;
}

v1::Codec ToProto(api::Codec codec) {
  switch (codec) {
    case api::Codec::kFp32:
      return v1::CODEC_FP32;
    case api::Codec::kBf16:
      return v1::CODEC_BF16;
    case api::Codec::kInt8:
      return v1::CODEC_INT8;
    case api::Codec::kTopK:
      return v1::CODEC_TOP_K;
    case api::Codec::kOneBit:
      return v1::CODEC_ONE_BIT;
  }
  return v1::CODEC_FP32;
}

v1::ModelConfig ToProto(const api::ModelSpec& spec) {
  v1::ModelConfig config;
  config.set_name(spec.name);
  config.set_parameters(spec.parameters);
  config.set_layers(spec.layers);
  if (spec.loss.has_value()) {
    config.mutable_loss()->set_type(spec.loss->type);
    config.mutable_loss()->set_label_smoothing(spec.loss->label_smoothing.value_or(0));
    config.mutable_loss()->set_delta(spec.loss->delta.value_or(0));
  }
  config.mutable_metrics()->Add(spec.metrics.begin(), spec.metrics.end());
  config.mutable_frozen()->Add(spec.frozen.begin(), spec.frozen.end());
  if (spec.plugin.has_value()) {
    config.mutable_plugin()->set_path(spec.plugin->path);
    config.mutable_plugin()->set_name(spec.plugin->name);
    config.mutable_plugin()->set_parameters(spec.plugin->parameters);
  }
  if (spec.initial_weights.has_value()) {
    config.mutable_initial_weights()->set_path(spec.initial_weights->path);
    config.mutable_initial_weights()->set_any_names(!spec.initial_weights->strict);
  }
  if (spec.torch_script.has_value()) config.set_torch_script(spec.torch_script->path);
  return config;
}

// Below the folder that several jobs share, this one's.
std::string FolderOf(const std::string& uri, const std::string& name) {
  const std::size_t end = uri.find_last_not_of('/');
  return absl::StrCat(end == std::string::npos ? "" : uri.substr(0, end + 1), "/", name);
}

v1::CheckpointConfig ToProto(const api::CheckpointSpec& spec, const std::string& name) {
  v1::CheckpointConfig config;
  config.set_uri(FolderOf(spec.uri, name));
  config.set_interval_seconds(static_cast<std::uint32_t>(spec.interval_seconds));
  config.set_keep(static_cast<std::uint32_t>(spec.keep));
  config.set_keep_best(spec.keep_best);
  config.set_extra_bytes_limit(api::ParseMemory(spec.extra_memory).value_or(0));
  switch (spec.resume_from.mode) {
    case api::ResumeMode::kLatest:
      config.set_resume(v1::RESUME_LATEST);
      break;
    case api::ResumeMode::kNever:
      config.set_resume(v1::RESUME_NEVER);
      break;
    case api::ResumeMode::kTrainingJob:
      config.set_resume(v1::RESUME_FROM);
      config.set_resume_uri(FolderOf(spec.uri, spec.resume_from.training_job));
      break;
    case api::ResumeMode::kUri:
      config.set_resume(v1::RESUME_FROM);
      config.set_resume_uri(spec.resume_from.uri);
      break;
  }
  return config;
}

v1::TrackingConfig ToProto(const api::TrackingSpec& spec, const std::string& name) {
  v1::TrackingConfig config;
  if (spec.tensorboard.has_value()) {
    config.mutable_tensorboard()->set_directory(FolderOf(spec.tensorboard->directory, name));
    config.mutable_tensorboard()->set_histograms(spec.tensorboard->histograms);
  }
  if (spec.mlflow.has_value()) {
    config.mutable_mlflow()->set_uri(spec.mlflow->uri);
    config.mutable_mlflow()->set_experiment(spec.mlflow->experiment);
    config.mutable_mlflow()->set_run_name(spec.mlflow->run_name);
  }
  return config;
}

v1::TransformConfig ToProto(const api::TransformSpec& spec) {
  const auto number = [](const std::optional<int>& value) { return static_cast<std::uint32_t>(value.value_or(0)); };
  v1::TransformConfig config;
  config.set_type(spec.type);
  config.set_field(spec.field);
  config.set_height(number(spec.height));
  config.set_width(number(spec.width));
  config.set_padding(number(spec.padding));
  config.set_probability(spec.probability.value_or(0.5));
  config.set_brightness(spec.brightness.value_or(0));
  config.set_contrast(spec.contrast.value_or(0));
  config.set_saturation(spec.saturation.value_or(0));
  config.mutable_mean()->Add(spec.mean.begin(), spec.mean.end());
  config.mutable_deviation()->Add(spec.std.begin(), spec.std.end());
  config.set_words(number(spec.vocabulary));
  config.set_max_length(number(spec.max_length));
  config.set_classes(number(spec.classes));
  config.set_element_type(spec.dtype);
  return config;
}

v1::DatasetConfig ToProto(const api::DatasetSpec& spec) {
  v1::DatasetConfig config;
  config.set_format(spec.format);
  config.set_path(spec.path);
  config.set_test_path(spec.test_path);
  if (spec.split.has_value()) {
    config.set_validation(spec.split->validation.value_or(0));
    config.set_split_seed(static_cast<std::uint64_t>(spec.split->seed));
  }
  for (const api::DatasetFieldSpec& field : spec.fields) {
    v1::DatasetFieldConfig& to = *config.add_fields();
    to.set_column(field.column);
    to.set_name(field.name);
    to.set_target(field.target);
    to.set_classes(static_cast<std::uint32_t>(field.classes.value_or(0)));
    to.mutable_columns()->Add(field.columns.begin(), field.columns.end());
  }
  for (const api::TransformSpec& transform : spec.transforms) *config.add_transforms() = ToProto(transform);
  for (const api::ColumnSpec& column : spec.columns) {
    v1::ColumnConfig& to = *config.add_columns();
    to.set_name(column.name);
    to.set_type(column.type);
    to.mutable_shape()->Add(column.shape.begin(), column.shape.end());
    to.mutable_class_names()->Add(column.class_names.begin(), column.class_names.end());
  }
  config.mutable_class_names()->Add(spec.class_names.begin(), spec.class_names.end());
  if (spec.csv.has_value()) {
    config.set_no_header(!spec.csv->header);
    config.set_delimiter(spec.csv->delimiter);
  }
  config.set_text_layout(spec.text_layout);
  config.set_channels(static_cast<std::uint32_t>(spec.channels.value_or(0)));
  if (spec.on_bad_sample.has_value() && spec.on_bad_sample->skip) {
    config.set_skip_bad_samples(true);
    config.set_most_bad_samples(static_cast<std::uint64_t>(spec.on_bad_sample->limit));
  }
  if (spec.threads.has_value()) config.set_threads(static_cast<std::uint32_t>(*spec.threads));
  if (spec.prefetch.has_value()) config.set_prefetch(static_cast<std::uint32_t>(*spec.prefetch));
  config.set_pin_memory(spec.pin_memory);
  config.set_on_device(spec.on_device == api::OnDevice::kAlways  ? v1::ON_DEVICE_ALWAYS
                       : spec.on_device == api::OnDevice::kNever ? v1::ON_DEVICE_NEVER
                                                                 : v1::ON_DEVICE_AUTO);
  if (spec.cache.has_value()) {
    config.set_cache_directory(spec.cache->directory);
    config.set_cache_bytes(static_cast<std::uint64_t>(api::ParseMemory(spec.cache->size).value_or(0)));
  }
  if (spec.shuffle_blocks) {
    config.set_shuffle_block(static_cast<std::uint64_t>(spec.shuffle_block.value_or(api::kDefaultShuffleBlock)));
  }
  if (!spec.synthetic.has_value()) return config;
  const auto number = [](const std::optional<std::int64_t>& value) {
    return static_cast<std::uint64_t>(value.value_or(0));
  };
  v1::SyntheticConfig& synthetic = *config.mutable_synthetic();
  synthetic.set_kind(spec.synthetic->kind);
  synthetic.set_samples(number(spec.synthetic->samples));
  synthetic.set_test_samples(number(spec.synthetic->test_samples));
  synthetic.set_seed(number(spec.synthetic->seed));
  synthetic.mutable_shape()->Add(spec.synthetic->shape.begin(), spec.synthetic->shape.end());
  synthetic.set_classes(number(spec.synthetic->classes));
  synthetic.set_vocabulary(number(spec.synthetic->vocabulary));
  synthetic.set_min_length(number(spec.synthetic->min_length));
  synthetic.set_max_length(number(spec.synthetic->max_length));
  return config;
}

v1::LocalStepsConfig::Optimizer ToProto(api::LocalOptimizerType type) {
  switch (type) {
    case api::LocalOptimizerType::kMomentum:
      return v1::LocalStepsConfig::MOMENTUM;
    case api::LocalOptimizerType::kAdam:
      return v1::LocalStepsConfig::ADAM;
    case api::LocalOptimizerType::kAdamW:
      return v1::LocalStepsConfig::ADAMW;
    case api::LocalOptimizerType::kSgd:
      break;
  }
  return v1::LocalStepsConfig::SGD;
}

// Absent numbers are those of torch.optim.lr_scheduler.
v1::ScheduleConfig ToProto(const api::ScheduleSpec& spec) {
  v1::ScheduleConfig config;
  const auto set_every = [&](double gamma) {
    config.set_gamma(spec.gamma.value_or(gamma));
    const api::ScheduleInterval every = spec.every.value_or(api::ScheduleInterval{.epochs = 1});
    config.set_every_updates(static_cast<std::uint64_t>(every.updates.value_or(0)));
    config.set_every_epochs(static_cast<std::uint32_t>(every.epochs.value_or(0)));
  };
  switch (spec.type) {
    case api::ScheduleType::kConstant:
      break;
    case api::ScheduleType::kStep:
      config.set_type(v1::SCHEDULE_STEP);
      set_every(0.1);
      break;
    case api::ScheduleType::kExponential:
      config.set_type(v1::SCHEDULE_EXPONENTIAL);
      set_every(1);
      break;
    case api::ScheduleType::kCosine:
      config.set_type(v1::SCHEDULE_COSINE);
      config.set_eta_min(spec.eta_min.value_or(0));
      break;
    case api::ScheduleType::kOneCycle:
      config.set_type(v1::SCHEDULE_ONE_CYCLE);
      config.set_pct_start(spec.pct_start.value_or(0.3));
      config.set_div_factor(spec.div_factor.value_or(25));
      config.set_final_div_factor(spec.final_div_factor.value_or(1e4));
      break;
  }
  if (!spec.warmup.has_value()) return config;
  config.mutable_warm_up()->set_updates(static_cast<std::uint64_t>(spec.warmup->updates.value_or(0)));
  config.mutable_warm_up()->set_fraction(spec.warmup->fraction.value_or(0));
  config.mutable_warm_up()->set_from(spec.warmup->from);
  return config;
}

v1::LocalStepsConfig ToProto(const api::UpdateSpec& update) {
  const api::LocalOptimizerSpec& optimizer = *update.local_optimizer;
  v1::LocalStepsConfig config;
  config.set_count(update.local_steps);
  config.set_fetch_every(update.fetch_every);
  config.set_optimizer(ToProto(optimizer.type));
  config.set_learning_rate(optimizer.learning_rate);
  config.set_momentum(optimizer.momentum.value_or(0.9));
  config.set_beta1(optimizer.beta1.value_or(0.9));
  config.set_beta2(optimizer.beta2.value_or(0.999));
  config.set_epsilon(optimizer.epsilon.value_or(1e-8));
  const bool decoupled = optimizer.type == api::LocalOptimizerType::kAdamW;
  config.set_weight_decay(optimizer.weight_decay.value_or(decoupled ? 0.01 : 0));
  return config;
}

void SetSearch(const api::LbfgsSpec& spec, v1::TrainingConfig* config) {
  config->mutable_optimizer()->Clear();
  config->mutable_optimizer()->set_type(v1::LBFGS);
  config->mutable_optimizer()->set_history(static_cast<std::uint32_t>(spec.history));
  config->mutable_lbfgs()->set_gradient_tolerance(spec.gradient_tolerance);
  config->mutable_lbfgs()->set_max_iterations(static_cast<std::uint32_t>(spec.max_iterations));
}

// Absent numbers are those of torch.optim, and where it has none those of the paper.
v1::OptimizerConfig ToProto(const api::OptimizerSpec& spec) {
  v1::OptimizerConfig config;
  config.set_learning_rate(spec.learning_rate);
  config.set_staleness_rule(spec.staleness_rule == api::StalenessRule::kGap ? v1::STALENESS_GAP : v1::STALENESS_DIVIDE);
  config.set_weight_decay(spec.weight_decay.value_or(0));
  config.mutable_no_decay()->Add(spec.no_decay.begin(), spec.no_decay.end());
  const auto set_momentum = [&] { config.set_momentum(spec.momentum.value_or(0.9)); };
  const auto set_adam = [&](double epsilon, double weight_decay) {
    config.set_beta1(spec.beta1.value_or(0.9));
    config.set_beta2(spec.beta2.value_or(0.999));
    config.set_epsilon(spec.epsilon.value_or(epsilon));
    config.set_weight_decay(spec.weight_decay.value_or(weight_decay));
  };
  switch (spec.type) {
    case api::OptimizerType::kSgd:
      config.set_type(v1::SGD);
      break;
    case api::OptimizerType::kMomentum:
      config.set_type(v1::MOMENTUM);
      set_momentum();
      break;
    case api::OptimizerType::kNesterov:
      config.set_type(v1::NESTEROV);
      set_momentum();
      break;
    case api::OptimizerType::kAdagrad:
      config.set_type(v1::ADAGRAD);
      config.set_epsilon(spec.epsilon.value_or(1e-10));
      config.set_initial_accumulator(spec.initial_accumulator.value_or(0));
      break;
    case api::OptimizerType::kRmsProp:
      config.set_type(v1::RMS_PROP);
      config.set_decay(spec.decay.value_or(0.99));
      config.set_epsilon(spec.epsilon.value_or(1e-8));
      break;
    case api::OptimizerType::kAdam:
      config.set_type(v1::ADAM);
      set_adam(1e-8, 0);
      break;
    case api::OptimizerType::kAdamW:
      config.set_type(v1::ADAM_W);
      set_adam(1e-8, 0.01);
      break;
    case api::OptimizerType::kLamb:
      config.set_type(v1::LAMB);
      set_adam(1e-6, 0.01);
      break;
    case api::OptimizerType::kDelayCompensatedSgd: {
      const bool adaptive = spec.compensation.value_or(api::Compensation::kAdaptive) == api::Compensation::kAdaptive;
      config.set_type(v1::DELAY_COMPENSATED_SGD);
      config.set_compensation(adaptive ? v1::COMPENSATION_ADAPTIVE : v1::COMPENSATION_CONSTANT);
      config.set_lambda(spec.lambda.value_or(adaptive ? 2 : 0.04));
      if (!adaptive) break;
      config.set_decay(spec.decay.value_or(0.95));
      config.set_epsilon(spec.epsilon.value_or(1e-7));
      break;
    }
  }
  return config;
}

v1::EarlyStoppingConfig ToProto(const api::EarlyStoppingSpec& spec) {
  v1::EarlyStoppingConfig config;
  config.set_metric(spec.metric);
  config.set_min_delta(spec.min_delta);
  config.set_patience(static_cast<std::uint32_t>(spec.patience));
  config.set_start_from_epoch(static_cast<std::uint32_t>(spec.start_from_epoch));
  return config;
}

v1::ReduceOnPlateauConfig ToProto(const api::ReduceOnPlateauSpec& spec) {
  v1::ReduceOnPlateauConfig config;
  config.set_metric(spec.metric);
  config.set_min_delta(spec.min_delta);
  config.set_factor(spec.factor);
  // There so many epochs are let pass, and the rate is reduced with the next one.
  config.set_patience(static_cast<std::uint32_t>(spec.patience - 1));
  config.set_cooldown(static_cast<std::uint32_t>(spec.cooldown));
  config.set_min_learning_rate(spec.min_learning_rate);
  return config;
}

// What depends on the mode, that of the optimizer included.
void SetMode(const api::TrainingJobSpec& spec, v1::TrainingConfig* config) {
  config->mutable_optimizer()->set_staleness_aware(spec.update.optimizer.staleness_aware.value_or(true));
  int workers = spec.worker.replicas;
  if (spec.elastic.has_value()) workers = std::clamp(workers, spec.elastic->min_replicas, spec.elastic->max_replicas);
  config->set_workers(static_cast<std::uint32_t>(workers));
  config->set_warm_start(static_cast<std::uint64_t>(spec.update.warm_start.value_or(0)));
  const bool all_reduce = spec.strategy == api::Strategy::kAllReduce;
  if (all_reduce) {
    config->set_workers(static_cast<std::uint32_t>(planner::DesiredReplicas(spec, api::Role::kWorker)));
  }
  switch (all_reduce ? api::UpdateMode::kSynchronous : spec.update.mode) {
    case api::UpdateMode::kAsync:
      config->set_mode(v1::ASYNC);
      break;
    case api::UpdateMode::kBoundedStaleness:
      config->set_mode(v1::BOUNDED_STALENESS);
      config->set_staleness(static_cast<std::uint32_t>(spec.update.staleness.value_or(api::kUsualStaleness)));
      break;
    case api::UpdateMode::kSynchronous:
      config->set_mode(v1::SYNCHRONOUS);
      config->set_updates_per_step(static_cast<std::uint32_t>(spec.update.updates_per_step.value_or(0)));
      config->mutable_optimizer()->set_staleness_aware(false);
      break;
    case api::UpdateMode::kSandblaster:
      config->set_mode(v1::SANDBLASTER);
      SetSearch(spec.update.lbfgs.value_or(api::LbfgsSpec()), config);
      break;
  }
}

void SetAllReduce(const api::TrainingJobSpec& spec, v1::TrainingConfig* config) {
  v1::AllReduceConfig& all_reduce = *config->mutable_all_reduce();
  all_reduce.set_least_workers(1);
  if (!spec.elastic.has_value()) return;
  all_reduce.set_least_workers(static_cast<std::uint32_t>(spec.elastic->min_replicas));
  if (spec.elastic->batch_policy == api::BatchPolicy::kScaleLearningRate) {
    all_reduce.set_batch_policy(v1::AllReduceConfig::SCALE_LEARNING_RATE);
  }
  all_reduce.set_state_copies(static_cast<std::uint32_t>(spec.elastic->state_copies.value_or(0)));
}

void SetReplication(const api::ParameterServerSpec& spec, v1::TrainingConfig* config) {
  config->set_replication_factor(static_cast<std::uint32_t>(spec.replication_factor));
  if (spec.replication.has_value()) {
    config->set_replication_lag(static_cast<std::uint32_t>(spec.replication->lag()));
  }
}

}  // namespace

v1::TrainingConfig ToTrainingConfig(const api::TrainingJob& job, const std::string& job_uid,
                                    const std::string& output_directory) {
  const api::TrainingJobSpec& spec = job.spec;
  v1::TrainingConfig config;
  config.set_job_uid(job_uid);
  config.set_job_name(job.metadata.name);
  config.set_ps_replicas(planner::DesiredReplicas(spec, api::Role::kParameterServer));
  if (spec.parameter_server.has_value()) SetReplication(*spec.parameter_server, &config);
  if (spec.strategy == api::Strategy::kAllReduce) SetAllReduce(spec, &config);
  *config.mutable_model() = ToProto(spec.model);
  *config.mutable_dataset() = ToProto(spec.dataset);
  config.set_steps(static_cast<std::uint64_t>(spec.training.steps.value_or(0)));
  config.set_epochs(static_cast<std::uint32_t>(spec.training.whole_epochs()));
  config.set_batch_size(spec.training.batch_size);
  config.set_updates_per_shard(spec.training.updates_per_shard);
  config.set_seed(static_cast<std::uint64_t>(spec.training.seed));
  config.set_device(ToProto(spec.training.device));
  config.set_gpus(static_cast<std::uint32_t>(spec.worker.gpus.value_or(0)));
  config.set_precision(ToProto(spec.training.precision));
  config.set_memory_format(ToProto(spec.training.memory_format));
  *config.mutable_optimizer() = ToProto(spec.update.optimizer);
  SetMode(spec, &config);
  config.mutable_codec()->set_push(ToProto(spec.update.codec));
  config.mutable_codec()->set_top_k(spec.update.top_k.value_or(0));
  config.mutable_codec()->set_pull(ToProto(spec.update.pull_codec));
  config.set_output_directory(output_directory);
  config.set_evaluate(spec.training.evaluate);
  config.set_threads(spec.training.threads);
  const api::TrainingSpec& training = spec.training;
  if (training.early_stopping.has_value()) *config.mutable_early_stopping() = ToProto(*training.early_stopping);
  if (training.reduce_on_plateau.has_value()) {
    *config.mutable_reduce_on_plateau() = ToProto(*training.reduce_on_plateau);
  }
  if (training.keep_best.has_value()) config.set_keep_best(training.keep_best->metric);
  if (spec.checkpoint.has_value()) *config.mutable_checkpoint() = ToProto(*spec.checkpoint, job.metadata.name);
  if (spec.tracking.has_value()) *config.mutable_tracking() = ToProto(*spec.tracking, job.metadata.name);
  config.set_accumulate(spec.update.accumulate);
  if (spec.update.local_optimizer.has_value()) *config.mutable_local_steps() = ToProto(spec.update);
  if (spec.update.schedule.has_value()) {
    // The steps are the worker's then, and the parameter servers average.
    v1::ScheduleConfig& schedule = config.has_local_steps() ? *config.mutable_local_steps()->mutable_schedule()
                                                            : *config.mutable_optimizer()->mutable_schedule();
    schedule = ToProto(*spec.update.schedule);
  }
  config.set_clip_norm(spec.update.clip_norm.value_or(0));
  return config;
}

v1::WantedMode ToWantedMode(const api::TrainingJob& job) {
  v1::TrainingConfig config;
  SetMode(job.spec, &config);
  v1::WantedMode wanted;
  wanted.set_revision(static_cast<std::uint64_t>(job.metadata.generation));
  wanted.set_mode(config.mode());
  wanted.set_staleness(config.staleness());
  wanted.set_updates_per_step(config.updates_per_step());
  wanted.set_workers(config.workers());
  wanted.set_warm_start(config.warm_start());
  wanted.set_staleness_aware(config.optimizer().staleness_aware());
  return wanted;
}

v1::WantedPs ToWantedPs(const api::TrainingJob& job) {
  v1::WantedPs wanted;
  wanted.set_revision(static_cast<std::uint64_t>(job.metadata.generation));
  wanted.set_count(static_cast<std::uint32_t>(planner::DesiredReplicas(job.spec, api::Role::kParameterServer)));
  return wanted;
}

absl::StatusOr<std::string> TrainingConfigToJson(const v1::TrainingConfig& config) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  std::string text;
  const google::protobuf::util::Status status = google::protobuf::util::MessageToJsonString(config, &text, options);
  if (!status.ok()) return absl::InternalError(absl::StrCat("the configuration has no JSON form: ", status.ToString()));
  return text;
}

}  // namespace downpour::job
