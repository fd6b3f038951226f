// With one worker, training through parameter servers gives the weights of a sequential loop, whatever the number of
// ps: plain SGD, and each way to make an update of several minibatches. In mode Synchronous several workers do.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/integration/testing/finish_when_done.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/coordinator/server.h"
#include "trainer/core/data_plan.h"
#include "trainer/core/step_id.h"
#include "trainer/cuda/device_kernels.h"
#include "trainer/data/open_dataset.h"
#include "trainer/model/devices.h"
#include "trainer/model/model.h"
#include "trainer/model/testing/plain_optimizer.h"
#include "trainer/ps/server.h"
#include "trainer/worker/batch_loader.h"
#include "trainer/worker/worker.h"

namespace downpour {
namespace {

constexpr char kJobUid[] = "0123456789abcdef0123456789abcdef";
constexpr char kFashionMnist[] = "/usr/share/datasets/fashion-mnist";
constexpr std::uint32_t kBatchSize = 32;
constexpr std::uint32_t kUpdates = 50;
constexpr double kLearningRate = 0.1;
constexpr std::uint64_t kSeed = 7;
constexpr absl::Duration kPatience = absl::Seconds(50);

// The first samples of another data set.
class FirstSamples final : public data::Dataset {
 public:
  FirstSamples(std::shared_ptr<const data::Dataset> all, std::int64_t size) : all_(std::move(all)), size_(size) {}
  std::int64_t size() const override { return size_; }
  const data::SampleFields& fields() const override { return all_->fields(); }
  absl::StatusOr<data::Batch> Read(absl::Span<const std::int64_t> indices,
                                   std::optional<std::uint64_t> seed) const override {
    return all_->Read(indices, seed);
  }

 private:
  std::shared_ptr<const data::Dataset> all_;
  std::int64_t size_;
};

// Null where Fashion-MNIST is not installed.
std::shared_ptr<const data::Dataset> FashionMnist() {
  static const std::shared_ptr<const data::Dataset> dataset = []() -> std::shared_ptr<const data::Dataset> {
    if (!std::filesystem::exists(kFashionMnist)) return nullptr;
    data::DatasetSpec spec;
    spec.format = "IDX";
    spec.directory = kFashionMnist;
    absl::StatusOr<std::unique_ptr<data::Dataset>> all = data::OpenDataset(spec, data::Split::kTrain);
    EXPECT_TRUE(all.ok()) << all.status();
    return all.ok() ? *std::move(all) : nullptr;
  }();
  return dataset;
}

// Words of which each class has its favourites.
class Words final : public data::Dataset {
 public:
  explicit Words(std::int64_t size) : size_(size) {}
  std::int64_t size() const override { return size_; }
  const data::SampleFields& fields() const override { return fields_; }
  absl::StatusOr<data::Batch> Read(absl::Span<const std::int64_t> indices,
                                   std::optional<std::uint64_t> /*seed*/) const override {
    std::vector<std::int64_t> lengths;
    for (const std::int64_t index : indices) lengths.push_back(1 + index % 7);
    data::Batch batch{{data::MakeRaggedArray(fields_.inputs[0], lengths)},
                      {data::MakeArray(fields_.targets[0], static_cast<std::int64_t>(indices.size()))}};
    const std::int64_t longest = batch.inputs[0].shape[1];
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const std::int64_t label = indices[i] % 3;
      batch.targets[0].mutable_values<std::int64_t>()[i] = label;
      for (std::int64_t word = 0; word < lengths[i]; ++word) {
        batch.inputs[0].mutable_values<std::int32_t>()[i * longest + word] =
            static_cast<std::int32_t>(1 + label * 9 + (indices[i] * 7 + word * 5) % 11);
      }
    }
    return batch;
  }

