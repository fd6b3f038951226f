#include "trainer/worker/ring_training.h"

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "proto/host_port.h"
#include "spdlog/spdlog.h"
#include "trainer/core/ring/ring_worker.h"
#include "trainer/service/metrics.h"
#include "trainer/service/process.h"
#include "trainer/service/timer.h"
#include "trainer/worker/batch_loader.h"
#include "trainer/worker/coordinator_calls.h"
#include "trainer/worker/gpu_metrics.h"
#include "trainer/worker/ledger_server.h"
#include "trainer/worker/ring_checkpoints.h"
#include "trainer/worker/ring_device.h"
#include "trainer/worker/ring_forming.h"
#include "trainer/worker/ring_heal.h"
#include "trainer/worker/ring_step.h"
#include "trainer/worker/task_work.h"
#include "trainer/worker/worker_metrics.h"

namespace downpour::worker {
namespace {

constexpr absl::Duration kFormLimit = absl::Seconds(10);
// Whoever is lost is found by its connection or its lease, and the group ends: these are for the case that nobody is
// there to find it.
constexpr absl::Duration kStepLimit = absl::Minutes(10);
constexpr absl::Duration kLeaveGrace = absl::Seconds(5);
// Where what it has of a divided state is handed over: nearly as long as a pod has by default.
constexpr absl::Duration kHandOverGrace = absl::Seconds(25);
constexpr absl::Duration kMetricsPeriod = absl::Seconds(1);

RingStep::Options StepOptionsOf(const v1::TrainingConfig& config, bool on_device) {
  RingStep::Options options;
  options.on_device = on_device;
  options.batch_size = config.batch_size();
  options.clip_norm = config.clip_norm();
  options.limit = kStepLimit;
  if (config.codec().push() == v1::CODEC_BF16) options.travels = collective::Precision::kBfloat16;
  return options;
}

class RingTraining final : public TrainingLoop {
 public:
  // `host`: at which the others reach this worker. `store`: of the job's checkpoints, may be null.
  RingTraining(WorkerProcessOptions options, std::unique_ptr<data::Dataset> train, std::unique_ptr<data::Dataset> test,
               std::unique_ptr<model::Model> model, RingDevice device, GradientBuckets buckets, RingMembers members,
               std::string host, std::unique_ptr<checkpoint::Store> store)
      : options_(std::move(options)),
        host_(std::move(host)),
        train_(std::move(train)),
        test_(std::move(test)),
        model_(std::move(model)),
        device_(std::move(device)),
        members_(std::move(members)),
        tasks_(options_.config, options_.index, model_.get(), test_.get()),
        loader_(train_.get(), options_.config.batch_size(), PrefetchOf(options_.config.dataset())),
        step_(StepOptionsOf(options_.config, device_.on_device), model_.get(), &loader_, std::move(buckets)),
        core_(CoreOptions(), [] { return service::RandomSession(); }),
        timer_([this] { OnTimer(); }),
        calls_(options_.coordinator),
        checkpoints_(std::make_unique<RingCheckpoints>(
            std::move(store), options_.config.job_uid(),
            [this](std::uint32_t cut, const absl::StatusOr<v1::PsFiles>& files) {
              With([&](core::RingWorkerCore& core, core::Time now, core::RingOutput* output) {
                core.OnCutWritten(cut, files, now, output);
              });
            })) {
    for (std::size_t tensor = 0; tensor < model_->tensors().size(); ++tensor) {
      std::vector<float>& values = initial_.emplace_back(model_->tensors()[tensor].elements());
      model_->GetParameter(tensor, absl::MakeSpan(values));
    }
  }

  ~RingTraining() override {
    ledger_.reset();
    timer_.Stop();
    calls_.CancelAndWait();
    checkpoints_.reset();
  }

  absl::Status Serve() {
    if (!options_.listen.empty()) {
      absl::StatusOr<std::unique_ptr<LedgerServer>> served =
          LedgerServer::Start(options_.listen, options_.config.job_uid(), [this] { return ReadLedger(); });
      if (!served.ok()) return served.status();
      ledger_ = *std::move(served);
    }
    if (options_.metrics_listen.empty()) return absl::OkStatus();
    absl::StatusOr<std::string> served = metrics_.Serve(options_.metrics_listen);
    if (!served.ok()) return served.status();
    metrics_address_ = *served;
    return absl::OkStatus();
  }

