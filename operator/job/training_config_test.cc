#include "operator/job/training_config.h"

#include <google/protobuf/util/json_util.h>

#include <limits>

#include "gtest/gtest.h"

namespace downpour::job {
namespace {

api::TrainingJob MakeJob() {
  api::TrainingJob job;
  job.metadata.name = "demo";
  job.spec.parameter_server = api::ParameterServerSpec{};
  job.spec.parameter_server->replicas = 3;
  job.spec.model.name = "LeNet";
  job.spec.dataset = {"IDX", "/data/fashion"};
  job.spec.training.epochs = 7;
  job.spec.training.batch_size = 256;
  job.spec.training.seed = std::numeric_limits<std::int64_t>::max();
  job.spec.training.device = api::Device::kCpu;
  job.spec.training.precision = api::Precision::kBf16;
  job.spec.training.memory_format = api::MemoryFormat::kChannelsLast;
  job.spec.dataset.on_device = api::OnDevice::kAlways;
  job.spec.dataset.pin_memory = false;
  job.spec.training.threads = 2;
  job.spec.worker.gpus = 4;
  job.spec.training.updates_per_shard = 9;
  job.spec.training.evaluate = false;
  job.spec.update.optimizer.learning_rate = 0.1;
  job.spec.update.optimizer.staleness_aware = false;
  job.spec.update.codec = api::Codec::kTopK;
  job.spec.update.top_k = 0.125;
  job.spec.update.pull_codec = api::Codec::kBf16;
  return job;
}

TEST(TrainingConfigTest, AJobIsOfEpochsOrOfSteps) {
  api::TrainingJob job = MakeJob();
  job.spec.training.epochs.reset();
  EXPECT_EQ(ToTrainingConfig(job, "abc", "").epochs(), 1u);
  EXPECT_EQ(ToTrainingConfig(job, "abc", "").steps(), 0u);
  job.spec.training.steps = 1000;
  EXPECT_EQ(ToTrainingConfig(job, "abc", "").epochs(), 0u);
  EXPECT_EQ(ToTrainingConfig(job, "abc", "").steps(), 1000u);
}

TEST(TrainingConfigTest, InitialWeightsAreTakenOver) {
  api::TrainingJob job = MakeJob();
  EXPECT_FALSE(ToTrainingConfig(job, "abc", "").model().has_initial_weights());
  job.spec.model.initial_weights = api::InitialWeightsSpec{"/models/w.safetensors", /*strict=*/false};
  EXPECT_EQ(ToTrainingConfig(job, "abc", "").model().initial_weights().path(), "/models/w.safetensors");
  EXPECT_TRUE(ToTrainingConfig(job, "abc", "").model().initial_weights().any_names());
}

TEST(TrainingConfigTest, TheConfigurationSaysWhatTheManifestSays) {
  const v1::TrainingConfig config = ToTrainingConfig(MakeJob(), "abc", "/out");
  const absl::StatusOr<std::string> text = TrainingConfigToJson(config);
  ASSERT_TRUE(text.ok());
  v1::TrainingConfig read;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(*text, &read).ok());
  EXPECT_EQ(read.SerializeAsString(), config.SerializeAsString());
  EXPECT_EQ(read.job_uid(), "abc");
  EXPECT_EQ(read.job_name(), "demo");
  EXPECT_EQ(read.ps_replicas(), 3u);
  EXPECT_EQ(read.model().name(), "LeNet");
  EXPECT_EQ(read.dataset().path(), "/data/fashion");
  EXPECT_EQ(read.epochs(), 7u);
  EXPECT_EQ(read.batch_size(), 256u);
  EXPECT_EQ(read.seed(), static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()));
  EXPECT_EQ(read.device(), v1::DEVICE_CPU);
  EXPECT_EQ(read.precision(), v1::PRECISION_BF16);
  EXPECT_EQ(read.memory_format(), v1::MEMORY_FORMAT_CHANNELS_LAST);
  EXPECT_EQ(read.dataset().on_device(), v1::ON_DEVICE_ALWAYS);
  EXPECT_FALSE(read.dataset().pin_memory());
  EXPECT_EQ(read.threads(), 2u);
  EXPECT_EQ(read.gpus(), 4u);
  EXPECT_EQ(read.updates_per_shard(), 9u);
  EXPECT_FALSE(read.evaluate());
  EXPECT_EQ(read.mode(), v1::ASYNC);
  EXPECT_EQ(read.optimizer().type(), v1::SGD);
  EXPECT_EQ(read.optimizer().learning_rate(), 0.1);
  EXPECT_FALSE(read.optimizer().staleness_aware());
  EXPECT_EQ(read.codec().push(), v1::CODEC_TOP_K);
  EXPECT_EQ(read.codec().top_k(), 0.125);
  EXPECT_EQ(read.codec().pull(), v1::CODEC_BF16);
  EXPECT_EQ(read.output_directory(), "/out");
}

