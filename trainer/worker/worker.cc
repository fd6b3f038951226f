#include "trainer/worker/worker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "spdlog/spdlog.h"
#include "trainer/core/schedule.h"
#include "trainer/core/step_id.h"
#include "trainer/data/files/shown_path.h"
#include "trainer/data/index_dataset.h"
#include "trainer/model/devices.h"
#include "trainer/worker/dataset_spec.h"
#include "trainer/worker/initial_weights.h"
#include "trainer/worker/model_output.h"
#include "trainer/worker/model_spec.h"
#include "trainer/worker/ps_training.h"
#include "trainer/worker/ring_training.h"

namespace downpour::worker {
namespace {

model::LocalOptimizer MakeLocalOptimizer(const v1::TrainingConfig& config) {
  const v1::LocalStepsConfig& steps = config.local_steps();
  model::LocalOptimizer optimizer;
  optimizer.type = steps.optimizer() == v1::LocalStepsConfig::MOMENTUM ? model::LocalOptimizer::Type::kMomentum
                   : steps.optimizer() == v1::LocalStepsConfig::ADAM   ? model::LocalOptimizer::Type::kAdam
                   : steps.optimizer() == v1::LocalStepsConfig::ADAMW  ? model::LocalOptimizer::Type::kAdamW
                                                                       : model::LocalOptimizer::Type::kSgd;
  optimizer.learning_rate = steps.learning_rate();
  optimizer.momentum = steps.momentum();
  optimizer.beta1 = steps.beta1();
  optimizer.beta2 = steps.beta2();
  optimizer.epsilon = steps.epsilon();
  optimizer.weight_decay = steps.weight_decay();
  optimizer.clip_norm = config.clip_norm();
  return optimizer;
}

model::ModelOptions MakeModelOptions(const v1::TrainingConfig& config, const data::Dataset& dataset) {
  model::ModelOptions options;
  options.model = MakeModelSpec(config.model());
  options.fields = dataset.fields();
  options.device = config.device() == v1::DEVICE_CPU    ? model::DeviceChoice::kCpu
                   : config.device() == v1::DEVICE_CUDA ? model::DeviceChoice::kCuda
                                                        : model::DeviceChoice::kAuto;
  options.pin_memory = config.dataset().pin_memory();
  options.precision = config.precision() == v1::PRECISION_BF16   ? model::PrecisionChoice::kBf16
                      : config.precision() == v1::PRECISION_TF32 ? model::PrecisionChoice::kTf32
                                                                 : model::PrecisionChoice::kFp32;
  options.layout = config.memory_format() == v1::MEMORY_FORMAT_CONTIGUOUS      ? model::LayoutChoice::kContiguous
                   : config.memory_format() == v1::MEMORY_FORMAT_CHANNELS_LAST ? model::LayoutChoice::kChannelsLast
                                                                               : model::LayoutChoice::kAuto;
  options.threads = static_cast<int>(config.threads());
  options.batch_size = config.batch_size();
  options.seed = config.seed();
  if (core::HasLocalSteps(config)) options.local_optimizer = MakeLocalOptimizer(config);
  return options;
}

// Has the model do, and hold, what it can of the training set.
absl::Status GiveData(v1::OnDevice on_device, model::Model& model, std::unique_ptr<data::Dataset>* train) {
  const absl::StatusOr<bool> held =
      model.TakeData(train->get(), on_device == v1::ON_DEVICE_ALWAYS  ? model::HoldChoice::kAlways
                                   : on_device == v1::ON_DEVICE_NEVER ? model::HoldChoice::kNever
                                                                      : model::HoldChoice::kAuto);
  if (!held.ok()) return held.status();
  if (!*held) return absl::OkStatus();
  spdlog::info("the device holds all {} training samples", (*train)->size());
  *train = data::MakeIndexDataset((*train)->size(), (*train)->fields());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerProcess>> WorkerProcess::Create(WorkerProcessOptions options) {
  data::DatasetSpec spec = MakeDatasetSpec(options.config.dataset());
  if (!spec.cache_directory.empty()) {
    spec.blocks_directory = absl::StrCat(spec.cache_directory, "/worker-", options.index);
  }
  spec.tell = [](const std::string& news) { spdlog::warn("{}", news); };
  // The test set too: what is wrong with it must not come up when the training is done.
  absl::StatusOr<data::Datasets> datasets = data::OpenDatasets(spec, options.config.evaluate(), options.arrow);
  if (!datasets.ok()) return datasets.status();
  absl::StatusOr<std::unique_ptr<model::Model>> model = model::CreateModelOnDevices(
      MakeModelOptions(options.config, *datasets->train), std::max(static_cast<int>(options.config.gpus()), 1));
  if (!model.ok()) return model.status();
  if (options.config.model().has_initial_weights()) {
    const absl::StatusOr<std::uint32_t> crc = TakeInitialWeights(options.config.model().initial_weights(), **model);
    if (!crc.ok()) return crc.status();
    options.initial_weights_crc32c = *crc;
  }
  spdlog::info("{} on {}, {} training samples", ModelName(options.config.model()), (*model)->description(),
               datasets->train->size());
  const absl::Status given = GiveData(options.config.dataset().on_device(), **model, &datasets->train);
  if (!given.ok()) return given;
  return Create(std::move(options), std::move(datasets->train), std::move(datasets->test), *std::move(model));
}

absl::StatusOr<std::unique_ptr<WorkerProcess>> WorkerProcess::Create(WorkerProcessOptions options,
                                                                     std::unique_ptr<data::Dataset> train,
                                                                     std::unique_ptr<data::Dataset> test,
                                                                     std::unique_ptr<model::Model> model) {
  if (options.config.evaluate() && test == nullptr) {
    return absl::InvalidArgumentError("evaluate: there is no test set");
  }
  if (test != nullptr && test->fields() != train->fields()) {
    return absl::DataLossError(absl::StrCat(data::ShownPath(options.config.dataset().path()),
                                            ": samples of the test set have ", data::ToString(test->fields()),
                                            ", those of the training set ", data::ToString(train->fields())));
  }
  if (absl::Status known = core::CheckSchedule(options.config.local_steps().schedule()); !known.ok()) return known;
  if (absl::Status writable = ModelOutput::CheckWritable(options.config); !writable.ok()) return writable;
  const auto make = options.config.has_all_reduce() ? MakeRingTraining : MakePsTraining;
  absl::StatusOr<std::unique_ptr<TrainingLoop>> training =
      make(std::move(options), std::move(train), std::move(test), std::move(model));
  if (!training.ok()) return training.status();
  return std::unique_ptr<WorkerProcess>(new WorkerProcess(*std::move(training)));
}

WorkerProcess::WorkerProcess(std::unique_ptr<TrainingLoop> training) : training_(std::move(training)) {}
WorkerProcess::~WorkerProcess() = default;
const std::string& WorkerProcess::metrics_address() const { return training_->metrics_address(); }
std::string WorkerProcess::address() const { return training_->address(); }
absl::Status WorkerProcess::Run() { return training_->Run(); }
const std::string& WorkerProcess::written_model() const { return training_->written_model(); }
void WorkerProcess::Leave() { training_->Leave(); }

}  // namespace downpour::worker
