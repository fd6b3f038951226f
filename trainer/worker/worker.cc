#include "trainer/worker/worker.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "downpour/v1/control.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "spdlog/spdlog.h"
#include "trainer/core/schedule.h"
#include "trainer/core/step_id.h"
#include "trainer/core/worker.h"
#include "trainer/data/files/shown_path.h"
#include "trainer/data/open_dataset.h"
#include "trainer/model/model.h"
#include "trainer/model/objective.h"
#include "trainer/service/calls.h"
#include "trainer/service/metrics.h"
#include "trainer/service/process.h"
#include "trainer/service/stubs.h"
#include "trainer/service/timer.h"
#include "trainer/wire/grpc_transport.h"
#include "trainer/worker/batch_loader.h"
#include "trainer/worker/dataset_spec.h"
#include "trainer/worker/initial_weights.h"
#include "trainer/worker/model_output.h"
#include "trainer/worker/model_spec.h"
#include "trainer/worker/parameter_store.h"

namespace downpour::worker {
namespace {

constexpr std::int64_t kEvaluationBatch = 500;
constexpr absl::Duration kLeaveGrace = absl::Seconds(5);
constexpr absl::Duration kMetricsPeriod = absl::Seconds(1);

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
  options.precision =
      config.precision() == v1::PRECISION_BF16 ? model::PrecisionChoice::kBf16 : model::PrecisionChoice::kFp32;
  options.threads = static_cast<int>(config.threads());
  options.batch_size = config.batch_size();
  options.seed = config.seed();
  if (core::HasLocalSteps(config)) options.local_optimizer = MakeLocalOptimizer(config);
  return options;
}

core::FrameCodec ToFrameCodec(v1::Codec codec) {
  switch (codec) {
    case v1::CODEC_BF16:
      return core::FrameCodec::kBf16;
    case v1::CODEC_INT8:
      return core::FrameCodec::kInt8;
    case v1::CODEC_TOP_K:
      return core::FrameCodec::kTopK;
    case v1::CODEC_ONE_BIT:
      return core::FrameCodec::kOneBit;
    default:
      return core::FrameCodec::kFp32;
  }
}

void Add(const model::Measured& part, model::Measured* whole) {
  whole->sum += part.sum;
  whole->count += part.count;
}

double Mean(const model::Measured& measured) {
  return measured.sum / static_cast<double>(std::max<std::int64_t>(1, measured.count));
}

data::PrefetchOptions PrefetchOf(const v1::DatasetConfig& config) {
  data::PrefetchOptions options;
  if (config.has_prefetch()) options.batches = config.prefetch();
  return options;
}

bool IsAccuracy(const std::string& metric) {
  return metric == model::Name(model::MetricType::kAccuracy) ||
         metric == model::Name(model::MetricType::kBinaryAccuracy);
}

}  // namespace

class WorkerProcess::Impl {
 public:
  Impl(WorkerProcessOptions options, std::unique_ptr<data::Dataset> train, std::unique_ptr<data::Dataset> test,
       std::unique_ptr<model::Model> model)
      : options_(std::move(options)),
        train_(std::move(train)),
        test_(std::move(test)),
        model_(std::move(model)),
        store_(model_.get()),
        output_(options_.config, *model_),
        loader_(train_.get(), options_.config.batch_size(), PrefetchOf(options_.config.dataset())),
        core_(CoreOptions(), &store_),
        timer_([this] { OnTimer(); }),
        data_client_(wire::MakeGrpcDataClient()) {}

  // Callbacks of the data client may use everything else, and the client, until it is destroyed.
  ~Impl() {
    timer_.Stop();
    calls_.CancelAndWait();
  }

  absl::Status ServeMetrics() {
    if (options_.metrics_listen.empty()) return absl::OkStatus();
    absl::StatusOr<std::string> served = metrics_.Serve(options_.metrics_listen);
    if (!served.ok()) return served.status();
    metrics_address_ = *served;
    return absl::OkStatus();
  }

  const std::string& metrics_address() const { return metrics_address_; }
  const std::string& written_model() const { return written_model_; }

