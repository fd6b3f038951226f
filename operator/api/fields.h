#ifndef DOWNPOUR_OPERATOR_API_FIELDS_H_
#define DOWNPOUR_OPERATOR_API_FIELDS_H_

#include <string>
#include <string_view>

#include "operator/api/field_names.h"
#include "operator/api/field_rules.h"
#include "operator/api/pod_template_fields.h"
#include "operator/api/status_fields.h"
#include "operator/api/text_checks.h"
#include "operator/api/training_job.h"

// The one description of every field: name, type, range, and whether it is required or not supported yet. Reading,
// writing and the tests of docs/manifest.md all visit it, so they cannot disagree.
//
//   struct Visitor {
//     template <class Value, class Rule>
//     void Field(std::string_view name, Value& value, const Rule& rule, Presence presence = Presence::kOptional);
//     void Dropped(std::string_view name);  // accepted whatever it holds, and not kept
//   };
//
// `Value` may be a std::optional of what the rule describes. Rules that tie several fields together are in relations.h.
// What a field may hold is in field_rules.h, what of a pod template is looked at in pod_template_fields.h, the status
// in status_fields.h.
namespace downpour::api::schema {

template <class Visitor>
void Fields(Visitor& v, CoordinatorSpec& s) {
  v.Field("template", s.pod_template, Template{});
}

template <class Visitor>
void Fields(Visitor& v, ReplicationSpec& s) {
  v.Field("type", s.type, Choice(kReplicationTypes));
  v.Field("maxLag", s.max_lag, Integer{1, 1000000});
}

template <class Visitor>
void Fields(Visitor& v, ParameterServerSpec& s) {
  v.Field("replicas", s.replicas, Integer{1, kMaxParameterServers});
  v.Field("template", s.pod_template, Template{});
  v.Field("replicationFactor", s.replication_factor, Integer{1, 3, 2});
  v.Field("replication", s.replication, Object{});
  v.Field("disruption", s.disruption, Choice(kDisruptionPolicies));
  v.Field("maxProtectSeconds", s.max_protect_seconds, Integer{1, 7 * kDay});
}

template <class Visitor>
void Fields(Visitor& v, WorkerSpec& s) {
  v.Field("replicas", s.replicas, Integer{0, kMaxWorkers});
  v.Field("gpus", s.gpus, Integer{1, kMaxGpus});
  v.Field("template", s.pod_template, Template{});
}

template <class Visitor>
void Fields(Visitor& v, ElasticSpec& s) {
  v.Field("minReplicas", s.min_replicas, Integer{1, kMaxWorkers}, Presence::kRequired);
  v.Field("maxReplicas", s.max_replicas, Integer{1, kMaxWorkers}, Presence::kRequired);
  v.Field("shrinkAfterSeconds", s.shrink_after_seconds, Integer{1, kDay});
  v.Field("growCooldownSeconds", s.grow_cooldown_seconds, Integer{0, kDay});
  v.Field("batchPolicy", s.batch_policy, Choice(kBatchPolicies));
  v.Field("stateCopies", s.state_copies, Integer{1, kMaxWorkers});
}

template <class Visitor>
void Fields(Visitor& v, Backoff& s) {
  v.Field("initialSeconds", s.initial_seconds, Integer{1, kDay});
  v.Field("maxSeconds", s.max_seconds, Integer{1, kDay});
}

template <class Visitor>
void Fields(Visitor& v, ExitCodeRule& s) {
  v.Field("operator", s.in, Choice(kExitCodeOperators), Presence::kRequired);
  v.Field("values", s.values, ListOf<Integer>{{1, 255}, 1, 255}, Presence::kRequired);
  v.Field("containerName", s.container_name, Text{IsNamespace});  // an RFC 1123 label as well
}

template <class Visitor>
void Fields(Visitor& v, PodConditionRule& s) {
  v.Field("type", s.type, Text{IsQualifiedName}, Presence::kRequired);
  v.Field("status", s.status, Choice(kConditionStatuses), Presence::kRequired);
}

template <class Visitor>
void Fields(Visitor& v, FailureRule& s) {
  v.Field("name", s.name, Text{IsRuleName}, Presence::kRequired);
  v.Field("roles", s.roles, ListOf<Choice<Role>>{Choice(kRoles), 0, 3});
  v.Field("onPodConditions", s.on_pod_conditions, ListOf<Object>{{}, 0, 20});
  v.Field("onContainerReasons", s.on_container_reasons, ListOf<Text>{{IsReason}, 0, 20});
  v.Field("onExitCodes", s.on_exit_codes, Object{});
  v.Field("action", s.action, Choice(kRestartActions), Presence::kRequired);
  v.Field("countsTowardsLimit", s.counts_towards_limit, Flag{});
}

template <class Visitor>
void Fields(Visitor& v, FailurePolicy& s) {
  v.Field("maxRestarts", s.max_restarts, Integer{0, kMaxRestarts});
  v.Field("maxRestartsPerReplica", s.max_restarts_per_replica, Integer{0, kMaxRestarts});
  v.Field("windowSeconds", s.window_seconds, Integer{0, kYear});
  v.Field("backoff", s.backoff, Object{});
  v.Field("terminationTimeoutSeconds", s.termination_timeout_seconds, Integer{1, kDay});
  v.Field("pendingTimeoutSeconds", s.pending_timeout_seconds, Integer{1, 7 * kDay});
  v.Field("rules", s.rules, ListOf<Object>{{}, 0, 20});
}

template <class Visitor>
void Fields(Visitor& v, OnDisruption& s) {
  v.Field("timeoutSeconds", s.timeout_seconds, Integer{1, kHour});
}

template <class Visitor>
void Fields(Visitor& v, CheckpointSpec& s) {
  v.Field("uri", s.uri, Text{IsCheckpointUri}, Presence::kRequired);
  v.Field("intervalSeconds", s.interval_seconds, Integer{1, kYear});
  v.Field("keep", s.keep, Integer{1, 1000});
  v.Field("keepBest", s.keep_best, Text{IsPluginName});  // which, see relations.h
  v.Field("extraMemory", s.extra_memory, Text{IsMemory});
  v.Field("onDisruption", s.on_disruption, Object{});
  v.Field("resumeFrom", s.resume_from, ResumePoint{});
}

template <class Visitor>
void Fields(Visitor& v, AvoidNodes& s) {
  v.Field("afterFailures", s.after_failures, Integer{1, kMaxRestarts});
  v.Field("forSeconds", s.for_seconds, Integer{1, kYear});
}

template <class Visitor>
void Fields(Visitor& v, SchedulingSpec& s) {
  v.Field("gang", s.gang, Choice(kGangPolicies));
  v.Field("provider", s.provider, Choice(kSchedulingProviders));
  v.Field("queue", s.queue, Text{IsShortText}, Presence::kUnsupported);
  v.Field("priorityClassName", s.priority_class_name, Text{IsShortText}, Presence::kUnsupported);
  v.Field("avoidNodes", s.avoid_nodes, Object{});
}

template <class Visitor>
void Fields(Visitor& v, RoleCleanup& s) {
  v.Field("onSuccess", s.on_success, Choice(kCleanupPolicies));
  v.Field("onFailure", s.on_failure, Choice(kCleanupPolicies));
}

template <class Visitor>
void Fields(Visitor& v, PodCleanup& s) {
  v.Field("onSuccess", s.on_success, Choice(kCleanupPolicies));
  v.Field("onFailure", s.on_failure, Choice(kCleanupPolicies));
  v.Field("coordinator", s.coordinator, Object{});
  v.Field("parameterServer", s.parameter_server, Object{});
  v.Field("worker", s.worker, Object{});
}

template <class Visitor>
void Fields(Visitor& v, LossSpec& s) {
  v.Field("type", s.type, Text{IsPluginName});  // which, see relations.h
  v.Field("labelSmoothing", s.label_smoothing, Fraction{0, 1});
  v.Field("delta", s.delta, PositiveFloat{});
}

template <class Visitor>
void Fields(Visitor& v, PluginSpec& s) {
  v.Field("path", s.path, Text{IsPath}, Presence::kRequired);
  v.Field("name", s.name, Text{IsPluginName});
  v.Field("parameters", s.parameters, FreeMap{});
}

template <class Visitor>
void Fields(Visitor& v, TorchScriptSpec& s) {
  v.Field("path", s.path, Text{IsPath}, Presence::kRequired);
}

template <class Visitor>
void Fields(Visitor& v, InitialWeightsSpec& s) {
  v.Field("path", s.path, Text{IsFile}, Presence::kRequired);
  v.Field("strict", s.strict, Flag{});
}

template <class Visitor>
void Fields(Visitor& v, ModelSpec& s) {
  v.Field("name", s.name, Choice(kModels));  // or another of those that relations.h names
  v.Field("parameters", s.parameters, FreeMap{});
  v.Field("layers", s.layers, FreeList{1000});
  v.Field("plugin", s.plugin, Object{});
  v.Field("torchScript", s.torch_script, Object{});
  v.Field("loss", s.loss, Object{});
  v.Field("metrics", s.metrics, ListOf<Text>{{IsPluginName}, 0, 10});
  v.Field("initialWeights", s.initial_weights, Object{});
  v.Field("frozen", s.frozen, ListOf<Text>{{IsParameterPattern}, 0, 100});
}

template <class Visitor>
void Fields(Visitor& v, SyntheticSpec& s) {
  v.Field("kind", s.kind, Choice(kSyntheticKinds), Presence::kRequired);
  v.Field("samples", s.samples, Integer{1, std::int64_t{1} << 40});
  v.Field("testSamples", s.test_samples, Integer{1, std::int64_t{1} << 40});
  v.Field("seed", s.seed, Integer{1});
  v.Field("shape", s.shape, ListOf<Integer>{{1, 1 << 24}, 0, 3, /*ordered=*/true});
  v.Field("classes", s.classes, Integer{2, 1 << 20});
  v.Field("vocabulary", s.vocabulary, Integer{2, 1 << 24});
  v.Field("minLength", s.min_length, Integer{1, 1 << 20});
  v.Field("maxLength", s.max_length, Integer{1, 1 << 20});
}

template <class Visitor>
void Fields(Visitor& v, SplitSpec& s) {
  v.Field("validation", s.validation, Fraction{0, 1}, Presence::kRequired);
  v.Field("seed", s.seed, Integer{0});
}

template <class Visitor>
void Fields(Visitor& v, DatasetFieldSpec& s) {
  v.Field("column", s.column, Text{IsColumnName});  // or columns, see relations.h
  v.Field("columns", s.columns, ListOf<Text>{{IsColumnName}, 0, 1000, /*ordered=*/true});
  v.Field("name", s.name, Text{IsColumnName});
  v.Field("role", s.target, Choice(kFieldRoles));
  v.Field("classes", s.classes, Integer{1, 1 << 20});
}

template <class Visitor>
void Fields(Visitor& v, TransformSpec& s) {
  v.Field("type", s.type, Choice(kTransforms), Presence::kRequired);
  v.Field("field", s.field, Text{IsColumnName});
  // What is of some types only, see relations.h.
  v.Field("height", s.height, Integer{1, 65536});
  v.Field("width", s.width, Integer{1, 65536});
  v.Field("padding", s.padding, Integer{0, 65536});
  v.Field("probability", s.probability, Share{});
  v.Field("brightness", s.brightness, Share{});
  v.Field("contrast", s.contrast, Share{});
  v.Field("saturation", s.saturation, Share{});
  v.Field("mean", s.mean, ListOf<Number>{{}, 0, 1024, /*ordered=*/true});
  v.Field("std", s.std, ListOf<PositiveFloat>{{}, 0, 1024, /*ordered=*/true});
  v.Field("vocabulary", s.vocabulary, Integer{1, 1 << 24});
  v.Field("maxLength", s.max_length, Integer{1, 1 << 20});
  v.Field("classes", s.classes, Integer{1, 1 << 20});
  v.Field("dtype", s.dtype, Choice(kElementTypes));
}

template <class Visitor>
void Fields(Visitor& v, ColumnSpec& s) {
  v.Field("name", s.name, Text{IsColumnName}, Presence::kRequired);
  v.Field("type", s.type, Choice(kColumnTypes));
  v.Field("shape", s.shape, ListOf<Integer>{{1, 1 << 24}, 0, 8, /*ordered=*/true});
  v.Field("classNames", s.class_names, ListOf<Text>{{IsColumnName}, 0, 100});
}

template <class Visitor>
void Fields(Visitor& v, CsvSpec& s) {
  v.Field("header", s.header, Flag{});
  v.Field("delimiter", s.delimiter, Text{IsOneCharacter});
}

template <class Visitor>
void Fields(Visitor& v, BadSampleSpec& s) {
  v.Field("action", s.skip, Choice(kBadSampleActions));
  v.Field("limit", s.limit, Integer{0});
}

template <class Visitor>
void Fields(Visitor& v, DatasetCacheSpec& s) {
  v.Field("directory", s.directory, Text{IsPath}, Presence::kRequired);
  v.Field("size", s.size, Text{IsMemory});
}

template <class Visitor>
void Fields(Visitor& v, DatasetSpec& s) {
  v.Field("format", s.format, Choice(kDatasetFormats), Presence::kRequired);
  v.Field("path", s.path, Text{IsPath});  // required but for Synthetic, see relations.h
  v.Field("testPath", s.test_path, Text{IsPath});
  v.Field("split", s.split, Object{});
  v.Field("fields", s.fields, ListOf<Object>{{}, 0, 30, /*ordered=*/true});
  v.Field("transforms", s.transforms, ListOf<Object>{{}, 0, 100, /*ordered=*/true});
  v.Field("columns", s.columns, ListOf<Object>{{}, 0, 200, /*ordered=*/true});
  v.Field("classNames", s.class_names, ListOf<Text>{{IsColumnName}, 0, 1000});
  v.Field("csv", s.csv, Object{});
  v.Field("textLayout", s.text_layout, Choice(kTextLayouts));
  v.Field("channels", s.channels, Integer{1, 3});
  v.Field("threads", s.threads, Integer{0, 1024});
  v.Field("prefetch", s.prefetch, Integer{0, 64});
  v.Field("pinMemory", s.pin_memory, Flag{});
  v.Field("onDevice", s.on_device, Choice(kOnDevice));
  v.Field("onBadSample", s.on_bad_sample, Object{});
  v.Field("cache", s.cache, Object{});
  v.Field("shuffle", s.shuffle_blocks, Choice(kShuffles));
  v.Field("shuffleBlock", s.shuffle_block, Integer{1, 1 << 30});
  v.Field("synthetic", s.synthetic, Object{});
}

template <class Visitor>
void Fields(Visitor& v, EarlyStoppingSpec& s) {
  v.Field("metric", s.metric, Text{IsPluginName});  // which, see relations.h
  v.Field("minDelta", s.min_delta, Fraction{0, kMaxDelta});
  v.Field("patience", s.patience, Integer{1, kMaxEpochs});
  v.Field("startFromEpoch", s.start_from_epoch, Integer{0, kMaxEpochs});
}

template <class Visitor>
void Fields(Visitor& v, ReduceOnPlateauSpec& s) {
  v.Field("metric", s.metric, Text{IsPluginName});
  v.Field("factor", s.factor, Share{});  // and less than 1, see relations.h
  v.Field("patience", s.patience, Integer{1, kMaxEpochs});
  v.Field("cooldown", s.cooldown, Integer{0, kMaxEpochs});
  v.Field("minLearningRate", s.min_learning_rate, Fraction{0, 1000});
  v.Field("minDelta", s.min_delta, Fraction{0, kMaxDelta});
}

template <class Visitor>
void Fields(Visitor& v, KeepBestSpec& s) {
  v.Field("metric", s.metric, Text{IsPluginName});
}

template <class Visitor>
void Fields(Visitor& v, TrainingSpec& s) {
  v.Field("epochs", s.epochs, Integer{1, kMaxEpochs});
  v.Field("steps", s.steps, Integer{1, std::int64_t{1} << 40});
  v.Field("batchSize", s.batch_size, Integer{1, 1048576});
  v.Field("seed", s.seed, Integer{0});
  v.Field("device", s.device, Choice(kDevices));
  v.Field("precision", s.precision, Choice(kPrecisions));
  v.Field("memoryFormat", s.memory_format, Choice(kMemoryFormats));
  v.Field("threads", s.threads, Integer{0, 1024});
  v.Field("updatesPerShard", s.updates_per_shard, Integer{0, 1000000});
  v.Field("evaluate", s.evaluate, Flag{});
  v.Field("earlyStopping", s.early_stopping, Object{});
  v.Field("reduceOnPlateau", s.reduce_on_plateau, Object{});
  v.Field("keepBest", s.keep_best, Object{});
}

template <class Visitor>
void Fields(Visitor& v, OptimizerSpec& s) {
  v.Field("type", s.type, Choice(kOptimizers));
  v.Field("learningRate", s.learning_rate, PositiveFloat{});
  v.Field("stalenessAware", s.staleness_aware, Flag{});
  v.Field("stalenessRule", s.staleness_rule, Choice(kStalenessRules));
  // What is of some types only, see relations.h.
  v.Field("momentum", s.momentum, Fraction{0, 1});
  v.Field("beta1", s.beta1, Fraction{0, 1});
  v.Field("beta2", s.beta2, Fraction{0, 1});
  v.Field("epsilon", s.epsilon, PositiveFloat{});
  v.Field("decay", s.decay, Fraction{0, 1});
  v.Field("initialAccumulator", s.initial_accumulator, Fraction{0, 1000});
  v.Field("weightDecay", s.weight_decay, Fraction{0, 1000});
  v.Field("noDecay", s.no_decay, ListOf<Text>{{IsParameterPattern}, 0, 100});
  v.Field("compensation", s.compensation, Choice(kCompensations));
  v.Field("lambda", s.lambda, Fraction{0, 1000});
}

template <class Visitor>
void Fields(Visitor& v, LocalOptimizerSpec& s) {
  v.Field("type", s.type, Choice(kLocalOptimizers));
  v.Field("learningRate", s.learning_rate, PositiveFloat{});
  v.Field("momentum", s.momentum, Fraction{0, 1});
  v.Field("beta1", s.beta1, Fraction{0, 1});
  v.Field("beta2", s.beta2, Fraction{0, 1});
  v.Field("epsilon", s.epsilon, PositiveFloat{});
  v.Field("weightDecay", s.weight_decay, Fraction{0, 1});
}

template <class Visitor>
void Fields(Visitor& v, ScheduleInterval& s) {
  v.Field("updates", s.updates, Integer{1, kMaxUpdates});
  v.Field("epochs", s.epochs, Integer{1, kMaxEpochs});
}

template <class Visitor>
void Fields(Visitor& v, WarmupSpec& s) {
  v.Field("updates", s.updates, Integer{1, kMaxUpdates});
  v.Field("fraction", s.fraction, Share{});
  v.Field("from", s.from, Fraction{0, 1});
}

template <class Visitor>
void Fields(Visitor& v, ScheduleSpec& s) {
  v.Field("type", s.type, Choice(kSchedules));
  // What is of some types only, see relations.h.
  v.Field("gamma", s.gamma, Share{});
  v.Field("every", s.every, Object{});
  v.Field("etaMin", s.eta_min, Fraction{0, 1000});
  v.Field("pctStart", s.pct_start, Fraction{0, 1});
  v.Field("divFactor", s.div_factor, PositiveFloat{});
  v.Field("finalDivFactor", s.final_div_factor, PositiveFloat{});
  v.Field("warmup", s.warmup, Object{});
}

template <class Visitor>
void Fields(Visitor& v, LbfgsSpec& s) {
  v.Field("history", s.history, Integer{1, 100});
  v.Field("gradientTolerance", s.gradient_tolerance, PositiveFloat{});
  v.Field("maxIterations", s.max_iterations, Integer{0, 1000000});
}

template <class Visitor>
void Fields(Visitor& v, UpdateSpec& s) {
  v.Field("mode", s.mode, Choice(kUpdateModes));
  v.Field("staleness", s.staleness, Integer{0, 1000000});
  v.Field("warmStart", s.warm_start, Integer{1, 1000000000});
  v.Field("updatesPerStep", s.updates_per_step, Integer{1, 4096});
  v.Field("optimizer", s.optimizer, Object{});
  v.Field("schedule", s.schedule, Object{});
  v.Field("codec", s.codec, Choice(kCodecs));
  v.Field("topK", s.top_k, Share{});
  v.Field("pullCodec", s.pull_codec, Choice(kPullCodecs));
  v.Field("accumulate", s.accumulate, Integer{1, kMaxMinibatches});
  v.Field("localSteps", s.local_steps, Integer{1, kMaxMinibatches});
  v.Field("fetchEvery", s.fetch_every, Integer{1, 1000000});
  v.Field("localOptimizer", s.local_optimizer, Object{});
  v.Field("clipNorm", s.clip_norm, PositiveFloat{});
  v.Field("lbfgs", s.lbfgs, Object{});
}

template <class Visitor>
void Fields(Visitor& v, OutputSpec& s) {
  v.Field("directory", s.directory, Text{IsPathOrEmpty});
  v.Field("keepSeconds", s.keep_seconds, Integer{0, kYear});
}

template <class Visitor>
void Fields(Visitor& v, TensorBoardSpec& s) {
  v.Field("directory", s.directory, Text{IsDirectory}, Presence::kRequired);
  v.Field("histograms", s.histograms, Flag{});
}

template <class Visitor>
void Fields(Visitor& v, MlflowSpec& s) {
  v.Field("experiment", s.experiment, Text{IsLine});
  v.Field("runName", s.run_name, Text{IsLineOrEmpty});
  v.Field("uri", s.uri, Text{IsHttpUriOrEmpty});
}

template <class Visitor>
void Fields(Visitor& v, TrackingSpec& s) {
  v.Field("tensorboard", s.tensorboard, Object{});
  v.Field("mlflow", s.mlflow, Object{});
}

template <class Visitor>
void Fields(Visitor& v, TrainingJobSpec& s) {
  v.Field("strategy", s.strategy, Choice(kStrategies));
  v.Field("suspend", s.suspend, Flag{});
  v.Field("managedBy", s.managed_by, Text{IsManagedBy});
  v.Field("coordinator", s.coordinator, Object{});
  v.Field("parameterServer", s.parameter_server, Object{});
  v.Field("worker", s.worker, Object{});
  v.Field("elastic", s.elastic, Object{});
  v.Field("successPolicy", s.success_policy, Choice(kSuccessPolicies));
  v.Field("failurePolicy", s.failure_policy, Object{});
  v.Field("progressDeadlineSeconds", s.progress_deadline_seconds, Integer{0, kYear});
  v.Field("checkpoint", s.checkpoint, Object{});
  v.Field("scheduling", s.scheduling, Object{});
  v.Field("activeDeadlineSeconds", s.active_deadline_seconds, Integer{1, 10 * kYear});
  v.Field("ttlSecondsAfterFinished", s.ttl_seconds_after_finished, Integer{0, 10 * kYear});
  v.Field("podCleanup", s.pod_cleanup, Object{});
  v.Field("model", s.model, Object{}, Presence::kRequired);
  v.Field("dataset", s.dataset, Object{}, Presence::kRequired);
  v.Field("training", s.training, Object{});
  v.Field("update", s.update, Object{});
  v.Field("output", s.output, Object{});
  v.Field("tracking", s.tracking, Object{});
}

template <class Visitor>
void Fields(Visitor& v, Metadata& s) {
  v.Field("name", s.name, Text{IsJobName});  // or generateName, see relations.h
  v.Field("generateName", s.generate_name, Text{IsGenerateName});
  v.Field("namespace", s.namespace_name, Text{IsNamespace});
  v.Field("uid", s.uid, Text{AnyText});
  v.Field("labels", s.labels, MapOf<Text>{IsQualifiedName, {IsLabelValue}});
  v.Field("annotations", s.annotations, MapOf<Text>{IsQualifiedName, {AnyText}});
  v.Field("generation", s.generation, Integer{1});
  // Written by the API server, so they come with every manifest that was exported from one.
  for (const std::string_view name :
       {"creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers", "managedFields",
        "ownerReferences", "resourceVersion", "selfLink"}) {
    v.Dropped(name);
  }
}

template <class Visitor>
void Fields(Visitor& v, TrainingJob& job) {
  std::string api_version = kApiVersion;
  std::string kind = kKind;
  v.Field("apiVersion", api_version, Text{IsApiVersion}, Presence::kRequired);
  v.Field("kind", kind, Text{IsKind}, Presence::kRequired);
  v.Field("metadata", job.metadata, Object{}, Presence::kRequired);
  v.Field("spec", job.spec, Object{}, Presence::kRequired);
  v.Dropped("status");  // never read as a wish
}

}  // namespace downpour::api::schema

#endif  // DOWNPOUR_OPERATOR_API_FIELDS_H_