TEST(TrainingConfigTest, WhatAnUpdateIsIsTakenOver) {
  api::TrainingJob job = MakeJob();
  v1::TrainingConfig config = ToTrainingConfig(job, "abc", "/out");
  EXPECT_EQ(config.accumulate(), 1u);
  EXPECT_FALSE(config.has_local_steps());
  EXPECT_EQ(config.clip_norm(), 0);
  job.spec.update.accumulate = 5;
  job.spec.update.clip_norm = 1.5;
  config = ToTrainingConfig(job, "abc", "/out");
  EXPECT_EQ(config.accumulate(), 5u);
  EXPECT_EQ(config.clip_norm(), 1.5);
  job.spec.update.accumulate = 1;
  job.spec.update.local_steps = 8;
  job.spec.update.fetch_every = 3;
  const auto steps_with = [&job](api::LocalOptimizerType type) {
    api::LocalOptimizerSpec& optimizer = job.spec.update.local_optimizer.emplace();
    optimizer.type = type;
    optimizer.learning_rate = 0.25;
    return ToTrainingConfig(job, "abc", "/out").local_steps();
  };
  EXPECT_EQ(steps_with(api::LocalOptimizerType::kSgd).optimizer(), v1::LocalStepsConfig::SGD);
  EXPECT_EQ(steps_with(api::LocalOptimizerType::kMomentum).optimizer(), v1::LocalStepsConfig::MOMENTUM);
  EXPECT_EQ(steps_with(api::LocalOptimizerType::kAdam).weight_decay(), 0);
  const v1::LocalStepsConfig steps = steps_with(api::LocalOptimizerType::kAdamW);
  EXPECT_EQ(steps.count(), 8u);
  EXPECT_EQ(steps.fetch_every(), 3u);
  EXPECT_EQ(steps.optimizer(), v1::LocalStepsConfig::ADAMW);
  EXPECT_EQ(steps.learning_rate(), 0.25);
  EXPECT_EQ(steps.momentum(), 0.9);
  EXPECT_EQ(steps.beta1(), 0.9);
  EXPECT_EQ(steps.beta2(), 0.999);
  EXPECT_EQ(steps.epsilon(), 1e-8);
  EXPECT_EQ(steps.weight_decay(), 0.01);
}

// A coordinator that is told what is wanted is as one that is started so.
TEST(TrainingConfigTest, WhatIsWantedOfARunningJobIsWhatItsConfigurationSays) {
  api::TrainingJob job = MakeJob();
  job.spec.update = api::UpdateSpec();
  job.metadata.generation = 7;
  for (const api::UpdateMode mode :
       {api::UpdateMode::kAsync, api::UpdateMode::kBoundedStaleness, api::UpdateMode::kSynchronous}) {
    job.spec.update.mode = mode;
    const bool synchronous = mode == api::UpdateMode::kSynchronous;
    job.spec.update.warm_start.reset();
    if (!synchronous) job.spec.update.warm_start = 90;
    if (synchronous) job.spec.update.updates_per_step = 3;
    const v1::TrainingConfig config = ToTrainingConfig(job, "abc", "/out");
    const v1::WantedMode wanted = ToWantedMode(job);
    EXPECT_EQ(wanted.revision(), 7u);
    EXPECT_EQ(wanted.mode(), config.mode());
    EXPECT_EQ(wanted.staleness(), config.staleness());
    EXPECT_EQ(wanted.updates_per_step(), config.updates_per_step());
    EXPECT_EQ(wanted.workers(), config.workers());
    EXPECT_EQ(wanted.warm_start(), config.warm_start());
    EXPECT_EQ(wanted.staleness_aware(), config.optimizer().staleness_aware());
    EXPECT_EQ(wanted.staleness_aware(), !synchronous);
  }
}

