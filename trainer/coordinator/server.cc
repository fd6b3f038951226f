#include "trainer/coordinator/server.h"

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "downpour/v1/control.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "proto/deadline.h"
#include "spdlog/spdlog.h"
#include "trainer/checkpoint/job_store.h"
#include "trainer/coordinator/store_thread.h"
#include "trainer/core/ring/ring_coordinator.h"
#include "trainer/service/calls.h"
#include "trainer/service/metrics.h"
#include "trainer/service/process.h"
#include "trainer/service/stubs.h"
#include "trainer/service/timer.h"
#include "trainer/service/wall_time.h"
#include "trainer/tracking/run_tracking.h"
#include "trainer/wire/grpc_transport.h"

namespace downpour::coordinator {
namespace {

constexpr absl::Duration kFarewell = absl::Seconds(2);  // for the workers to hear that the job is over
constexpr absl::Duration kMetricsPeriod = absl::Seconds(1);

std::unique_ptr<core::JobCoordinator> MakeCore(core::CoordinatorOptions options) {
  if (options.config.has_all_reduce()) {
    return std::make_unique<core::RingCoordinatorCore>(std::move(options), service::MonotonicNow());
  }
  return std::make_unique<core::CoordinatorCore>(std::move(options), service::MonotonicNow());
}

}  // namespace

class CoordinatorServer::Impl final : public v1::Coordinator::CallbackService {
 public:
  // `tracking` may be null.
  Impl(core::CoordinatorOptions options, std::unique_ptr<checkpoint::JobStore> store,
       std::unique_ptr<tracking::RunTracking> tracking)
      : core_(MakeCore(std::move(options))),
        store_(store == nullptr ? nullptr
                                : std::make_unique<StoreThread>(std::move(store),
                                                                [this](std::uint64_t call, core::StoreReply reply) {
                                                                  OnStoreReply(call, std::move(reply));
                                                                })),
        tracking_(std::move(tracking)),
        timer_([this] { OnTimer(); }) {}

  ~Impl() override {
    timer_.Stop();
    if (server_ != nullptr) server_->Shutdown(DeadlineIn(absl::Seconds(1)));
    store_.reset();
    calls_.CancelAndWait();
    EndTracking();
  }

  absl::Status Serve(const std::string& listen, const std::string& metrics_listen) {
    absl::StatusOr<wire::StartedServer> started = wire::StartServer(listen, {this});
    if (!started.ok()) return started.status();
    server_ = std::move(started->server);
    address_ = std::move(started->address);
    if (!metrics_listen.empty()) {
      absl::StatusOr<std::string> served = metrics_.Serve(metrics_listen);
      if (!served.ok()) return served.status();
      metrics_address_ = *served;
    }
    timer_.Set(service::MonotonicNow());
    return absl::OkStatus();
  }

  grpc::ServerUnaryReactor* RegisterPs(grpc::CallbackServerContext* context, const v1::RegisterPsRequest* request,
                                       v1::RegisterPsReply* reply) override {
    return Answer(context, [&] {
      *reply = core_->OnRegisterPs(*request, service::MonotonicNow());
      if (reply->status() == v1::SYNC_OK) {
        LogOnce(absl::StrCat("ps-", request->self().index()),
                absl::StrCat("registered from ", request->self().address(), ", start ",
                             request->self().process_incarnation()));
      }
    });
  }
  grpc::ServerUnaryReactor* SyncWorker(grpc::CallbackServerContext* context, const v1::WorkerSyncRequest* request,
                                       v1::WorkerSyncReply* reply) override {
    return Answer(context, [&] {
      *reply = core_->OnSyncWorker(*request, service::MonotonicNow());
      if (reply->status() == v1::SYNC_OK && !request->accepted()) {
        LogOnce(absl::StrCat("worker-", request->index()), absl::StrCat("joined, session ", request->session()));
      } else if (reply->status() != v1::SYNC_OK && reply->status() != v1::SYNC_WAIT) {
        LogOnce(absl::StrCat("worker-", request->index()),
                absl::StrCat("session ", request->session(), " is told ", v1::SyncStatus_Name(reply->status()), " ",
                             reply->message()));
      }
    });
  }
  grpc::ServerUnaryReactor* GetProgress(grpc::CallbackServerContext* context, const v1::ProgressRequest* request,
                                        v1::ProgressReply* reply) override {
    return Answer(context, [&] {
      if (request->job_uid() != job_uid()) return;
      core_->ReportFailures(*request);
      *reply = core_->GetProgress(service::MonotonicNow());
      if (tracking_ == nullptr) return;
      for (std::string& warning : tracking_->Warnings()) reply->add_warnings(std::move(warning));
    });
  }
  grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context, const v1::FinishRequest* request,
                                   v1::FinishReply* reply) override {
    return Answer(context, [&] { *reply = core_->OnFinish(*request); });
  }