 private:
  const std::int64_t size_;
  const data::SampleFields fields_{{{"words", data::ElementType::kI32, {data::kRagged}, 40}},
                                   {{"label", data::ElementType::kI64, {}, 3}}};
};

// What is trained: a network of the zoo, or a list of layers.
struct Trained {
  std::string what;
  model::ModelSpec model;
  bool words = false;
};

model::ModelSpec Named(const std::string& name, std::vector<std::string> frozen = {}) {
  model::ModelSpec spec;
  spec.name = name;
  spec.frozen = std::move(frozen);
  return spec;
}

model::ModelSpec Layers(const char* layers) {
  model::ModelSpec spec;
  spec.layers = layers;
  return spec;
}

std::vector<Trained> EveryKind() {
  return {
      {"LeNet", Named("LeNet")},
      {"MLP", Named("MLP")},
      {"Frozen", Named("LeNet", {"conv1.*", "fc1.bias"})},
      {"BatchNorm", Layers(R"([{"type": "conv2d", "filters": 4, "kernel": 5, "stride": 2}, {"type": "batchNorm"},
          {"type": "relu"}, {"type": "flatten"}, {"type": "dense", "units": 16}, {"type": "batchNorm"},
          {"type": "relu"}, {"type": "dense", "units": 10}])")},
      {"Dropout", Layers(R"([{"type": "flatten"}, {"type": "dense", "units": 32}, {"type": "relu"},
          {"type": "dropout", "rate": 0.5}, {"type": "dense", "units": 10}])")},
      {"Embedding", Layers(R"([{"type": "embedding", "size": 8}, {"type": "lstm", "units": 6, "bidirectional": true},
          {"type": "dense", "units": 3}])"),
       true},
  };
}

// What an update is.
struct Rule {
  std::string what = "Plain";
  std::uint32_t accumulate = 1;
  std::uint32_t local_steps = 1;
  std::uint32_t fetch_every = 1;
  std::optional<model::LocalOptimizer> local = std::nullopt;
  double clip_norm = 0;
  double learning_rate = kLearningRate;
  bool cosine = false;  // the learning rate goes down to 0, with local steps that of these
  std::int64_t samples = std::int64_t{kBatchSize} * kUpdates;
  // Mode Synchronous.
  std::uint32_t updates_per_step = 0;
  std::uint32_t workers = 1;
  std::uint32_t updates_per_shard = kUpdates;  // one data shard, so the order of its updates is the only one
  bool adam = false;
  std::uint32_t state_copies = 0;  // by all-reduce: of each part of the optimizer's state
  bool bf16 = false;               // gradients travel so
  v1::Codec push = v1::CODEC_FP32;
  std::shared_ptr<cuda::DeviceKernels> kernels = nullptr;  // of the worker
  int devices = 1;                                         // likewise
};

// As torch.optim.lr_scheduler.CosineAnnealingLR has it of the update number `update` of `plan`.
double CosineRate(const Rule& rule, double rate, double update, const core::DataPlan& plan) {
  return rule.cosine ? rate * (1 + std::cos(M_PI * update / static_cast<double>(plan.updates()))) / 2 : rate;
}

std::unique_ptr<data::Dataset> TrainingSamples(const Trained& trained, const Rule& rule = {}) {
  if (trained.words) return std::make_unique<Words>(rule.samples);
  return std::make_unique<FirstSamples>(FashionMnist(), rule.samples);
}

std::unique_ptr<model::Model> MakeModel(const Trained& trained, const Rule& rule = {}) {
  model::ModelOptions options;
  options.model = trained.model;
  options.fields = TrainingSamples(trained)->fields();
  options.device = model::DeviceChoice::kCpu;
  options.threads = 1;
  options.seed = kSeed;
  options.local_optimizer = rule.local;
  if (rule.local.has_value()) options.local_optimizer->clip_norm = rule.clip_norm;
  absl::StatusOr<std::unique_ptr<model::Model>> model = model::CreateModelOnDevices(options, rule.devices);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : nullptr;
}