TEST(TrainingConfigTest, AnOptimizerHasTheNumbersOfItsTypeAndOnlyThose) {
  api::TrainingJob job = MakeJob();
  const auto config_of = [&job](const api::OptimizerSpec& optimizer) {
    job.spec.update.optimizer = optimizer;
    v1::OptimizerConfig config = ToTrainingConfig(job, "", "").optimizer();
    EXPECT_EQ(config.learning_rate(), 0.01);
    EXPECT_TRUE(config.staleness_aware());
    config.clear_learning_rate();
    config.clear_staleness_aware();
    return config.ShortDebugString();
  };
  using Type = api::OptimizerType;
  EXPECT_EQ(config_of({.type = Type::kSgd}), "type: SGD");
  EXPECT_EQ(config_of({.type = Type::kMomentum}), "type: MOMENTUM momentum: 0.9");
  EXPECT_EQ(config_of({.type = Type::kNesterov, .momentum = 0.5, .weight_decay = 0.25, .no_decay = {"*.bias"}}),
            "type: NESTEROV momentum: 0.5 weight_decay: 0.25 no_decay: \"*.bias\"");
  EXPECT_EQ(config_of({.type = Type::kAdagrad, .initial_accumulator = 0.5}),
            "type: ADAGRAD epsilon: 1e-10 initial_accumulator: 0.5");
  EXPECT_EQ(config_of({.type = Type::kRmsProp, .staleness_rule = api::StalenessRule::kGap}),
            "type: RMS_PROP epsilon: 1e-08 decay: 0.99 staleness_rule: STALENESS_GAP");
  EXPECT_EQ(config_of({.type = Type::kAdam}), "type: ADAM beta1: 0.9 beta2: 0.999 epsilon: 1e-08");
  EXPECT_EQ(config_of({.type = Type::kAdamW, .beta1 = 0.5, .beta2 = 0.25}),
            "type: ADAM_W beta1: 0.5 beta2: 0.25 epsilon: 1e-08 weight_decay: 0.01");
  EXPECT_EQ(config_of({.type = Type::kLamb, .weight_decay = 0}), "type: LAMB beta1: 0.9 beta2: 0.999 epsilon: 1e-06");
  EXPECT_EQ(config_of({.type = Type::kDelayCompensatedSgd}),
            "type: DELAY_COMPENSATED_SGD epsilon: 1e-07 decay: 0.95 compensation: COMPENSATION_ADAPTIVE lambda: 2");
  EXPECT_EQ(config_of({.type = Type::kDelayCompensatedSgd, .compensation = api::Compensation::kConstant}),
            "type: DELAY_COMPENSATED_SGD lambda: 0.04");
}

