#include "trainer/worker/ps_training.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "spdlog/spdlog.h"
#include "trainer/core/layout.h"
#include "trainer/core/schedule.h"
#include "trainer/core/step_id.h"
#include "trainer/core/worker.h"
#include "trainer/model/model.h"
#include "trainer/service/data_bytes.h"
#include "trainer/service/metrics.h"
#include "trainer/service/process.h"
#include "trainer/service/timer.h"
#include "trainer/wire/grpc_transport.h"
#include "trainer/wire/local_first_client.h"
#include "trainer/worker/batch_loader.h"
#include "trainer/worker/coordinator_calls.h"
#include "trainer/worker/device_gradients.h"
#include "trainer/worker/gpu_metrics.h"
#include "trainer/worker/parameter_store.h"
#include "trainer/worker/task_work.h"
#include "trainer/worker/worker_metrics.h"

namespace downpour::worker {
namespace {

constexpr absl::Duration kLeaveGrace = absl::Seconds(5);
constexpr absl::Duration kMetricsPeriod = absl::Seconds(1);

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

std::unique_ptr<wire::DataClient> NewDataClient(const WorkerProcessOptions& options) {
  wire::SharedMemoryClientOptions local;
  local.directory = options.local_data;
  local.job_uid = options.config.job_uid();
  return wire::WithSharedMemory(std::move(local), wire::MakeGrpcDataClient());
}

core::CodecOptions CodecOf(const v1::CodecConfig& config) {
  core::CodecOptions codec;
  codec.codec = ToFrameCodec(config.push());
  if (config.top_k() > 0) codec.top_k = std::min(config.top_k(), 1.0);
  return codec;
}

// Null: gradients are encoded on the host. So is what local steps add up to, which is no gradient of the model's.
std::unique_ptr<DeviceGradients> NewDeviceGradients(const WorkerProcessOptions& options, model::Model* model) {
  if (core::HasLocalSteps(options.config)) return nullptr;
  std::shared_ptr<cuda::DeviceKernels> kernels = options.kernels;
  if (kernels == nullptr) {
    absl::StatusOr<std::shared_ptr<cuda::DeviceKernels>> found = KernelsOf(*model);
    if (!found.ok()) spdlog::warn("gradients are encoded on the CPU: {}", std::string(found.status().message()));
    if (!found.ok() || *found == nullptr) return nullptr;
    kernels = *std::move(found);
  }
  // As the coordinator's view has them, which is compared with the model.
  absl::StatusOr<std::vector<core::Slice>> slices = core::CutTensors(TensorSpecsOf(*model));
  if (!slices.ok()) return nullptr;
  spdlog::info("gradients are encoded where they are computed");
  return std::make_unique<DeviceGradients>(model, *std::move(slices), CodecOf(options.config.codec()),
                                           std::move(kernels));
}

class PsTraining final : public TrainingLoop {
 public:
  PsTraining(WorkerProcessOptions options, std::unique_ptr<data::Dataset> train, std::unique_ptr<data::Dataset> test,
             std::unique_ptr<model::Model> model)
      : options_(std::move(options)),
        train_(std::move(train)),
        test_(std::move(test)),
        model_(std::move(model)),
        store_(model_.get()),
        device_(NewDeviceGradients(options_, model_.get())),
        tasks_(options_.config, options_.index, model_.get(), test_.get()),
        loader_(train_.get(), options_.config.batch_size(), PrefetchOf(options_.config.dataset())),
        core_(CoreOptions(), &store_),
        timer_([this] { OnTimer(); }),
        calls_(options_.coordinator),
        data_client_(NewDataClient(options_)) {
    model_->StageFrom([this] { return loader_.Ahead(); });
  }

  // Callbacks of the data client may use everything else, and the client, until it is destroyed.
  ~PsTraining() override {
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

  const std::string& metrics_address() const override { return metrics_address_; }
  const std::string& written_model() const override { return tasks_.written_model(); }

  absl::Status Run() override {
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
        if (core_.finished().has_value()) return core_.finished()->ok() ? failure_ : *core_.finished();
        if (leave_expired_) return failure_;
        work = *std::exchange(work_, std::nullopt);
      }
      if (work.kind == v1::TASK_TRAIN) {
        Train(work);
      } else {
        store_.Load();
        const v1::TaskResult result = tasks_.Do(work);
        With([&](core::WorkerCore& core, core::Time now, core::WorkerOutput* output) {
          core.OnTaskDone(work.token, result, now, output);
        });
      }
    }
  }