  absl::Status Wait() {
    absl::MutexLock lock(&mutex_);
    const auto over = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return stopped_ || core_->finished() || core_->fenced().has_value();
    };
    mutex_.Await(absl::Condition(&over));
    if (core_->fenced().has_value()) return *core_->fenced();
    if (core_->finished() && !stopped_) {
      // Lets every worker hear it at its next call; bounded, as workers may be gone.
      const auto deserted = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopped_ || core_->deserted(); };
      mutex_.AwaitWithTimeout(absl::Condition(&deserted), kFarewell);
    }
    return absl::OkStatus();
  }

  void Stop() {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
  }

  const std::string& address() const { return address_; }
  const std::string& metrics_address() const { return metrics_address_; }
  void set_job_uid(std::string uid) { job_uid_ = std::move(uid); }
  const std::string& job_uid() const { return job_uid_; }

 private:
  template <typename Handle>
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, Handle handle) {
    std::vector<core::DirectCall> directives;
    {
      absl::MutexLock lock(&mutex_);
      handle();
      directives = TakeDirectives();
    }
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    Send(std::move(directives));
    return reactor;
  }

  void OnTimer() {
    std::vector<core::DirectCall> directives;
    v1::ProgressReply progress;
    std::vector<std::uint64_t> evaluated_at;
    bool publish = false;
    {
      absl::MutexLock lock(&mutex_);
      directives = TakeDirectives();
      publish = service::MonotonicNow() >= next_metrics_;
      if (publish) {
        next_metrics_ = service::MonotonicNow() + kMetricsPeriod;
        progress = core_->GetProgress(service::MonotonicNow());
        evaluated_at = EvaluatedAt(progress);
      }
    }
    Send(std::move(directives));
    if (!publish) return;
    Publish(progress);
    Track(progress, evaluated_at);
  }

  // After how many updates each evaluation was.
  std::vector<std::uint64_t> EvaluatedAt(const v1::ProgressReply& progress) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::vector<std::uint64_t> updates;
    updates.reserve(static_cast<std::size_t>(progress.evaluations_size()));
    for (const v1::Evaluation& evaluation : progress.evaluations()) {
      updates.push_back(core_->updates_before(evaluation.dataset_epoch()));
    }
    return updates;
  }

  std::vector<core::DirectCall> TakeDirectives() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::vector<core::DirectCall> directives = core_->TakeDirectives(service::MonotonicNow());
    std::vector<core::StoreCall> calls = core_->TakeStoreCalls();
    if (store_ != nullptr && !calls.empty()) store_->Add(std::move(calls));
    timer_.Set(core_->next_timer());
    return directives;
  }

  void Send(std::vector<core::DirectCall> directives) {
    for (core::DirectCall& directive : directives) {
      v1::ParameterServer::Stub* stub = stubs_.For(directive.address);
      calls_.Unary<v1::DirectReply>(
          std::move(directive.request), directive.deadline,
          [stub](grpc::ClientContext* context, const v1::DirectRequest* request, v1::DirectReply* reply,
                 std::function<void(grpc::Status)> done) {
            stub->async()->Direct(context, request, reply, std::move(done));
          },
          [this, id = directive.call](const absl::StatusOr<v1::DirectReply>& reply) {
            std::vector<core::DirectCall> next;
            {
              absl::MutexLock lock(&mutex_);
              core_->OnDirectReply(id, reply, service::MonotonicNow());
              next = TakeDirectives();
            }
            Send(std::move(next));
          });
    }
  }

  void OnStoreReply(std::uint64_t call, core::StoreReply reply) {
    std::vector<core::DirectCall> directives;
    {
      absl::MutexLock lock(&mutex_);
      core_->OnStoreReply(call, std::move(reply), service::MonotonicNow());
      directives = TakeDirectives();
    }
    Send(std::move(directives));
  }

  void LogOnce(const std::string& key, const std::string& text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::string& newest = logged_[key];
    if (newest == text) return;
    newest = text;
    spdlog::info("{}: {}", key, text);
  }

  void Publish(const v1::ProgressReply& progress) {
    {
      absl::MutexLock lock(&mutex_);
      LogOnce("job", absl::StrCat(v1::JobPhase_Name(progress.phase()), ", generation ", progress.view().generation(),
                                  progress.message().empty() ? "" : ", ", progress.message()));
    }
    int workers = 0, ps = 0;
    for (const v1::MemberProgress& member : progress.members()) ++(member.role() == "ps" ? ps : workers);
    metrics_.SetGauge("downpour_members", "Processes that the coordinator counts as members.", {{"role", "worker"}},
                      workers);
    metrics_.SetGauge("downpour_members", "Processes that the coordinator counts as members.", {{"role", "ps"}}, ps);
    metrics_.SetGauge("downpour_generation", "Raised by every roll-back.", {},
                      static_cast<double>(progress.view().generation()));
    metrics_.SetGauge("downpour_layout_epoch", "Raised by every change of the view.", {}, progress.view().epoch());
    metrics_.SetGauge("downpour_dataset_epochs_done", "Dataset epochs of which every update is applied.", {},
                      progress.epochs_done());
    metrics_.SetGauge("downpour_leases_active", "Data shards that a worker holds.", {},
                      static_cast<double>(progress.leases_active()));
    metrics_.SetCounter("downpour_lease_expirations_total", "Sessions that were fenced for being silent.", {},
                        static_cast<double>(progress.lease_expirations()));
    metrics_.SetCounter("downpour_backup_executions_total",
                        "Data shards that were leased a second time, as their worker was late.", {},
                        static_cast<double>(progress.backup_executions()));
    metrics_.SetCounter("downpour_updates_applied_total", "Updates that every slice holds.", {},
                        static_cast<double>(progress.updates_applied()));
    if (progress.has_replication()) {
      const v1::ReplicationProgress& replication = progress.replication();
      metrics_.SetGauge("downpour_replication_factor", "Parameter servers that are to hold each slice.", {},
                        replication.factor());
      metrics_.SetGauge("downpour_slices", "Slices of the parameters.", {}, replication.slices());
      metrics_.SetGauge("downpour_slices_in_sync", "Slices with a standby that has all that was acknowledged.", {},
                        replication.in_sync());
      metrics_.SetGauge("downpour_slices_moving", "Slices that are being copied.", {}, replication.moving());
      metrics_.SetCounter("downpour_failovers_total",
                          "Slices whose standby took over as their ps was lost, since this coordinator started.", {},
                          replication.failovers());
      metrics_.SetCounter("downpour_slice_moves_total", "Slices that were moved, since this coordinator started.", {},
                          replication.moves());
    }
    if (progress.has_ring()) {
      const v1::RingProgress& ring = progress.ring();
      metrics_.SetGauge("downpour_ring_members", "Workers of the ring.", {}, ring.members());
      metrics_.SetGauge("downpour_ring_formed", "1: all of them are in one group, and train.", {},
                        ring.formed() ? 1 : 0);
      metrics_.SetCounter("downpour_rings_total", "Rings that were formed, since this coordinator started.", {},
                          static_cast<double>(ring.formed_count()));
    }
    if (progress.has_checkpoint()) {
      const v1::CheckpointProgress& checkpoint = progress.checkpoint();
      const char* attempts = "Checkpoints by what became of them, since this coordinator started.";
      metrics_.SetCounter("downpour_checkpoints_total", attempts, {{"result", "written"}}, checkpoint.written());
      metrics_.SetCounter("downpour_checkpoints_total", attempts, {{"result", "failed"}}, checkpoint.failed());
      metrics_.SetGauge("downpour_checkpoint_updates", "Updates that the newest checkpoint holds.", {},
                        static_cast<double>(checkpoint.newest_updates()));
      metrics_.SetGauge("downpour_checkpoint_age_seconds",
                        "Since the newest checkpoint was cut, or training began with it.", {},
                        static_cast<double>(checkpoint.newest_age_milliseconds()) / 1e3);
      metrics_.SetGauge("downpour_checkpoint_bytes", "Of all files of the newest checkpoint.", {},
                        static_cast<double>(checkpoint.newest_bytes()));
      metrics_.SetGauge("downpour_checkpoint_seconds", "From the order to the manifest of the newest checkpoint.", {},
                        static_cast<double>(checkpoint.newest_milliseconds()) / 1e3);
      metrics_.SetGauge("downpour_checkpoint_extra_bytes", "Memory of the ps that the open checkpoint takes.", {},
                        static_cast<double>(checkpoint.extra_bytes()));
    }
    if (progress.has_loss()) {
      metrics_.SetGauge("downpour_loss", "Mean training loss over the newest updates of the workers.", {},
                        progress.loss());
    }
    if (progress.evaluations_size() > 0) {
      const v1::Evaluation& newest = progress.evaluations(progress.evaluations_size() - 1);
      if (newest.has_accuracy()) {
        metrics_.SetGauge("downpour_test_accuracy", "Accuracy of the newest evaluation.", {}, newest.accuracy());
      }
      metrics_.SetGauge("downpour_test_loss", "Loss of the newest evaluation.", {}, newest.loss());
    }
  }

  // Not at the same time from two threads.
  void Track(const v1::ProgressReply& progress, const std::vector<std::uint64_t>& evaluated_at) {
    if (tracking_ == nullptr) return;
    tracking_->Add(service::MonotonicNow(), service::SecondsSince1970(), progress, evaluated_at);
    for (const std::unique_ptr<tracking::TrackerThread>& thread : tracking_->threads()) {
      metrics_.SetCounter("downpour_tracker_dropped_total",
                          "Points of figures that a tracker did not take, since this coordinator started.",
                          {{"tracker", thread->name()}}, static_cast<double>(thread->dropped()));
    }
  }

  // With what came after the last timer. A coordinator that was replaced leaves the end of the run to the other one.
  void EndTracking() {
    if (tracking_ == nullptr || server_ == nullptr) return;
    v1::ProgressReply progress;
    std::vector<std::uint64_t> evaluated_at;
    bool fenced = false;
    {
      absl::MutexLock lock(&mutex_);
      progress = core_->GetProgress(service::MonotonicNow());
      evaluated_at = EvaluatedAt(progress);
      fenced = core_->fenced().has_value();
    }
    Track(progress, evaluated_at);
    std::optional<tracking::Outcome> outcome;
    if (!fenced) {
      outcome = progress.phase() == v1::PHASE_DONE     ? tracking::Outcome::kSucceeded
                : progress.phase() == v1::PHASE_FAILED ? tracking::Outcome::kFailed
                                                       : tracking::Outcome::kStopped;
    }
    tracking_->End(outcome, service::SecondsSince1970());
  }

  absl::Mutex mutex_;
  const std::unique_ptr<core::JobCoordinator> core_ ABSL_PT_GUARDED_BY(mutex_);
  std::unique_ptr<StoreThread> store_;
  const std::unique_ptr<tracking::RunTracking> tracking_;  // null: there is none
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, std::string> logged_ ABSL_GUARDED_BY(mutex_);
  core::Time next_metrics_ ABSL_GUARDED_BY(mutex_) = absl::ZeroDuration();
  std::string job_uid_;
  std::string address_;
  std::string metrics_address_;
  service::Metrics metrics_;
  service::Stubs<v1::ParameterServer> stubs_;
  service::Calls calls_;
  std::unique_ptr<grpc::Server> server_;
  service::Timer timer_;
};