v1::TrainingConfig MakeConfig(const Rule& rule, std::uint32_t ps_count, const std::string& output_directory) {
  v1::TrainingConfig config;
  config.set_job_uid(kJobUid);
  config.set_job_name("equivalence");
  config.set_ps_replicas(ps_count);
  config.set_epochs(1);
  config.set_batch_size(kBatchSize);
  config.set_updates_per_shard(rule.updates_per_shard);
  config.set_seed(kSeed);
  config.set_mode(rule.updates_per_step == 0 ? v1::ASYNC : v1::SYNCHRONOUS);
  config.set_updates_per_step(rule.updates_per_step);
  config.set_workers(rule.workers);
  config.mutable_optimizer()->set_type(v1::SGD);
  config.mutable_optimizer()->set_learning_rate(rule.learning_rate);
  config.set_accumulate(rule.accumulate);
  config.mutable_codec()->set_push(rule.bf16 ? v1::CODEC_BF16 : rule.push);
  config.mutable_local_steps()->set_count(rule.local_steps);
  config.mutable_local_steps()->set_fetch_every(rule.fetch_every);
  if (rule.local.has_value()) config.mutable_local_steps()->set_learning_rate(rule.local->learning_rate);
  v1::ScheduleConfig& schedule = rule.local.has_value() ? *config.mutable_local_steps()->mutable_schedule()
                                                        : *config.mutable_optimizer()->mutable_schedule();
  if (rule.cosine) schedule.set_type(v1::SCHEDULE_COSINE);
  config.set_clip_norm(rule.clip_norm);
  config.mutable_optimizer()->set_staleness_aware(ps_count > 0);  // one worker is never stale
  if (ps_count == 0) config.mutable_all_reduce()->set_state_copies(rule.state_copies);
  if (rule.adam) {
    config.mutable_optimizer()->set_type(v1::ADAM);
    config.mutable_optimizer()->set_beta1(0.9);
    config.mutable_optimizer()->set_beta2(0.999);
    config.mutable_optimizer()->set_epsilon(1e-7);
  }
  config.set_output_directory(output_directory);
  return config;
}

core::DataPlan MakePlan(const Rule& rule = {}) {
  v1::DataPlan plan;
  plan.set_sample_count(static_cast<std::uint64_t>(rule.samples));
  plan.set_batch_size(kBatchSize * rule.accumulate * rule.local_steps);
  plan.set_updates_per_shard(rule.updates_per_shard);
  plan.set_epochs(1);
  plan.set_seed(kSeed);
  return *core::DataPlan::Create(plan);
}

using Weights = std::vector<std::vector<float>>;

Weights WeightsOf(const model::Model& model) {
  Weights weights;
  for (std::size_t tensor = 0; tensor < model.tensors().size(); ++tensor) {
    weights.emplace_back(static_cast<std::size_t>(model.tensors()[tensor].elements()));
    model.GetParameter(tensor, absl::MakeSpan(weights.back()));
  }
  return weights;
}

// The sequential loop: no parameter server, no worker.
Weights TrainSequentially(const Trained& trained) {
  const std::unique_ptr<data::Dataset> dataset = TrainingSamples(trained);
  const std::unique_ptr<model::Model> model = MakeModel(trained);
  const core::DataPlan plan = MakePlan();
  for (std::uint32_t group = 0; group < kUpdates; ++group) {
    const core::UpdateId update{0, 0, group};
    const data::Batch batch = *dataset->Read(plan.SampleIndices(update), std::nullopt);
    Weights weights = WeightsOf(*model);
    const absl::StatusOr<model::StepResult> step = model->ComputeGradients(
        batch, plan.UpdateSeed(update), [](double) { return true; },
        [&](std::size_t tensor, absl::Span<const float> gradient) {
          const bool buffer = model->tensors()[tensor].kind == model::TensorKind::kBuffer;
          const float rate = buffer ? 1 : static_cast<float>(kLearningRate);
          for (std::size_t i = 0; i < gradient.size(); ++i) weights[tensor][i] -= rate * gradient[i];
        });
    EXPECT_TRUE(step.ok()) << step.status();
    for (std::size_t tensor = 0; tensor < weights.size(); ++tensor) model->SetParameter(tensor, weights[tensor]);
  }
  return WeightsOf(*model);
}

std::size_t Parameters(const model::Model& model) {
  const auto is_buffer = [](const model::Tensor& tensor) { return tensor.kind == model::TensorKind::kBuffer; };
  return static_cast<std::size_t>(std::find_if(model.tensors().begin(), model.tensors().end(), is_buffer) -
                                  model.tensors().begin());
}