  absl::Status Run() {
    With([](core::WorkerCore& core, core::Time now, core::WorkerOutput* output) { core.Start(now, output); });
    for (;;) {
      core::Work work;
      {
        absl::MutexLock lock(&mutex_);
        const auto woken = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
          return work_.has_value() || core_.finished().has_value() || leave_expired_;
        };
        // Bounded by the state machine's own timers: it reports, retries or finishes.
        mutex_.Await(absl::Condition(&woken));
        if (core_.finished().has_value()) return *core_.finished();
        if (leave_expired_) return absl::OkStatus();
        work = *std::exchange(work_, std::nullopt);
      }
      if (work.kind == v1::TASK_TRAIN) {
        Train(work);
      } else {
        Evaluate(work);
      }
    }
  }

  void Leave() {
    spdlog::info("asked to leave: finishes its update and gives its leases back");
    With([](core::WorkerCore& core, core::Time now, core::WorkerOutput* output) { core.Leave(now, output); });
    absl::MutexLock lock(&mutex_);
    leave_by_ = std::min(leave_by_, service::MonotonicNow() + kLeaveGrace);
  }

 private:
  core::WorkerOptions CoreOptions() const {
    core::WorkerOptions core_options;
    core_options.job_uid = options_.config.job_uid();
    core_options.index = options_.index;
    core_options.process_incarnation = options_.process_incarnation;
    core_options.fetch_every = std::max(options_.config.local_steps().fetch_every(), 1u);
    core_options.initial_weights_crc32c = options_.initial_weights_crc32c;
    core_options.sample_count = static_cast<std::uint64_t>(train_->size());
    for (const model::Tensor& tensor : model_->tensors()) {
      v1::TensorSpec spec;
      spec.set_name(tensor.name);
      spec.set_type(v1::FLOAT32);
      spec.set_kind(tensor.kind == model::TensorKind::kBuffer ? v1::BUFFER : v1::PARAMETER);
      for (std::int64_t dimension : tensor.shape) spec.add_shape(dimension);
      core_options.tensors.push_back(std::move(spec));
    }
    const v1::CodecConfig& codec = options_.config.codec();
    core_options.codec.codec = ToFrameCodec(codec.push());
    if (codec.top_k() > 0) core_options.codec.top_k = std::min(codec.top_k(), 1.0);
    core_options.bf16_values = codec.pull() == v1::CODEC_BF16;
    return core_options;
  }

  // Runs `event` on the state machine under the lock, and carries out what it asks for after.
  using Event = std::function<void(core::WorkerCore&, core::Time, core::WorkerOutput*)>;
  void With(const Event& event) {
    core::WorkerOutput output;
    {
      absl::MutexLock lock(&mutex_);
      event(core_, service::MonotonicNow(), &output);
      if (output.work.has_value()) work_ = output.work;
      timer_.Set(std::min(core_.next_timer(), next_housekeeping_));
    }
    for (core::SyncCall& call : output.syncs) SendSync(std::move(call));
    for (core::ExchangeCall& call : output.exchanges) {
      data_client_->Exchange(call.address, std::move(call.frames), call.deadline,
                             [this, id = call.call](absl::StatusOr<wire::Frames> reply) {
                               With([&](core::WorkerCore& core, core::Time now, core::WorkerOutput* next) {
                                 core.OnExchangeReply(id, reply, now, next);
                               });
                             });
    }
  }

  void SendSync(core::SyncCall call) {
    const auto answer = [this, id = call.call](const absl::StatusOr<v1::WorkerSyncReply>& reply) {
      With([&](core::WorkerCore& core, core::Time now, core::WorkerOutput* next) {
        core.OnSyncReply(id, reply, now, next);
      });
    };
    const absl::StatusOr<std::string> address = service::ResolveAddress(options_.coordinator);
    if (!address.ok()) return answer(address.status());
    v1::Coordinator::Stub* const stub = stubs_.For(*address);
    calls_.Unary<v1::WorkerSyncReply>(
        std::move(call.request), call.deadline,
        [stub](grpc::ClientContext* context, const v1::WorkerSyncRequest* request, v1::WorkerSyncReply* reply,
               std::function<void(grpc::Status)> done) {
          stub->async()->SyncWorker(context, request, reply, std::move(done));
        },
        [this, answer, address = *address](const absl::StatusOr<v1::WorkerSyncReply>& reply) {
          if (reply.ok() && reply->status() == v1::SYNC_WRONG_JOB) stubs_.Renew(address);
          answer(reply);
        });
  }

  void OnTimer() {
    With([](core::WorkerCore& core, core::Time now, core::WorkerOutput* output) { core.OnTimer(now, output); });
    v1::WorkerStats stats;
    {
      absl::MutexLock lock(&mutex_);
      const core::Time now = service::MonotonicNow();
      if (now >= leave_by_) leave_expired_ = true;
      // A step that waits for data waits no more.
      if (leave_expired_ || core_.finished().has_value()) train_->Stop();
      if (now < next_housekeeping_) return;
      next_housekeeping_ = now + kMetricsPeriod;
      stats = core_.stats();
    }
    Publish(stats);
  }

  void Train(const core::Work& work) {
    const v1::LocalStepsConfig& steps = options_.config.local_steps();
    std::optional<core::DataPlan> plan;
    std::optional<core::LearningRate> learning_rate;  // of local steps
    {
      absl::MutexLock lock(&mutex_);
      plan = core_.plan();
      learning_rate.emplace(steps.schedule(), steps.learning_rate(), *plan, core::StepWidth(core_.view()),
                            core::LocalRateScale(core_.view()));
    }
    core::Time begun = service::MonotonicNow();
    if (work.fetched) store_.Load();
    core::ComputeResult result;
    result.samples = plan->samples_in_update(work.update);
    const std::uint32_t count = plan->minibatches_in_update(work.update, options_.config.batch_size());
    const bool local = core::HasLocalSteps(options_.config);
    if (local) KeepStart();
    bool finite = true;
    double squares = 0;
    const auto on_loss = [&finite](double loss) { return finite = std::isfinite(loss); };
    for (std::uint32_t number = 0; number < count && finite; ++number) {
      if (number > 0 && Abandoned()) return;
      const absl::StatusOr<data::Batch> read = loader_.Take(*plan, {work.update, number});
      if (!read.ok() && Abandoned()) return;
      if (!read.ok()) return Fail(read.status());
      const data::Batch& batch = *read;
      // All of its samples are broken, and skipped: there is no gradient of none.
      if (batch.size() == 0) finite = false;
      if (!finite) break;
      Prefetch(*plan, {work.update, number + 1});
      result.data_seconds += absl::ToDoubleSeconds(service::MonotonicNow() - begun);
      // Of the samples that are planned: those that are left out as broken ones do not make it weigh less.
      const std::uint64_t begin = std::uint64_t{number} * options_.config.batch_size();
      const auto planned = std::min<std::uint64_t>(result.samples - begin, options_.config.batch_size());
      const double part = static_cast<double>(planned) / static_cast<double>(result.samples);
      const bool last = number + 1 == count;
      std::vector<std::pair<std::size_t, std::vector<float>>> moved;
      const auto on_gradient = [&](std::size_t tensor, absl::Span<const float> gradient) {
        const bool buffer = model_->tensors()[tensor].kind == model::TensorKind::kBuffer;
        finite = store_.KeepGradient(tensor, gradient, buffer ? 1 : static_cast<float>(part), number == 0) && finite;
        if (buffer && !last) moved.emplace_back(tensor, std::vector<float>(gradient.begin(), gradient.end()));
        if (!finite || !last) return;
        if (!buffer && options_.config.clip_norm() > 0) squares += store_.SumOfSquares(tensor);
        With([&](core::WorkerCore& core, core::Time now, core::WorkerOutput* output) {
          core.OnGradient(work.token, static_cast<std::uint32_t>(tensor), now, output);
        });
      };
      if (local) model_->SetLearningRate(learning_rate->At(work.update, static_cast<double>(number) / count));
      const std::uint64_t seed = plan->UpdateSeed(work.update, number);
      const absl::StatusOr<model::StepResult> step =
          local ? model_->TakeStep(batch, seed, on_loss) : model_->ComputeGradients(batch, seed, on_loss, on_gradient);
      if (!step.ok()) return Fail(step.status());
      for (const auto& [tensor, difference] : moved) MoveBuffer(tensor, difference);
      result.loss += part * step->loss;
      result.forward_seconds += step->forward_seconds;
      result.backward_seconds += step->backward_seconds;
      begun = service::MonotonicNow();
    }
    if (local) finite = finite && KeepDifferences();
    if (local && !finite) model_->ForgetSteps();
    if (local || count > 1) store_.LoadAllNext();
    result.verdict = finite ? core::Verdict::kApply : core::Verdict::kSkip;
    result.factor = ClipFactor(squares);
    With([&](core::WorkerCore& core, core::Time now, core::WorkerOutput* output) {
      core.OnComputed(work.token, result, now, output);
    });
  }

  void Prefetch(const core::DataPlan& plan, const Minibatch& from) {
    std::vector<core::UpdateId> updates;
    {
      absl::MutexLock lock(&mutex_);
      updates = core_.NextUpdates(loader_.most());
    }
    loader_.Prefetch(plan, from, updates);
  }

  // Nobody waits for the update under way any more.
  bool Abandoned() {
    absl::MutexLock lock(&mutex_);
    return leave_expired_ || core_.finished().has_value();
  }

  // The values that the steps of an update begin with.
  void KeepStart() {
    start_.resize(model_->tensors().size());
    for (std::size_t tensor = 0; tensor < start_.size(); ++tensor) {
      start_[tensor].resize(static_cast<std::size_t>(model_->tensors()[tensor].elements()));
      model_->GetParameter(tensor, absl::MakeSpan(start_[tensor]));
    }
  }

  // What the update is after its steps: by how much they took the values down. False: it is not finite.
  bool KeepDifferences() {
    bool finite = true;
    std::vector<float> difference;
    for (std::size_t tensor = 0; tensor < start_.size(); ++tensor) {
      difference.resize(start_[tensor].size());
      model_->GetParameter(tensor, absl::MakeSpan(difference));
      for (std::size_t i = 0; i < difference.size(); ++i) difference[i] = start_[tensor][i] - difference[i];
      finite = store_.KeepGradient(tensor, difference) && finite;
    }
    return finite;
  }

  // Between two minibatches of an update a buffer goes on from where the first left it.
  void MoveBuffer(std::size_t tensor, absl::Span<const float> difference) {
    std::vector<float> value(difference.size());
    model_->GetParameter(tensor, absl::MakeSpan(value));
    for (std::size_t i = 0; i < value.size(); ++i) value[i] -= difference[i];
    model_->SetParameter(tensor, value);
  }

  // By what a gradient with this sum of squares is multiplied to have a norm of at most spec.update.clipNorm. Local
  // steps are clipped one by one.
  float ClipFactor(double squares) const {
    const double most = options_.config.clip_norm();
    const double norm = std::sqrt(squares);
    return most > 0 && norm > most ? static_cast<float>(most / norm) : 1.0f;
  }

  void Evaluate(const core::Work& work) {
    v1::TaskResult result;
    store_.Load();
    const absl::Status done = work.kind == v1::TASK_EXPORT      ? output_.Export(&result)
                              : work.kind == v1::TASK_KEEP_BEST ? output_.KeepBest(&result)
                                                                : EvaluateTestSet(work, &result);
    if (work.kind == v1::TASK_EXPORT && !result.path().empty()) written_model_ = result.path();
    const std::string name = absl::StrCat("worker-", options_.index, ": ");
    if (!done.ok()) {
      spdlog::error("{}", std::string(done.message()));
      result.set_error(name + std::string(done.message()));
    }
    if (!result.warning().empty()) {
      spdlog::warn("{}", result.warning());
      result.set_warning(name + result.warning());
    }
    With([&](core::WorkerCore& core, core::Time now, core::WorkerOutput* output) {
      core.OnTaskDone(work.token, result, now, output);
    });
  }

  absl::Status EvaluateTestSet(const core::Work& work, v1::TaskResult* result) {
    model::Measured loss;
    std::vector<model::Measured> metrics;
    std::int64_t samples = 0;
    for (std::int64_t first = 0; first < test_->size(); first += kEvaluationBatch) {
      std::vector<std::int64_t> indices(static_cast<std::size_t>(std::min(kEvaluationBatch, test_->size() - first)));
      std::iota(indices.begin(), indices.end(), first);
      const absl::StatusOr<data::Batch> batch = test_->Read(indices, std::nullopt);
      if (!batch.ok()) return batch.status();
      if (batch->size() == 0) continue;  // all are broken, and skipped
      samples += batch->size();
      const absl::StatusOr<model::EvaluationResult> part = model_->Evaluate(*batch);
      if (!part.ok()) return part.status();
      Add(part->loss, &loss);
      for (std::size_t i = 0; i < part->metrics.size(); ++i) {
        if (i == metrics.size()) metrics.push_back({part->metrics[i].name});
        Add(part->metrics[i], &metrics[i]);
      }
    }
    result->set_samples(static_cast<std::uint64_t>(samples));
    result->set_loss(Mean(loss));
    for (const model::Measured& measured : metrics) {
      v1::Metric* metric = result->add_metrics();
      metric->set_name(measured.name);
      metric->set_value(Mean(measured));
      if (!result->has_accuracy() && IsAccuracy(measured.name)) result->set_accuracy(metric->value());
    }
    if (!std::isfinite(loss.sum)) result->set_warning("the loss on the test set is not finite");
    output_.WriteIfBest(work, result);
    return absl::OkStatus();
  }

  void Fail(const absl::Status& status) {
    // What cannot be computed here will not be computable elsewhere either; the process ends and says why.
    spdlog::error("{}", std::string(status.message()));
    absl::MutexLock lock(&mutex_);
    leave_expired_ = true;
    failure_ = status;
  }

  void PublishLoader() {
    const char* seconds =
        "Seconds of the loader's threads by what they did, all together; waiting: how long steps waited for data.";
    const data::LoadTimes times = train_->times();
    const data::WaitTimes waits = loader_.times();
    for (const auto& [phase, spent] :
         {std::pair{"read", times.read}, std::pair{"decode", times.decode}, std::pair{"transform", times.transform},
          std::pair{"collate", times.collate}, std::pair{"waiting", waits.waited}}) {
      metrics_.SetCounter("downpour_worker_loader_seconds_total", seconds, {{"phase", phase}}, spent);
    }
    metrics_.SetCounter("downpour_worker_broken_samples_total", "Broken samples that this worker left out.", {},
                        static_cast<double>(train_->skipped()));
    if (waits.waited <= 0 || times.sum() <= 0) return;  // or a data set without threads
    metrics_.SetGauge("downpour_worker_loader_busy_ratio",
                      "Of the time in which a step waited for data, the share in which the loader's threads had work.",
                      {}, waits.busy / (waits.waited * train_->threads()));
  }

  void Publish(const v1::WorkerStats& stats) {
    metrics_.SetCounter("downpour_worker_samples_total",
                        "Samples of updates that were applied as this worker pushed them.", {},
                        static_cast<double>(stats.samples()));
    metrics_.SetCounter("downpour_worker_duplicates_total", "Updates that this worker finished after somebody else.",
                        {}, static_cast<double>(stats.duplicates()));
    metrics_.SetCounter("downpour_worker_steps_total", "Updates that this worker finished.", {},
                        static_cast<double>(stats.steps()));
    metrics_.SetCounter(
        "downpour_worker_skipped_total",
        "Updates recorded as skipped: loss or gradient not finite, or no sample of a minibatch could be read.", {},
        static_cast<double>(stats.skipped()));
    metrics_.SetCounter("downpour_worker_push_bytes_total", "Bytes of gradients, as they were sent.", {},
                        static_cast<double>(stats.push_bytes()));
    metrics_.SetCounter("downpour_worker_push_bytes_saved_total",
                        "By the codec: so many more bytes the gradients would have been as float32.", {},
                        static_cast<double>(stats.push_bytes_saved()));
    if (stats.has_loss()) {
      metrics_.SetGauge("downpour_worker_loss", "Training loss over the newest updates.", {}, stats.loss());
    }
    metrics_.SetGauge("downpour_worker_staleness", "Staleness of the newest pushes, in updates.", {},
                      stats.staleness());
    metrics_.SetGauge("downpour_worker_samples_per_second", "Applied, over the newest second.", {},
                      stats.samples_per_second());
    const char* phases = "Mean seconds of the newest steps by phase.";
    metrics_.SetGauge("downpour_worker_step_phase_seconds", phases, {{"phase", "data"}}, stats.data_seconds());
    metrics_.SetGauge("downpour_worker_step_phase_seconds", phases, {{"phase", "pull"}}, stats.pull_seconds());
    metrics_.SetGauge("downpour_worker_step_phase_seconds", phases, {{"phase", "forward"}}, stats.forward_seconds());
    metrics_.SetGauge("downpour_worker_step_phase_seconds", phases, {{"phase", "backward"}}, stats.backward_seconds());
    metrics_.SetGauge("downpour_worker_step_phase_seconds", phases, {{"phase", "push"}}, stats.push_seconds());
    PublishLoader();
    const wire::TransportCounters counters = data_client_->counters();
    const char* bytes = "Bytes of the data plane.";
    metrics_.SetCounter("downpour_data_bytes_total", bytes, {{"direction", "received"}},
                        static_cast<double>(counters.received_bytes));
    metrics_.SetCounter("downpour_data_bytes_total", bytes, {{"direction", "sent"}},
                        static_cast<double>(counters.sent_bytes));
  }

 public:
  absl::Status failure() {
    absl::MutexLock lock(&mutex_);
    return failure_;
  }

 private:
  WorkerProcessOptions options_;
  std::unique_ptr<data::Dataset> train_;
  std::unique_ptr<data::Dataset> test_;
  std::unique_ptr<model::Model> model_;
  ParameterStore store_;
  ModelOutput output_;
  BatchLoader loader_;
  std::vector<std::vector<float>> start_;  // see KeepStart

  absl::Mutex mutex_;
  core::WorkerCore core_ ABSL_GUARDED_BY(mutex_);
  std::optional<core::Work> work_ ABSL_GUARDED_BY(mutex_);
  core::Time next_housekeeping_ ABSL_GUARDED_BY(mutex_) = absl::ZeroDuration();
  core::Time leave_by_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteDuration();
  bool leave_expired_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);

  service::Metrics metrics_;
  std::string metrics_address_;
  std::string written_model_;  // of the thread that calls Run
  service::Timer timer_;
  service::Stubs<v1::Coordinator> stubs_;
  service::Calls calls_;
  const std::unique_ptr<wire::DataClient> data_client_;
};