TEST(TrainingConfigTest, AScheduleHasTheNumbersOfItsTypeAndIsThatOfWhoStepsByGradients) {
  api::TrainingJob job = MakeJob();
  EXPECT_FALSE(ToTrainingConfig(job, "", "").optimizer().has_schedule());
  const auto config_of = [&job](const api::ScheduleSpec& schedule) {
    job.spec.update.schedule = schedule;
    return ToTrainingConfig(job, "", "").optimizer().schedule().ShortDebugString();
  };
  using Type = api::ScheduleType;
  EXPECT_EQ(config_of({}), "");
  EXPECT_EQ(config_of({.type = Type::kStep, .every = api::ScheduleInterval{.updates = 7}}),
            "type: SCHEDULE_STEP gamma: 0.1 every_updates: 7");
  EXPECT_EQ(config_of({.type = Type::kStep, .gamma = 0.5, .every = api::ScheduleInterval{.epochs = 30}}),
            "type: SCHEDULE_STEP gamma: 0.5 every_epochs: 30");
  EXPECT_EQ(config_of({.type = Type::kExponential, .gamma = 0.9}),
            "type: SCHEDULE_EXPONENTIAL gamma: 0.9 every_epochs: 1");
  EXPECT_EQ(config_of({.type = Type::kCosine}), "type: SCHEDULE_COSINE");
  EXPECT_EQ(config_of({.type = Type::kCosine, .eta_min = 0.001}), "type: SCHEDULE_COSINE eta_min: 0.001");
  EXPECT_EQ(config_of({.type = Type::kOneCycle}),
            "type: SCHEDULE_ONE_CYCLE pct_start: 0.3 div_factor: 25 final_div_factor: 10000");
  EXPECT_EQ(config_of({.type = Type::kOneCycle, .pct_start = 0.5, .div_factor = 2, .final_div_factor = 3}),
            "type: SCHEDULE_ONE_CYCLE pct_start: 0.5 div_factor: 2 final_div_factor: 3");
  EXPECT_EQ(config_of({.warmup = api::WarmupSpec{.updates = 5}}), "warm_up { updates: 5 }");
  EXPECT_EQ(config_of({.warmup = api::WarmupSpec{.fraction = 0.25, .from = 0.5}}),
            "warm_up { fraction: 0.25 from: 0.5 }");
  job.spec.update.local_steps = 8;
  job.spec.update.local_optimizer.emplace();
  EXPECT_EQ(config_of({.type = Type::kCosine}), "");
  EXPECT_EQ(ToTrainingConfig(job, "", "").local_steps().schedule().ShortDebugString(), "type: SCHEDULE_COSINE");
}

TEST(TrainingConfigTest, AModelIsTakenOverWhole) {
  api::TrainingJob job = MakeJob();
  job.spec.model = {.name = "",
                    .parameters = "",
                    .layers = R"([{"type":"flatten"}])",
                    .loss = api::LossSpec{"Huber", 0.25, 2.0},
                    .metrics = {"Accuracy"},
                    .frozen = {"a", "b.*"}};
  const v1::ModelConfig model = ToTrainingConfig(job, "abc", "/out").model();
  EXPECT_EQ(model.name(), "");
  EXPECT_EQ(model.layers(), R"([{"type":"flatten"}])");
  EXPECT_EQ(model.loss().type(), "Huber");
  EXPECT_EQ(model.loss().label_smoothing(), 0.25);
  EXPECT_EQ(model.loss().delta(), 2);
  ASSERT_EQ(model.metrics_size(), 1);
  EXPECT_EQ(model.metrics(0), "Accuracy");
  ASSERT_EQ(model.frozen_size(), 2);
  EXPECT_EQ(model.frozen(1), "b.*");
  job.spec.model = {};
  job.spec.model.name = "LeNet";
  job.spec.model.parameters = R"({"hidden":64})";
  EXPECT_EQ(ToTrainingConfig(job, "abc", "/out").model().parameters(), R"({"hidden":64})");
  job.spec.model = {};
  job.spec.model.plugin = api::PluginSpec{"/p.so", "Net", R"({"width":8})"};
  const v1::PluginConfig plugin = ToTrainingConfig(job, "abc", "/out").model().plugin();
  EXPECT_EQ(plugin.path(), "/p.so");
  EXPECT_EQ(plugin.name(), "Net");
  EXPECT_EQ(plugin.parameters(), R"({"width":8})");
  job.spec.model = {};
  job.spec.model.torch_script = api::TorchScriptSpec{"/m.pt"};
  EXPECT_EQ(ToTrainingConfig(job, "abc", "/out").model().torch_script(), "/m.pt");
}

TEST(TrainingConfigTest, ASearchHasAnOptimizerOfItsOwn) {
  api::TrainingJob job = MakeJob();
  job.spec.update = {};
  job.spec.update.mode = api::UpdateMode::kSandblaster;
  v1::TrainingConfig config = ToTrainingConfig(job, "abc", "/out");
  EXPECT_EQ(config.mode(), v1::SANDBLASTER);
  EXPECT_EQ(config.optimizer().type(), v1::LBFGS);
  EXPECT_EQ(config.optimizer().history(), 10u);
  EXPECT_EQ(config.optimizer().learning_rate(), 0);
  EXPECT_EQ(config.lbfgs().gradient_tolerance(), 1e-5);
  EXPECT_EQ(config.lbfgs().max_iterations(), 0u);
  job.spec.update.lbfgs = api::LbfgsSpec{.history = 5, .gradient_tolerance = 1e-3, .max_iterations = 7};
  config = ToTrainingConfig(job, "abc", "/out");
  EXPECT_EQ(config.optimizer().history(), 5u);
  EXPECT_EQ(config.lbfgs().gradient_tolerance(), 1e-3);
  EXPECT_EQ(config.lbfgs().max_iterations(), 7u);
}