  const std::string& metrics_address() const override { return metrics_address_; }
  std::string address() const override { return ledger_ == nullptr ? "" : ledger_->address(); }
  const std::string& written_model() const override { return tasks_.written_model(); }

  absl::Status Run() override {
    With([](core::RingWorkerCore& core, core::Time now, core::RingOutput* output) { core.Start(now, output); });
    for (;;) {
      core::RingWork work;
      {
        absl::MutexLock lock(&mutex_);
        const auto woken = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
          return work_.has_value() || core_.finished().has_value() || leave_expired_;
        };
        // Bounded by the state machine's own timers: it reports, forms another ring or finishes.
        mutex_.Await(absl::Condition(&woken));
        if (core_.finished().has_value()) return core_.finished()->ok() ? failure_ : *core_.finished();
        if (leave_expired_) return failure_;
        work = *std::exchange(work_, std::nullopt);
      }
      Do(work);
    }
  }

  void Leave() override {
    spdlog::info("asked to leave: goes on until the others have a ring without it");
    With([](core::RingWorkerCore& core, core::Time now, core::RingOutput* output) { core.Leave(now, output); });
    absl::MutexLock lock(&mutex_);
    const bool divided = options_.config.all_reduce().state_copies() > 0;
    leave_by_ = std::min(leave_by_, service::MonotonicNow() + (divided ? kHandOverGrace : kLeaveGrace));
  }

 private:
  core::RingWorkerOptions CoreOptions() const {
    core::RingWorkerOptions core_options;
    core_options.job_uid = options_.config.job_uid();
    core_options.index = options_.index;
    core_options.process_incarnation = options_.process_incarnation;
    core_options.initial_weights_crc32c = options_.initial_weights_crc32c;
    core_options.sample_count = static_cast<std::uint64_t>(train_->size());
    core_options.tensors = TensorSpecsOf(*model_);
    core_options.device = DeviceOf(*model_);
    core_options.devices = static_cast<std::uint32_t>(model_->devices());
    core_options.address = JoinHostPort(host_, members_.tcp->port());
    core_options.make_vectors = device_.make_vectors();
    return core_options;
  }

  // Runs `event` on the state machine under the lock, and carries out what it asks for after.
  using Event = std::function<void(core::RingWorkerCore&, core::Time, core::RingOutput*)>;
  void With(const Event& event) {
    core::RingOutput output;
    {
      absl::MutexLock lock(&mutex_);
      event(core_, service::MonotonicNow(), &output);
      if (output.abort) AbortWork();
      if (output.work.has_value()) {
        work_ = output.work;
        stop_ = std::make_shared<absl::Notification>();
      }
      timer_.Set(std::min(core_.next_timer(), next_housekeeping_));
    }
    if (output.cut.has_value()) checkpoints_->Write(*std::move(output.cut));
    for (core::SyncCall& call : output.syncs) SendSync(std::move(call));
  }

  // Whatever waits in the group, or for it, returns.
  void AbortWork() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (stop_ != nullptr && !stop_->HasBeenNotified()) stop_->Notify();
    ring_.Abort();
  }

  void SendSync(core::SyncCall call) {
    const std::uint64_t id = call.call;
    calls_.Sync(std::move(call), [this, id](const absl::StatusOr<v1::WorkerSyncReply>& reply) {
      With([&](core::RingWorkerCore& core, core::Time now, core::RingOutput* next) {
        core.OnSyncReply(id, reply, now, next);
      });
    });
  }

  void OnTimer() {
    With([](core::RingWorkerCore& core, core::Time now, core::RingOutput* output) { core.OnTimer(now, output); });
    v1::WorkerStats stats;
    bool nccl = false;
    {
      absl::MutexLock lock(&mutex_);
      const core::Time now = service::MonotonicNow();
      if (now >= leave_by_) leave_expired_ = true;
      if (leave_expired_ || core_.finished().has_value()) {
        train_->Stop();  // a step that waits for data waits no more
        AbortWork();
      }
      if (now < next_housekeeping_) return;
      next_housekeeping_ = now + kMetricsPeriod;
      stats = core_.meter().stats();
      nccl = ring_.transport().nccl;
    }
    metrics_.SetGauge("downpour_worker_ring_nccl", "1: gradients are summed by NCCL. 0: by TCP.", {}, nccl ? 1 : 0);
    Publish(stats, loader_, *train_, &metrics_);
    gpu_metrics_.Publish();
  }