// Of the weights that the model has; buffers have differences.
Weights GradientsOf(model::Model& model, const data::Batch& batch, std::uint64_t seed) {
  Weights gradients(model.tensors().size());
  const absl::StatusOr<model::StepResult> step =
      model.ComputeGradients(batch, seed, nullptr, [&](std::size_t tensor, absl::Span<const float> gradient) {
        gradients[tensor].assign(gradient.begin(), gradient.end());
      });
  EXPECT_TRUE(step.ok()) << step.status();
  return gradients;
}

void SetWeights(const Weights& weights, model::Model* model) {
  for (std::size_t tensor = 0; tensor < weights.size(); ++tensor) model->SetParameter(tensor, weights[tensor]);
}

// The sequential loop of a rule. What is accumulated is one batch of all its samples, but where there is a BatchNorm,
// whose statistics are of minibatches.
Weights TrainSequentially(const Trained& trained, const Rule& rule) {
  const std::unique_ptr<data::Dataset> dataset = TrainingSamples(trained, rule);
  const std::unique_ptr<model::Model> model = MakeModel(trained);
  const core::DataPlan plan = MakePlan(rule);
  const std::size_t parameters = Parameters(*model);
  const bool in_parts = rule.local.has_value() || parameters < model->tensors().size();
  model::LocalOptimizer inner = rule.local.value_or(model::LocalOptimizer{});
  inner.clip_norm = rule.clip_norm;
  model::PlainOptimizer optimizer(inner);
  Weights served = WeightsOf(*model);
  for (std::uint32_t group = 0; group < plan.updates_in_shard(0, 0); ++group) {
    const core::UpdateId update{0, 0, group};
    const double samples = plan.samples_in_update(update);
    const std::uint32_t size = in_parts ? kBatchSize : plan.samples_in_update(update);
    const bool fetches = (group + 1) % rule.fetch_every == 0;
    const Weights start = WeightsOf(*model);
    Weights sum = start;
    for (std::vector<float>& tensor : sum) std::fill(tensor.begin(), tensor.end(), 0.0f);
    const std::uint32_t parts = plan.minibatches_in_update(update, size);
    for (std::uint32_t part = 0; part < parts; ++part) {
      const data::Batch batch = *dataset->Read(plan.SampleIndices(update, part, size), std::nullopt);
      const Weights gradients = GradientsOf(*model, batch, plan.UpdateSeed(update, part));
      Weights weights = WeightsOf(*model);
      for (std::size_t tensor = 0; tensor < weights.size(); ++tensor) {
        const bool buffer = tensor >= parameters;
        const double weight = buffer ? 1 : static_cast<double>(batch.size()) / samples;
        for (std::size_t i = 0; i < weights[tensor].size(); ++i) {
          sum[tensor][i] += static_cast<float>(weight * gradients[tensor][i]);
          if (buffer && !rule.local.has_value()) weights[tensor][i] -= gradients[tensor][i];
        }
      }
      optimizer.SetLearningRate(CosineRate(rule, inner.learning_rate, group + static_cast<double>(part) / parts, plan));
      if (rule.local.has_value()) optimizer.Step(gradients, parameters, &weights);
      SetWeights(weights, model.get());
    }
    const Weights after = WeightsOf(*model);
    const double factor = model::ClipCoefficient(sum, parameters, rule.clip_norm);
    const double rate = rule.local.has_value() ? rule.learning_rate : CosineRate(rule, rule.learning_rate, group, plan);
    for (std::size_t tensor = 0; tensor < after.size(); ++tensor) {
      const bool buffer = tensor >= parameters;
      for (std::size_t i = 0; i < after[tensor].size(); ++i) {
        const double change = buffer || rule.local.has_value() ? double{start[tensor][i]} - double{after[tensor][i]}
                                                               : factor * sum[tensor][i];
        served[tensor][i] = static_cast<float>(served[tensor][i] - (buffer ? 1 : rate) * change);
      }
    }
    if (fetches) SetWeights(served, model.get());
  }
  return served;
}