absl::StatusOr<std::unique_ptr<CoordinatorServer>> CoordinatorServer::Start(core::CoordinatorOptions options,
                                                                            const std::string& listen,
                                                                            const std::string& metrics_listen) {
  std::string uid = options.config.job_uid();
  std::unique_ptr<checkpoint::JobStore> store;
  if (options.config.has_checkpoint()) {
    absl::StatusOr<std::unique_ptr<checkpoint::JobStore>> opened = checkpoint::JobStore::Create(
        options.config, options.incarnation, checkpoint::OpenStore, service::SecondsSince1970);
    if (!opened.ok()) return opened.status();
    store = *std::move(opened);
  }
  absl::StatusOr<std::unique_ptr<tracking::RunTracking>> trackers =
      tracking::RunTracking::Start(options.config, options.incarnation, service::SecondsSince1970(),
                                   [](const std::string& message) { spdlog::warn("{}", message); });
  if (!trackers.ok()) return trackers.status();
  auto impl = std::make_unique<Impl>(std::move(options), std::move(store), *std::move(trackers));
  impl->set_job_uid(std::move(uid));
  const absl::Status served = impl->Serve(listen, metrics_listen);
  if (!served.ok()) return served;
  return std::unique_ptr<CoordinatorServer>(new CoordinatorServer(std::move(impl)));
}

CoordinatorServer::CoordinatorServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CoordinatorServer::~CoordinatorServer() = default;
const std::string& CoordinatorServer::address() const { return impl_->address(); }
const std::string& CoordinatorServer::metrics_address() const { return impl_->metrics_address(); }
absl::Status CoordinatorServer::Wait() { return impl_->Wait(); }
void CoordinatorServer::Stop() { impl_->Stop(); }

}  // namespace downpour::coordinator