absl::StatusOr<std::unique_ptr<WorkerProcess>> WorkerProcess::Create(WorkerProcessOptions options) {
  data::DatasetSpec spec = MakeDatasetSpec(options.config.dataset());
  if (!spec.cache_directory.empty()) {
    spec.blocks_directory = absl::StrCat(spec.cache_directory, "/worker-", options.index);
  }
  spec.tell = [](const std::string& news) { spdlog::warn("{}", news); };
  // The test set too: what is wrong with it must not come up when the training is done.
  absl::StatusOr<data::Datasets> datasets = data::OpenDatasets(spec, options.config.evaluate(), options.arrow);
  if (!datasets.ok()) return datasets.status();
  absl::StatusOr<std::unique_ptr<model::Model>> model =
      model::CreateModel(MakeModelOptions(options.config, *datasets->train));
  if (!model.ok()) return model.status();
  if (options.config.model().has_initial_weights()) {
    const absl::StatusOr<std::uint32_t> crc = TakeInitialWeights(options.config.model().initial_weights(), **model);
    if (!crc.ok()) return crc.status();
    options.initial_weights_crc32c = *crc;
  }
  spdlog::info("{} on {}, {} training samples", ModelName(options.config.model()), (*model)->description(),
               datasets->train->size());
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
  auto impl = std::make_unique<Impl>(std::move(options), std::move(train), std::move(test), std::move(model));
  const absl::Status served = impl->ServeMetrics();
  if (!served.ok()) return served;
  return std::unique_ptr<WorkerProcess>(new WorkerProcess(std::move(impl)));
}

WorkerProcess::WorkerProcess(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
WorkerProcess::~WorkerProcess() = default;
const std::string& WorkerProcess::metrics_address() const { return impl_->metrics_address(); }

absl::Status WorkerProcess::Run() {
  const absl::Status finished = impl_->Run();
  return finished.ok() ? impl_->failure() : finished;
}

const std::string& WorkerProcess::written_model() const { return impl_->written_model(); }

void WorkerProcess::Leave() { impl_->Leave(); }

}  // namespace downpour::worker