// One process with the batch of all updates of a step.
Weights TrainWithLargeBatches(const Trained& trained, const Rule& rule) {
  const std::unique_ptr<data::Dataset> dataset = TrainingSamples(trained, rule);
  const std::unique_ptr<model::Model> model = MakeModel(trained);
  const core::DataPlan plan = MakePlan(rule);
  std::uint32_t steps = 0;
  std::uint32_t before = 0;  // updates
  for (core::StepId step; std::uint64_t{step.band} * rule.updates_per_step < plan.shards_in_epoch(0);) {
    std::vector<std::int64_t> samples;
    const std::uint32_t updates =
        core::ForEachUpdateOf(step, rule.updates_per_step, plan, [&](const core::UpdateId& update) {
          const std::vector<std::int64_t> more = plan.SampleIndices(update);
          samples.insert(samples.end(), more.begin(), more.end());
        });
    step = updates == 0 ? core::StepId{0, step.band + 1, 0} : core::StepId{0, step.band, step.group + 1};
    if (updates == 0) continue;
    ++steps;
    const auto rate = static_cast<float>(CosineRate(rule, rule.learning_rate, before, plan));
    const Weights gradients = GradientsOf(*model, *dataset->Read(samples, std::nullopt), 0);
    Weights weights = WeightsOf(*model);
    for (std::size_t tensor = 0; tensor < weights.size(); ++tensor) {
      for (std::size_t i = 0; i < weights[tensor].size(); ++i) {
        weights[tensor][i] -= rate * gradients[tensor][i];
      }
    }
    before += updates;
    SetWeights(weights, model.get());
  }
  EXPECT_GE(steps, 50u);
  return WeightsOf(*model);
}

// The same through `ps_count` parameter servers over loopback, with 0 by all-reduce; the exported model.
void TrainThroughServers(const Trained& trained, const Rule& rule, std::uint32_t ps_count,
                         checkpoint::LoadedFile* exported) {
  std::string directory = absl::StrCat(::testing::TempDir(), "/equivalence.XXXXXX");
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  const v1::TrainingConfig config = MakeConfig(rule, ps_count, directory);
  core::CoordinatorOptions coordinator_options;
  coordinator_options.config = config;
  coordinator_options.lease = absl::Seconds(30);  // a loaded machine must not change the order
  auto coordinator = coordinator::CoordinatorServer::Start(coordinator_options, "127.0.0.1:0", "");
  ASSERT_TRUE(coordinator.ok()) << coordinator.status();
  std::vector<std::unique_ptr<ps::PsServer>> servers;
  for (std::uint32_t index = 0; index < ps_count; ++index) {
    ps::PsServerOptions options;
    options.job_uid = kJobUid;
    options.index = index;
    options.coordinator = (*coordinator)->address();
    auto server = ps::PsServer::Start(options);
    ASSERT_TRUE(server.ok()) << server.status();
    servers.push_back(*std::move(server));
  }
  std::vector<std::unique_ptr<worker::WorkerProcess>> workers;
  for (std::uint32_t index = 0; index < rule.workers; ++index) {
    worker::WorkerProcessOptions options;
    options.config = config;
    options.index = index;
    options.coordinator = (*coordinator)->address();
    options.kernels = rule.kernels;
    auto worker =
        worker::WorkerProcess::Create(options, TrainingSamples(trained, rule), nullptr, MakeModel(trained, rule));
    ASSERT_TRUE(worker.ok()) << worker.status();
    workers.push_back(*std::move(worker));
  }
  std::vector<std::thread> threads;
  for (const auto& worker : workers) {
    threads.emplace_back([&worker] {
      const absl::Status finished = worker->Run();
      EXPECT_TRUE(finished.ok()) << finished;
    });
  }
  const absl::Status finished = downpour::testing::FinishWhenDone((*coordinator)->address(), kJobUid, kPatience);
  EXPECT_TRUE(finished.ok()) << finished;
  if (!finished.ok()) {
    for (const auto& worker : workers) worker->Leave();
  }
  for (std::thread& thread : threads) thread.join();
  const auto loaded = checkpoint::ReadSafetensors(absl::StrCat(directory, "/model.safetensors"));
  std::filesystem::remove_all(directory);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  *exported = *loaded;
}