  v1::LedgerReply ReadLedger() {
    v1::LedgerReply reply;
    reply.set_job_uid(options_.config.job_uid());
    reply.set_ps_index(options_.index);
    absl::MutexLock lock(&mutex_);
    absl::MutexLock still(&replica_mutex_);
    if (core_.replica() != nullptr && core_.position().known) core_.replica()->Describe(&reply);
    return reply;
  }

  core::RingReplica* replica() {
    absl::MutexLock lock(&mutex_);
    return core_.replica();
  }
  core::RingPosition position() {
    absl::MutexLock lock(&mutex_);
    return core_.position();
  }

  void Do(const core::RingWork& work) {
    using Kind = core::RingWork::Kind;
    const auto answer = [this](auto call) {
      With([&](core::RingWorkerCore& core, core::Time now, core::RingOutput* output) { call(core, now, output); });
    };
    switch (work.kind) {
      case Kind::kForm: {
        const absl::Status formed = Form(work);
        answer([&](auto& core, auto now, auto* output) { core.OnFormed(work.token, formed, now, output); });
        break;
      }
      case Kind::kAlign: {
        const auto positions = TellPositions(words(), position(), kStepLimit);
        answer([&](auto& core, auto now, auto* output) { core.OnAligned(work.token, positions, now, output); });
        break;
      }
      case Kind::kBegin: {
        const absl::Status begun = Begin(work);
        answer([&](auto& core, auto now, auto* output) { core.OnBegun(work.token, begun, now, output); });
        break;
      }
      case Kind::kHeal: {
        const absl::Status healed = Heal(work);
        answer([&](auto& core, auto now, auto* output) { core.OnHealed(work.token, healed, now, output); });
        break;
      }
      case Kind::kSettle: {
        const absl::Status settled = Settle();
        answer([&](auto& core, auto now, auto* output) { core.OnSettled(work.token, settled, now, output); });
        break;
      }
      case Kind::kGather: {
        auto slices = GatherState(words(), work.cut, kStepLimit, *replica());
        answer(
            [&](auto& core, auto now, auto* output) { core.OnGathered(work.token, std::move(slices), now, output); });
        break;
      }
      case Kind::kStep: {
        const auto taken = Step(work);
        answer([&](auto& core, auto now, auto* output) { core.OnStepTaken(work.token, taken, now, output); });
        break;
      }
      case Kind::kTask: {
        core::Work task;
        task.kind = work.task;
        task.dataset_epoch = work.dataset_epoch;
        task.lease = work.lease;
        const v1::TaskResult result = tasks_.Do(task);
        answer([&](auto& core, auto now, auto* output) { core.OnTaskDone(work.token, result, now, output); });
        break;
      }
    }
  }

  std::shared_ptr<absl::Notification> stop() {
    absl::MutexLock lock(&mutex_);
    return stop_;
  }

  absl::Status Form(const core::RingWork& work) {
    {
      FormedRing before;  // ends, and whoever waits in it hears so
      absl::MutexLock lock(&mutex_);
      before = std::move(ring_);
    }
    const std::shared_ptr<absl::Notification> stop = this->stop();
    const v1::View& view = work.view;
    collective::GroupOptions options;
    options.view = absl::StrCat(view.stamp().generation(), ".", view.stamp().incarnation(), ".", view.stamp().epoch());
    options.rank = work.rank;
    options.size = view.ring_size();
    options.store = view.ring(0).address();
    options.host = host_;
    options.limit = kFormLimit;
    options.stop = stop.get();
    absl::StatusOr<FormedRing> ring = FormedRing::Form(members_, device_, options);
    if (!ring.ok()) {
      spdlog::warn("the ring of view {} was not formed: {}", options.view, ring.status().ToString());
      return ring.status();
    }
    spdlog::info("rank {} of {} in the ring of view {}: gradients are summed by {}, as {}", work.rank, options.size,
                 options.view, ring->transport().nccl ? "NCCL" : "TCP", ring->transport().why);
    absl::MutexLock lock(&mutex_);
    if (stop->HasBeenNotified()) return absl::AbortedError("another view has come");
    ring_ = *std::move(ring);
    return absl::OkStatus();
  }

  collective::Collective& words() const { return *ring_.sides().words; }