TEST(TrainingConfigTest, EachJobHasAFolderOfItsOwnBelowTheUri) {
  api::TrainingJob job = MakeJob();
  EXPECT_FALSE(ToTrainingConfig(job, "abc", "/out").has_checkpoint());
  job.spec.checkpoint.emplace();
  job.spec.checkpoint->uri = "s3://models/team/";
  job.spec.checkpoint->interval_seconds = 60;
  job.spec.checkpoint->keep = 5;
  job.spec.checkpoint->keep_best = "Accuracy";
  const auto config = [&job] { return ToTrainingConfig(job, "abc", "/out").checkpoint(); };
  EXPECT_EQ(config().uri(), "s3://models/team/demo");
  EXPECT_EQ(config().interval_seconds(), 60u);
  EXPECT_EQ(config().keep(), 5u);
  EXPECT_EQ(config().keep_best(), "Accuracy");
  EXPECT_EQ(config().extra_bytes_limit(), 0u) << "no limit";
  EXPECT_EQ(config().resume(), v1::RESUME_LATEST);
  EXPECT_EQ(config().resume_uri(), "");

  job.spec.checkpoint->uri = "/";
  job.spec.checkpoint->extra_memory = "2Mi";
  job.spec.checkpoint->resume_from = {api::ResumeMode::kTrainingJob, "before", ""};
  EXPECT_EQ(config().uri(), "/demo");
  EXPECT_EQ(config().extra_bytes_limit(), 2u << 20);
  EXPECT_EQ(config().resume(), v1::RESUME_FROM);
  EXPECT_EQ(config().resume_uri(), "/before");
  job.spec.checkpoint->resume_from = {api::ResumeMode::kUri, "", "/one/checkpoint"};
  EXPECT_EQ(config().resume(), v1::RESUME_FROM);
  EXPECT_EQ(config().resume_uri(), "/one/checkpoint");
  job.spec.checkpoint->resume_from = {api::ResumeMode::kNever, "", ""};
  EXPECT_EQ(config().resume(), v1::RESUME_NEVER);
}

TEST(TrainingConfigTest, TrackersAreTakenOverWithAFolderForEachJob) {
  api::TrainingJob job = MakeJob();
  EXPECT_FALSE(ToTrainingConfig(job, "abc", "/out").has_tracking());
  job.spec.tracking.emplace().tensorboard = api::TensorBoardSpec{"/runs/", true};
  v1::TrackingConfig tracking = ToTrainingConfig(job, "abc", "/out").tracking();
  EXPECT_EQ(tracking.tensorboard().directory(), "/runs/demo");
  EXPECT_TRUE(tracking.tensorboard().histograms());
  EXPECT_FALSE(tracking.has_mlflow());
  job.spec.tracking->mlflow = api::MlflowSpec{"digits", "first", "http://mlflow"};
  tracking = ToTrainingConfig(job, "abc", "/out").tracking();
  EXPECT_EQ(tracking.mlflow().experiment(), "digits");
  EXPECT_EQ(tracking.mlflow().run_name(), "first");
  EXPECT_EQ(tracking.mlflow().uri(), "http://mlflow");
}