void ExpectTheSame(const Trained& trained, const Rule& rule, const Weights& expected, double tolerance = 1e-6) {
  const std::unique_ptr<model::Model> model = MakeModel(trained);
  const std::vector<model::Model::Frozen> frozen = model->frozen();
  const Weights initial = WeightsOf(*model);
  for (std::size_t tensor = 0; tensor < expected.size(); ++tensor) {
    EXPECT_NE(expected[tensor], initial[tensor]) << model->tensors()[tensor].name;
  }
  for (std::uint32_t ps_count = rule.updates_per_step == 0 ? 1 : 0; ps_count <= 3; ++ps_count) {
    SCOPED_TRACE(absl::StrCat(ps_count, " ps"));
    checkpoint::LoadedFile exported;
    ASSERT_NO_FATAL_FAILURE(TrainThroughServers(trained, rule, ps_count, &exported));
    ASSERT_EQ(exported.tensors.size(), expected.size() + frozen.size());
    double difference = 0;
    for (std::size_t tensor = 0; tensor < expected.size(); ++tensor) {
      const std::vector<float>& values = exported.tensors.at(model->tensors()[tensor].name).values;
      ASSERT_EQ(values.size(), expected[tensor].size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        // Of what is above 1, a variance for instance, one bit alone is more than that.
        const double wanted = expected[tensor][i];
        difference = std::max(difference, std::abs(values[i] - wanted) / std::max(1.0, std::abs(wanted)));
      }
    }
    EXPECT_LE(difference, tolerance);
    for (const model::Model::Frozen& one : frozen) {
      EXPECT_EQ(exported.tensors.at(one.tensor.name).values, one.values) << one.tensor.name;
    }
  }
}

class EquivalenceTest : public ::testing::TestWithParam<Trained> {};

TEST_P(EquivalenceTest, OneWorkerTrainsAsASequentialLoop) {
  if (FashionMnist() == nullptr) FAIL() << kFashionMnist << " is not installed";
  ExpectTheSame(GetParam(), {}, TrainSequentially(GetParam()));
}

model::LocalOptimizer Inner(model::LocalOptimizer::Type type, double learning_rate, double weight_decay = 0) {
  model::LocalOptimizer inner;
  inner.type = type;
  inner.learning_rate = learning_rate;
  inner.weight_decay = weight_decay;
  inner.epsilon = 1e-3;  // where it is tiny, a gradient of nearly 0 makes as large a step as any: nothing to compare
  return inner;
}

// The last update of the epoch has fewer minibatches, the last of which has fewer samples.
std::vector<Rule> EveryRule() {
  using Type = model::LocalOptimizer::Type;
  return {
      {.what = "Accumulate", .accumulate = 4, .samples = 1590},
      {.what = "Clip", .clip_norm = 0.5},
      {.what = "Cosine", .cosine = true},
      {.what = "AccumulateAndClip", .accumulate = 3, .clip_norm = 0.25, .samples = 1590},
      {.what = "Averaging", .local_steps = 8, .local = Inner(Type::kSgd, 0.1), .learning_rate = 1, .samples = 1590},
      {.what = "Momentum", .local_steps = 5, .local = Inner(Type::kMomentum, 0.02), .learning_rate = 0.9},
      {.what = "FetchEvery",
       .local_steps = 4,
       .fetch_every = 3,
       .local = Inner(Type::kSgd, 0.1),
       .learning_rate = 0.5,
       .samples = 1590},
      {.what = "DiLoCo",
       .local_steps = 10,
       .local = Inner(Type::kAdamW, 1e-3, 0.1),
       .clip_norm = 1,
       .learning_rate = 0.7,
       .cosine = true,
       .samples = 1590},
      {.what = "LocalCosine",
       .local_steps = 4,
       .local = Inner(Type::kSgd, 0.1),
       .learning_rate = 0.9,
       .cosine = true,
       .samples = 1590},
  };
}

class RuleTest : public ::testing::TestWithParam<Rule> {};

// Smooth: where a ReLU bends, or another value is the largest, a difference of one bit becomes one of the gradient. The
// gradients of the large layer are at the ps before their norm is known.
std::vector<Trained> Smooth() {
  return {
      {"Dense", Layers(R"([{"type": "flatten"}, {"type": "dense", "units": 128}, {"type": "tanh"},
          {"type": "dense", "units": 10}])")},
      {"BatchNorm", Layers(R"([{"type": "conv2d", "filters": 4, "kernel": 5, "stride": 2}, {"type": "batchNorm"},
          {"type": "tanh"}, {"type": "flatten"}, {"type": "dense", "units": 16}, {"type": "tanh"},
          {"type": "dropout", "rate": 0.25}, {"type": "dense", "units": 10}])")},
  };
}