  absl::Status Begin(const core::RingWork& work) {
    core::RingReplica& replica = *this->replica();  // that has no values, so that nobody reads it
    if (work.view.has_restore()) {
      const std::shared_ptr<absl::Notification> stop = this->stop();
      if (absl::Status loaded = LoadCheckpoint(work.view.restore(), *stop, &replica); !loaded.ok()) return loaded;
    } else {
      for (std::uint32_t number = 0; number < replica.slices().size(); ++number) {
        const core::Slice& slice = replica.slices()[number];
        const auto part = absl::MakeConstSpan(initial_[slice.tensor]).subspan(slice.offset, slice.elements);
        replica.Initialise(number, core::Payload::OfFloats(part, nullptr));
      }
    }
    absl::Status loaded = LoadModel(&replica, model_.get());
    if (loaded.ok()) return loaded;
    // Which says nothing about the checkpoint.
    return absl::AbortedError(DeviceFailed(loaded).message());
  }

  absl::Status Heal(const core::RingWork& work) {
    core::RingReplica& replica = *this->replica();
    if (replica.divided()) return HealDivided(work, &replica);
    if (words().rank() == work.source) {
      if (absl::Status here = replica.ToHost(); !here.ok()) return DeviceFailed(here);
    }
    const absl::StatusOr<std::vector<core::SliceSnapshot>> state =
        ShareState(words(), work.source, kStepLimit, replica);
    if (!state.ok()) return state.status();
    {
      absl::MutexLock still(&replica_mutex_);
      for (const core::SliceSnapshot& snapshot : *state) {
        if (absl::Status taken = replica.Import(snapshot); !taken.ok()) return taken;
      }
    }
    if (absl::Status loaded = LoadModel(&replica, model_.get()); !loaded.ok()) return DeviceFailed(loaded);
    if (words().rank() != work.source) {
      spdlog::info("has the state of rank {}: {} updates", work.source, replica.updates());
    }
    return absl::OkStatus();
  }

  absl::Status HealDivided(const core::RingWork& work, core::RingReplica* replica) {
    const core::RingWork::Recovery& recovery = work.recovery;
    if (recovery.finish) {
      absl::MutexLock still(&replica_mutex_);
      step_.Finish(recovery.last, replica);
    }
    core::RingReplica::Assembly assembly(*replica, recovery.share);
    absl::Status shared = ShareDivided(words(), work.source, recovery.fragments, kStepLimit, *replica, &assembly);
    if (!shared.ok()) return shared;
    {
      absl::MutexLock still(&replica_mutex_);
      if (absl::Status taken = replica->Install(std::move(assembly), recovery.keeps); !taken.ok()) return taken;
      replica->RememberLast(recovery.last);
    }
    if (absl::Status loaded = LoadModel(replica, model_.get()); !loaded.ok()) return DeviceFailed(loaded);
    spdlog::info("has the state of {} updates, and of the optimizer's what is this rank's", replica->updates());
    return absl::OkStatus();
  }

  // Whoever hears that has heard that all others have come to it.
  absl::Status Settle() {
    std::array<float, 1> healed = {1};
    return words().AllReduce(absl::MakeSpan(healed), kStepLimit);
  }

  absl::StatusOr<core::RingWorkerCore::StepResult> Step(const core::RingWork& work) {
    core::RingReplica& replica = *this->replica();
    bool failed_here = false;
    absl::StatusOr<RingStep::Sums> sums = step_.Compute(work, ring_.sides(), &replica, &failed_here);
    if (!sums.ok()) {
      if (failed_here) Fail(sums.status());
      if (!failed_here) spdlog::warn("{}", sums.status().ToString());
      return sums.status();
    }
    const absl::Status exchanged = step_.Exchange(*sums, *ring_.sides().values, &replica);
    const absl::Status taken = Take(exchanged, &replica, &*sums);
    if (!taken.ok()) return DeviceFailed(taken);
    if (!exchanged.ok()) return exchanged;
    if (!replica.whole()) return absl::AbortedError("what parameter servers had of a step is to be put together");
    return sums->result;
  }

  absl::Status Take(const absl::Status& exchanged, core::RingReplica* replica, RingStep::Sums* sums) {
    absl::MutexLock still(&replica_mutex_);
    absl::Status taken = step_.Take(replica, sums);
    if (!exchanged.ok()) replica->LoseOthers();
    return taken;
  }