TEST(TrainingConfigTest, GeneratedDataAreTakenOverWhole) {
  api::TrainingJob job = MakeJob();
  EXPECT_EQ(ToTrainingConfig(job, "abc", "/out").dataset().shuffle_block(), 0u);
  job.spec.dataset.shuffle_blocks = true;
  EXPECT_EQ(ToTrainingConfig(job, "abc", "/out").dataset().shuffle_block(), 1024u);
  job.spec.dataset.shuffle_block = 50;
  EXPECT_EQ(ToTrainingConfig(job, "abc", "/out").dataset().shuffle_block(), 50u);
  job.spec.dataset = {.format = "Synthetic", .path = "", .synthetic = api::SyntheticSpec{}};
  job.spec.dataset.synthetic->kind = "Text";
  EXPECT_EQ(ToTrainingConfig(job, "abc", "/out").dataset().synthetic().samples(), 0);
  job.spec.dataset.synthetic = api::SyntheticSpec{"Text", 1, 2, 3, {4, 5}, 6, 7, 8, 9};
  const v1::DatasetConfig dataset = ToTrainingConfig(job, "abc", "/out").dataset();
  EXPECT_EQ(dataset.format(), "Synthetic");
  const v1::SyntheticConfig& synthetic = dataset.synthetic();
  EXPECT_EQ(synthetic.kind(), "Text");
  EXPECT_EQ(synthetic.samples(), 1);
  EXPECT_EQ(synthetic.test_samples(), 2);
  EXPECT_EQ(synthetic.seed(), 3);
  ASSERT_EQ(synthetic.shape_size(), 2);
  EXPECT_EQ(synthetic.shape(1), 5);
  EXPECT_EQ(synthetic.classes(), 6);
  EXPECT_EQ(synthetic.vocabulary(), 7);
  EXPECT_EQ(synthetic.min_length(), 8);
  EXPECT_EQ(synthetic.max_length(), 9);
}

TEST(TrainingConfigTest, WhatEvaluationsDecideIsPassedOnWhereItIsWanted) {
  api::TrainingJob job = MakeJob();
  v1::TrainingConfig config = ToTrainingConfig(job, "abc", "/out");
  EXPECT_FALSE(config.has_early_stopping());
  EXPECT_FALSE(config.has_reduce_on_plateau());
  EXPECT_EQ(config.keep_best(), "");

  job.spec.training.early_stopping.emplace();
  job.spec.training.reduce_on_plateau.emplace();
  job.spec.training.keep_best.emplace();
  config = ToTrainingConfig(job, "abc", "/out");
  EXPECT_EQ(config.early_stopping().metric(), "Loss");
  EXPECT_EQ(config.early_stopping().min_delta(), 0);
  EXPECT_EQ(config.early_stopping().patience(), 1u);
  EXPECT_EQ(config.early_stopping().start_from_epoch(), 0u);
  EXPECT_EQ(config.reduce_on_plateau().metric(), "Loss");
  EXPECT_EQ(config.reduce_on_plateau().min_delta(), 1e-4);
  EXPECT_EQ(config.reduce_on_plateau().factor(), 0.1);
  EXPECT_EQ(config.reduce_on_plateau().patience(), 9u) << "are let pass; with the tenth the rate is reduced";
  EXPECT_EQ(config.reduce_on_plateau().cooldown(), 0u);
  EXPECT_EQ(config.reduce_on_plateau().min_learning_rate(), 0);
  EXPECT_EQ(config.keep_best(), "Loss");

  *job.spec.training.early_stopping = {.metric = "Accuracy", .min_delta = 0.5, .patience = 4, .start_from_epoch = 3};
  *job.spec.training.reduce_on_plateau = {.metric = "Top5Accuracy",
                                          .factor = 0.25,
                                          .patience = 1,
                                          .cooldown = 2,
                                          .min_learning_rate = 0.125,
                                          .min_delta = 0.75};
  job.spec.training.keep_best->metric = "Accuracy";
  config = ToTrainingConfig(job, "abc", "/out");
  EXPECT_EQ(config.early_stopping().metric(), "Accuracy");
  EXPECT_EQ(config.early_stopping().min_delta(), 0.5);
  EXPECT_EQ(config.early_stopping().patience(), 4u);
  EXPECT_EQ(config.early_stopping().start_from_epoch(), 3u);
  EXPECT_EQ(config.reduce_on_plateau().metric(), "Top5Accuracy");
  EXPECT_EQ(config.reduce_on_plateau().min_delta(), 0.75);
  EXPECT_EQ(config.reduce_on_plateau().factor(), 0.25);
  EXPECT_EQ(config.reduce_on_plateau().patience(), 0u);
  EXPECT_EQ(config.reduce_on_plateau().cooldown(), 2u);
  EXPECT_EQ(config.reduce_on_plateau().min_learning_rate(), 0.125);
  EXPECT_EQ(config.keep_best(), "Accuracy");
}