TEST_P(RuleTest, OneWorkerTrainsAsASequentialLoop) {
  if (FashionMnist() == nullptr) FAIL() << kFashionMnist << " is not installed";
  for (const Trained& trained : Smooth()) {
    SCOPED_TRACE(trained.what);
    ExpectTheSame(trained, GetParam(), TrainSequentially(trained, GetParam()));
  }
}

class SynchronousTest : public ::testing::TestWithParam<Rule> {};

// The sums have other orders than those of a large batch.
TEST_P(SynchronousTest, WorkersTrainAsOneProcessWithTheBatchOfAll) {
  if (FashionMnist() == nullptr) FAIL() << kFashionMnist << " is not installed";
  const Trained trained = Smooth().front();
  ExpectTheSame(trained, GetParam(), TrainWithLargeBatches(trained, GetParam()), 1e-5);
}

// Running statistics among them; gradients are clipped by the norm of all. No random masks: LibTorch has one generator
// a process.
TEST(DividedStateTest, HasTheBitsOfAWholeOne) {
  if (FashionMnist() == nullptr) FAIL() << kFashionMnist << " is not installed";
  for (const Trained& trained : {Smooth().front(), EveryKind()[0], EveryKind()[3]}) {
    SCOPED_TRACE(trained.what);
    for (const std::uint32_t workers : {2u, 3u}) {
      // With three the sums travel as bfloat16.
      Rule rule{.clip_norm = 0.5,
                .learning_rate = 0.001,
                .samples = 5000,
                .updates_per_step = 3,
                .workers = workers,
                .updates_per_shard = 9,
                .adam = true,
                .bf16 = workers == 3};
      checkpoint::LoadedFile whole;
      ASSERT_NO_FATAL_FAILURE(TrainThroughServers(trained, rule, 0, &whole));
      for (rule.state_copies = 1; rule.state_copies <= 3; ++rule.state_copies) {
        SCOPED_TRACE(absl::StrCat(rule.state_copies, " copies at ", workers, " workers"));
        checkpoint::LoadedFile divided;
        ASSERT_NO_FATAL_FAILURE(TrainThroughServers(trained, rule, 0, &divided));
        ASSERT_EQ(divided.tensors.size(), whole.tensors.size());
        for (const auto& [name, tensor] : whole.tensors)
          EXPECT_EQ(divided.tensors.at(name).values, tensor.values) << name;
      }
    }
  }
}

// Encoded where they are computed: with running statistics, several minibatches an update and what codecs leave over.
TEST(DeviceGradientsTest, GiveTheBitsOfGradientsThatTheHostEncodes) {
  if (FashionMnist() == nullptr) FAIL() << kFashionMnist << " is not installed";
  const Trained trained = Smooth().back();
  for (const v1::Codec codec : {v1::CODEC_FP32, v1::CODEC_BF16, v1::CODEC_INT8, v1::CODEC_TOP_K, v1::CODEC_ONE_BIT}) {
    for (const std::uint32_t accumulate : {1u, 3u}) {
      SCOPED_TRACE(absl::StrCat(v1::Codec_Name(codec), ", ", accumulate, " minibatches"));
      Rule rule{.accumulate = accumulate, .samples = 1590, .push = codec};
      checkpoint::LoadedFile host;
      ASSERT_NO_FATAL_FAILURE(TrainThroughServers(trained, rule, 2, &host));
      rule.kernels = cuda::MakeHostKernels();
      checkpoint::LoadedFile device;
      ASSERT_NO_FATAL_FAILURE(TrainThroughServers(trained, rule, 2, &device));
      ASSERT_EQ(device.tensors.size(), host.tensors.size());
      for (const auto& [name, tensor] : host.tensors) EXPECT_EQ(device.tensors.at(name).values, tensor.values) << name;
    }
  }
}