  // Then nothing that is on it is of use any more: the process ends, and the others go on.
  absl::Status DeviceFailed(absl::Status status) {
    Fail(status);
    return status;
  }

  // What cannot be computed here will not be computable elsewhere either; the process ends and says why.
  void Fail(const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    if (leave_expired_) return;  // data that wait no more
    spdlog::error("{}", std::string(status.message()));
    leave_expired_ = true;
    failure_ = status;
  }

  WorkerProcessOptions options_;
  const std::string host_;
  std::unique_ptr<data::Dataset> train_, test_;
  std::unique_ptr<model::Model> model_;
  RingDevice device_;
  RingMembers members_;
  std::vector<std::vector<float>> initial_;  // values of the model, by tensor
  TaskWork tasks_;
  BatchLoader loader_;
  RingStep step_;

  absl::Mutex mutex_;
  // Held by the thread that calls Run while it changes the replica; taken behind mutex_.
  absl::Mutex replica_mutex_;
  core::RingWorkerCore core_ ABSL_GUARDED_BY(mutex_);
  std::optional<core::RingWork> work_ ABSL_GUARDED_BY(mutex_);
  // Notified when the newest work is of no use any more.
  std::shared_ptr<absl::Notification> stop_ ABSL_GUARDED_BY(mutex_);
  core::Time next_housekeeping_ ABSL_GUARDED_BY(mutex_) = absl::ZeroDuration();
  core::Time leave_by_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteDuration();
  bool leave_expired_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  // Written by the thread that calls Run, under the lock; aborted by any.
  FormedRing ring_;

  service::Metrics metrics_;
  GpuMetrics gpu_metrics_{*model_, &metrics_};
  std::string metrics_address_;
  std::unique_ptr<LedgerServer> ledger_;
  service::Timer timer_;
  CoordinatorCalls calls_;
  std::unique_ptr<RingCheckpoints> checkpoints_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TrainingLoop>> MakeRingTraining(WorkerProcessOptions options,
                                                               std::unique_ptr<data::Dataset> train,
                                                               std::unique_ptr<data::Dataset> test,
                                                               std::unique_ptr<model::Model> model) {
  const v1::Codec codec = options.config.codec().push();
  if (codec != v1::CODEC_FP32 && codec != v1::CODEC_BF16) {
    return absl::InvalidArgumentError(
        absl::StrCat("codec: ", v1::Codec_Name(codec), " is not for all-reduce, only CODEC_FP32 and CODEC_BF16 are"));
  }
  const absl::StatusOr<HostPort> listen = SplitHostPort(options.ring_listen);
  if (!listen.ok()) return listen.status();
  const std::string host = options.advertise_host.empty() ? listen->host : options.advertise_host;
  if (host == "::" || host == "0.0.0.0") {
    return absl::InvalidArgumentError(absl::StrCat("--ring-listen ", options.ring_listen,
                                                   " is every address of this machine: --advertise-host is needed, "
                                                   "where the other workers reach it"));
  }
  std::unique_ptr<checkpoint::Store> store;
  if (options.config.has_checkpoint() && !options.config.checkpoint().uri().empty()) {
    absl::StatusOr<std::unique_ptr<checkpoint::Store>> opened =
        checkpoint::OpenStore(options.config.checkpoint().uri());
    if (!opened.ok()) return opened.status();
    store = *std::move(opened);
  }
  RingDevice device = FindRingDevice(options.config, *model, options.kernels);
  if (!device.why_not.empty()) {
    spdlog::warn("gradients are summed, and steps taken, by the CPU: {}", device.why_not);
  }
  absl::StatusOr<RingMembers> members = MakeRingMembers(options.ring_listen, device, *model, options.nccl);
  if (!members.ok()) return members.status();
  if (!members->why_no_nccl.empty()) spdlog::warn("this worker has no NCCL: {}", members->why_no_nccl);
  absl::StatusOr<GradientBuckets> buckets = GradientBuckets::Create(LayoutOf(model->tensors()), device.kernels.get());
  if (!buckets.ok()) return buckets.status();
  auto training = std::make_unique<RingTraining>(std::move(options), std::move(train), std::move(test),
                                                 std::move(model), std::move(device), *std::move(buckets),
                                                 *std::move(members), host, std::move(store));
  if (absl::Status served = training->Serve(); !served.ok()) return served;
  return training;
}

}  // namespace downpour::worker