TEST(TrainingConfigTest, SaysHowManyHoldEachSliceAndHowFarTheyMayBeApart) {
  api::TrainingJob job = MakeJob();
  v1::TrainingConfig config = ToTrainingConfig(job, "abc", "");
  EXPECT_EQ(config.replication_factor(), 1u);
  EXPECT_EQ(config.replication_lag(), 0u);
  job.spec.parameter_server->replicas = 3;
  job.spec.parameter_server->replication_factor = 2;
  config = ToTrainingConfig(job, "abc", "");
  EXPECT_EQ(config.ps_replicas(), 3u);
  EXPECT_EQ(config.replication_factor(), 2u);
  EXPECT_EQ(config.replication_lag(), 0u);
  job.spec.parameter_server->replication.emplace().type = api::ReplicationType::kAsync;
  EXPECT_EQ(ToTrainingConfig(job, "abc", "").replication_lag(), 16u);
  job.spec.parameter_server->replication->max_lag = 3;
  EXPECT_EQ(ToTrainingConfig(job, "abc", "").replication_lag(), 3u);
}

TEST(TrainingConfigTest, AJobOfAllReduceIsSynchronousAndHasNoPs) {
  api::TrainingJob job = MakeJob();
  EXPECT_FALSE(ToTrainingConfig(job, "abc", "").has_all_reduce());
  job.spec.strategy = api::Strategy::kAllReduce;
  job.spec.parameter_server.reset();
  job.spec.update = api::UpdateSpec();
  job.spec.worker.replicas = 3;
  v1::TrainingConfig config = ToTrainingConfig(job, "abc", "");
  ASSERT_TRUE(config.has_all_reduce());
  EXPECT_EQ(config.all_reduce().batch_policy(), v1::AllReduceConfig::KEEP_GLOBAL_BATCH);
  EXPECT_EQ(config.all_reduce().least_workers(), 1u);
  EXPECT_EQ(config.ps_replicas(), 0u);
  EXPECT_EQ(config.replication_factor(), 0u);
  EXPECT_EQ(config.mode(), v1::SYNCHRONOUS);
  EXPECT_FALSE(config.optimizer().staleness_aware());
  EXPECT_EQ(config.workers(), 3u);
  EXPECT_EQ(config.updates_per_step(), 0u) << "one a worker";
  job.spec.update.updates_per_step = 8;
  job.spec.worker.replicas = 9;
  api::ElasticSpec& elastic = job.spec.elastic.emplace();
  elastic.min_replicas = 2;
  elastic.max_replicas = 4;
  config = ToTrainingConfig(job, "abc", "");
  EXPECT_EQ(config.updates_per_step(), 8u);
  EXPECT_EQ(config.workers(), 4u);
  EXPECT_EQ(config.all_reduce().least_workers(), 2u);
  EXPECT_EQ(config.all_reduce().state_copies(), 0u) << "every worker has all of it";
  elastic.state_copies = 2;
  EXPECT_EQ(ToTrainingConfig(job, "abc", "").all_reduce().state_copies(), 2u);
  elastic.batch_policy = api::BatchPolicy::kScaleLearningRate;
  EXPECT_EQ(ToTrainingConfig(job, "abc", "").all_reduce().batch_policy(), v1::AllReduceConfig::SCALE_LEARNING_RATE);
  EXPECT_EQ(ToWantedMode(job).mode(), v1::SYNCHRONOUS);
  EXPECT_EQ(ToWantedMode(job).workers(), 4u);
  EXPECT_EQ(ToWantedPs(job).count(), 0u);
}

TEST(TrainingConfigTest, TheNumberOfPsIsToldWithTheGenerationOfTheManifest) {
  api::TrainingJob job = MakeJob();
  job.metadata.generation = 7;
  job.spec.parameter_server->replicas = 4;
  EXPECT_EQ(ToWantedPs(job).revision(), 7u);
  EXPECT_EQ(ToWantedPs(job).count(), 4u);
}

}  // namespace
}  // namespace downpour::job