// Their norm is added up in another order.
TEST(DeviceGradientsTest, AreClippedAsThoseOfASequentialLoop) {
  if (FashionMnist() == nullptr) FAIL() << kFashionMnist << " is not installed";
  Rule rule{.accumulate = 3, .clip_norm = 0.25, .samples = 1590};
  const Weights expected = TrainSequentially(Smooth().back(), rule);
  rule.kernels = cuda::MakeHostKernels();
  ExpectTheSame(Smooth().back(), rule, expected);
}

// Threads of the CPU in the place of GPUs. The last minibatch does not divide.
TEST(SeveralDevicesTest, AWorkerTrainsAsWithOne) {
  if (FashionMnist() == nullptr) FAIL() << kFashionMnist << " is not installed";
  for (const Trained& trained : {Smooth().front(), EveryKind().back()}) {
    for (const int devices : {2, 3}) {
      SCOPED_TRACE(absl::StrCat(trained.what, " on ", devices));
      const Rule rule{.accumulate = 2, .samples = 1590, .devices = devices};
      ExpectTheSame(trained, rule, TrainSequentially(trained, rule), 1e-5);
    }
  }
  const Rule together{.samples = 3340, .updates_per_step = 2, .workers = 2, .updates_per_shard = 10, .devices = 2};
  ExpectTheSame(Smooth().front(), together, TrainWithLargeBatches(Smooth().front(), together), 1e-5);
}

// Each sum is off by two roundings to eight places at most, or the values would be those of float32.
TEST(BfloatSumsTest, AreCloseToThoseOfOneProcess) {
  if (FashionMnist() == nullptr) FAIL() << kFashionMnist << " is not installed";
  const Trained trained = Smooth().front();
  const Rule rule{.samples = 3340, .updates_per_step = 2, .workers = 2, .updates_per_shard = 10, .bf16 = true};
  const Weights expected = TrainWithLargeBatches(trained, rule);
  const std::unique_ptr<model::Model> model = MakeModel(trained);
  const Weights initial = WeightsOf(*model);
  checkpoint::LoadedFile exported;
  ASSERT_NO_FATAL_FAILURE(TrainThroughServers(trained, rule, 0, &exported));
  double off = 0, moved = 0;
  for (std::size_t tensor = 0; tensor < expected.size(); ++tensor) {
    const std::vector<float>& values = exported.tensors.at(model->tensors()[tensor].name).values;
    ASSERT_EQ(values.size(), expected[tensor].size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      off += std::pow(double{values[i]} - expected[tensor][i], 2);
      moved += std::pow(double{expected[tensor][i]} - initial[tensor][i], 2);
    }
  }
  EXPECT_GT(std::sqrt(off / moved), std::ldexp(1, -13));
  EXPECT_LT(std::sqrt(off / moved), std::ldexp(1, -7));
}

// The last data shards of the epoch are a band of fewer, the last one has fewer updates, its last one fewer samples.
INSTANTIATE_TEST_SUITE_P(
    Steps, SynchronousTest,
    ::testing::Values(
        Rule{.what = "OneOfThree", .samples = 5000, .updates_per_step = 3, .workers = 1, .updates_per_shard = 9},
        Rule{.what = "Cosine",
             .cosine = true,
             .samples = 5000,
             .updates_per_step = 3,
             .workers = 2,
             .updates_per_shard = 9},
        Rule{.what = "TwoOfTwo", .samples = 3340, .updates_per_step = 2, .workers = 2, .updates_per_shard = 10},
        Rule{.what = "ThreeOfThree", .samples = 5000, .updates_per_step = 3, .workers = 3, .updates_per_shard = 9},
        Rule{.what = "ThreeOfTwo", .samples = 3340, .updates_per_step = 2, .workers = 3, .updates_per_shard = 10}),
    [](const auto& instance) { return instance.param.what; });

INSTANTIATE_TEST_SUITE_P(Rules, RuleTest, ::testing::ValuesIn(EveryRule()),
                         [](const auto& instance) { return instance.param.what; });

INSTANTIATE_TEST_SUITE_P(Models, EquivalenceTest, ::testing::ValuesIn(EveryKind()),
                         [](const auto& instance) { return instance.param.what; });

}  // namespace
}  // namespace downpour