  void Leave() override {
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
    core_options.tensors = TensorSpecsOf(*model_);
    core_options.device = DeviceOf(*model_);
    core_options.devices = static_cast<std::uint32_t>(model_->devices());
    core_options.codec = CodecOf(options_.config.codec());
    if (device_ != nullptr) core_options.encoder = device_->encoder();
    core_options.bf16_values = options_.config.codec().pull() == v1::CODEC_BF16;
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
    const std::uint64_t id = call.call;
    calls_.Sync(std::move(call), [this, id](const absl::StatusOr<v1::WorkerSyncReply>& reply) {
      With([&](core::WorkerCore& core, core::Time now, core::WorkerOutput* next) {
        core.OnSyncReply(id, reply, now, next);
      });
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
    Publish(stats, loader_, *train_, &metrics_);
    service::PublishDataBytes(data_client_->counters(), &metrics_);
    gpu_metrics_.Publish();
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
    if (device_ != nullptr) {
      if (absl::Status ready = device_->Begin(count, work.flushes); !ready.ok()) return Fail(ready);
    }
    bool finite = true;
    double squares = 0;
    const auto on_loss = [&finite](double loss) { return finite = std::isfinite(loss); };
    for (std::uint32_t number = 0; number < count && finite; ++number) {
      if (number > 0 && Abandoned()) return;
      const auto read = loader_.Take(*plan, {work.update, number});
      if (!read.ok() && Abandoned()) return;
      if (!read.ok()) return Fail(read.status());
      const data::Batch& batch = **read;
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
        TellGradient(work.token, tensor);
      };
      const auto on_arrived = [&](const DeviceGradients::Arrived& arrived) {
        if (!arrived.buffer.empty()) return on_gradient(arrived.tensor, arrived.buffer);
        finite = arrived.finite && finite;
        squares += arrived.sum_of_squares;
        if (finite) TellGradient(work.token, arrived.tensor);
      };
      if (local) model_->SetLearningRate(learning_rate->At(work.update, static_cast<double>(number) / count));
      const std::uint64_t seed = plan->UpdateSeed(work.update, number);
      const absl::StatusOr<model::StepResult> step =
          local                ? model_->TakeStep(batch, seed, on_loss)
          : device_ != nullptr ? device_->Compute(batch, seed, static_cast<float>(part), on_loss, on_arrived)
                               : model_->ComputeGradients(batch, seed, on_loss, on_gradient);
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

  // The gradient of the tensor is complete.
  void TellGradient(std::uint64_t token, std::size_t tensor) {
    With([&](core::WorkerCore& core, core::Time now, core::WorkerOutput* output) {
      core.OnGradient(token, static_cast<std::uint32_t>(tensor), now, output);
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

  void Fail(const absl::Status& status) {
    // What cannot be computed here will not be computable elsewhere either; the process ends and says why.
    spdlog::error("{}", std::string(status.message()));
    absl::MutexLock lock(&mutex_);
    leave_expired_ = true;
    failure_ = status;
  }

  WorkerProcessOptions options_;
  std::unique_ptr<data::Dataset> train_;
  std::unique_ptr<data::Dataset> test_;
  std::unique_ptr<model::Model> model_;
  ParameterStore store_;
  const std::unique_ptr<DeviceGradients> device_;  // null: gradients are encoded on the host
  TaskWork tasks_;
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
  GpuMetrics gpu_metrics_{*model_, &metrics_};
  std::string metrics_address_;
  service::Timer timer_;
  CoordinatorCalls calls_;
  const std::unique_ptr<wire::DataClient> data_client_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TrainingLoop>> MakePsTraining(WorkerProcessOptions options,
                                                             std::unique_ptr<data::Dataset> train,
                                                             std::unique_ptr<data::Dataset> test,
                                                             std::unique_ptr<model::Model> model) {
  auto training = std::make_unique<PsTraining>(std::move(options), std::move(train), std::move(test), std::move(model));
  if (absl::Status served = training->ServeMetrics(); !served.ok()) return served;
  return training;
}

}  // namespace downpour::worker
