#include "trainer/ps/server.h"

#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "downpour/v1/control.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/health_check_service_interface.h"
#include "proto/deadline.h"
#include "proto/host_port.h"
#include "spdlog/spdlog.h"
#include "trainer/checkpoint/store.h"
#include "trainer/ps/checkpoint_thread.h"
#include "trainer/service/calls.h"
#include "trainer/service/data_bytes.h"
#include "trainer/service/metrics.h"
#include "trainer/service/process.h"
#include "trainer/service/stubs.h"
#include "trainer/service/timer.h"
#include "trainer/wire/grpc_transport.h"
#include "trainer/wire/shared_memory_transport.h"

namespace downpour::ps {
namespace {

constexpr absl::Duration kRegistrationTick = absl::Milliseconds(20);
constexpr absl::Duration kRegistrationDeadline = absl::Seconds(1);
constexpr absl::Duration kMetricsPeriod = absl::Seconds(1);

}  // namespace

class PsServer::Impl final : public v1::ParameterServer::CallbackService {
 public:
  explicit Impl(PsServerOptions options)
      : options_(std::move(options)),
        data_([this](wire::Frames frames, std::function<void(wire::Frames)> reply) {
          OnData(std::move(frames), std::move(reply));
        }),
        replication_timer_([this] { Replicate(); }) {}

  ~Impl() override {
    Stop();
    data_.Shutdown();  // first: what comes from now on nobody would answer
    if (local_data_ != nullptr) local_data_->Shutdown();
    replication_timer_.Stop();
    peers_.reset();
    checkpoints_.reset();
    if (registration_.joinable()) registration_.join();
    if (server_ != nullptr) server_->Shutdown(DeadlineIn(absl::Seconds(1)));
  }

  absl::Status Serve() {
    std::unique_ptr<checkpoint::Store> store;
    if (!options_.store.empty()) {
      absl::StatusOr<std::unique_ptr<checkpoint::Store>> opened = checkpoint::OpenStore(options_.store);
      if (!opened.ok()) return opened.status();
      store = *std::move(opened);
    }
    // The core is made before anybody can call; its address is known only once the server listens.
    core::PsOptions core_options;
    core_options.job_uid = options_.job_uid;
    core_options.index = options_.index;
    core_options.process_incarnation = options_.process_incarnation;
    core_options.node = options_.node;
    core_options.session = session_ = service::RandomSession();
    core_options.has_store = store != nullptr;
    core_options.extra_bytes_limit = options_.extra_bytes_limit;
    absl::MutexLock lock(&mutex_);
    absl::StatusOr<wire::StartedServer> started = wire::StartServer(options_.listen, {this, &data_});
    if (!started.ok()) return started.status();
    server_ = std::move(started->server);
    address_ = std::move(started->address);
    core_options.address = !options_.advertise.empty()        ? options_.advertise
                           : !options_.advertise_host.empty() ? JoinHostPort(options_.advertise_host, started->port)
                                                              : address_;
    const std::string reached_at = core_options.address;
    absl::StatusOr<std::unique_ptr<core::PsCore>> core = core::PsCore::Create(std::move(core_options));
    if (!core.ok()) return core.status();
    core_ = *std::move(core);
    ServeLocally(reached_at);
    checkpoints_ =
        std::make_unique<CheckpointThread>(&mutex_, core_.get(), std::move(store), options_.job_uid, options_.index);
    if (!options_.metrics_listen.empty()) {
      absl::StatusOr<std::string> served = metrics_.Serve(options_.metrics_listen);
      if (!served.ok()) return served.status();
      metrics_address_ = *served;
    }
    if (!options_.coordinator.empty()) registration_ = std::thread([this] { Register(); });
    return absl::OkStatus();
  }

  v1::DirectReply DirectCore(const v1::DirectRequest& request) {
    v1::DirectReply reply;
    Output output;
    {
      absl::MutexLock lock(&mutex_);
      if (core_ == nullptr) return reply;
      reply = core_->OnDirect(request, service::MonotonicNow());
      reply.mutable_stats()->set_busy_seconds(absl::ToDoubleSeconds(apply_time_));
      output = Collect(core_->TakeOwedReplies());
      if (request.has_view() && reply.status() == v1::SYNC_OK) {
        spdlog::info("view: generation {}, incarnation {}, epoch {}: {} slices, {} bytes", reply.stamp().generation(),
                     reply.stamp().incarnation(), reply.stamp().epoch(), reply.stats().slices(),
                     reply.stats().parameter_bytes());
      } else if (reply.status() != v1::SYNC_OK) {
        spdlog::warn("refused a directive: {}", reply.message());
      }
    }
    Deliver(std::move(output));
    return reply;
  }

  grpc::ServerUnaryReactor* Direct(grpc::CallbackServerContext* context, const v1::DirectRequest* request,
                                   v1::DirectReply* reply) override {
    *reply = DirectCore(*request);
    return Done(context);
  }
  grpc::ServerUnaryReactor* ReadLedger(grpc::CallbackServerContext* context, const v1::LedgerRequest* request,
                                       v1::LedgerReply* reply) override {
    if (request->job_uid() == options_.job_uid) {
      absl::MutexLock lock(&mutex_);
      if (core_ != nullptr) *reply = core_->ReadLedger();
    }
    return Done(context);
  }
  grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context, const v1::FinishRequest* request,
                                   v1::FinishReply* reply) override {
    const bool mine = request->job_uid() == options_.job_uid;
    reply->set_accepted(mine);
    if (!mine) reply->set_message("another job");
    if (mine) Stop();
    return Done(context);
  }

  absl::Status Wait() {
    absl::MutexLock lock(&mutex_);
    const auto over = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopped_ || !failure_.ok(); };
    const auto told = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return draining_ || over(); };
    mutex_.Await(absl::Condition(&told));
    const auto drained = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return (held_.empty() && answering_ == 0) || over();
    };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&drained), options_.longest_drain)) {
      spdlog::warn("ends while the pushes of {} calls wait for the verdict on their update", held_.size());
    }
    return failure_;
  }

  void Drain() {
    if (grpc::HealthCheckServiceInterface* const health = server_->GetHealthCheckService(); health != nullptr) {
      health->SetServingStatus(false);
    }
    absl::MutexLock lock(&mutex_);
    draining_ = true;
  }

  void Stop() {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
  }

  std::size_t held_calls() const {
    absl::MutexLock lock(&mutex_);
    return held_.size();
  }

  const std::string& address() const { return address_; }
  const std::string& metrics_address() const { return metrics_address_; }
  std::uint64_t session() const { return session_; }

 private:
  // Workers of this machine that find no server there use the network.
  void ServeLocally(const std::string& reached_at) {
    if (options_.local_data.empty()) return;
    wire::SharedMemoryServerOptions local;
    local.directory = options_.local_data;
    local.job_uid = options_.job_uid;
    local.address = reached_at;
    absl::StatusOr<std::unique_ptr<wire::SharedMemoryServer>> started = wire::SharedMemoryServer::Start(
        std::move(local), [this](wire::Frames frames, std::function<void(wire::Frames)> reply) {
          OnData(std::move(frames), std::move(reply));
        });
    if (started.ok()) {
      local_data_ = *std::move(started);
    } else {
      spdlog::warn("no shared memory: {}", std::string(started.status().message()));
    }
  }

  struct Due {
    std::function<void(wire::Frames)> reply;
    wire::Frames frames;
  };
  // What is to be done outside of the lock.
  struct Output {
    std::vector<Due> due;
    std::vector<core::ReplicationCall> calls;
  };

  static grpc::ServerUnaryReactor* Done(grpc::CallbackServerContext* context) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  void OnData(wire::Frames frames, std::function<void(wire::Frames)> reply) {
    Output output;
    {
      absl::MutexLock lock(&mutex_);
      if (core_ == nullptr) return;
      const core::PsCore::CallId call = next_call_++;
      held_.emplace(call, std::move(reply));
      std::vector<core::PsCore::DataReply> replies;
      const core::Time begun = service::MonotonicNow();
      core_->OnData(call, std::move(frames), &replies);
      apply_time_ += service::MonotonicNow() - begun;
      output = Collect(std::move(replies));
    }
    Deliver(std::move(output));
  }

  void Replicate() {
    Output output;
    {
      absl::MutexLock lock(&mutex_);
      if (core_ == nullptr) return;
      output = Collect({});
    }
    Deliver(std::move(output));
  }

  void OnReplicationReply(std::uint64_t call, const absl::StatusOr<wire::Frames>& reply) {
    Output output;
    {
      absl::MutexLock lock(&mutex_);
      std::vector<core::PsCore::DataReply> replies;
      core_->OnReplicationReply(call, reply, service::MonotonicNow(), &replies);
      output = Collect(std::move(replies));
    }
    Deliver(std::move(output));
  }

  // After each call of the core: these replies, and what it has for other ps.
  Output Collect(std::vector<core::PsCore::DataReply> replies) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Output output;
    for (core::PsCore::DataReply& reply : replies) {
      const auto held = held_.find(reply.call);
      output.due.push_back({std::move(held->second), std::move(reply.frames)});
      held_.erase(held);
    }
    output.calls = core_->TakeReplicationCalls(service::MonotonicNow());
    replication_timer_.Set(core_->replication_timer());
    ++answering_;
    return output;
  }

  void Deliver(Output output) {
    // First what the standbys need: others wait for it.
    for (core::ReplicationCall& call : output.calls) {
      peers_->Exchange(
          call.address, std::move(call.frames), call.deadline,
          [this, id = call.call](const absl::StatusOr<wire::Frames>& reply) { OnReplicationReply(id, reply); });
    }
    for (Due& one : output.due) one.reply(std::move(one.frames));
    absl::MutexLock lock(&mutex_);
    --answering_;
  }

  void Register() {
    service::Stubs<v1::Coordinator> stubs;
    core::Time next_metrics = absl::ZeroDuration();
    for (;;) {
      v1::RegisterPsRequest request;
      bool wanted = false;
      {
        absl::MutexLock lock(&mutex_);
        if (mutex_.AwaitWithTimeout(absl::Condition(&stopped_), kRegistrationTick)) return;
        wanted = core_->ShouldRegister(service::MonotonicNow());
        if (wanted) request = core_->MakeRegistration();
      }
      if (service::MonotonicNow() >= next_metrics) {
        next_metrics = service::MonotonicNow() + kMetricsPeriod;
        Publish();
      }
      if (!wanted) continue;
      const absl::StatusOr<std::string> address = service::ResolveAddress(options_.coordinator);
      if (!address.ok()) continue;
      grpc::ClientContext context;
      context.set_deadline(DeadlineIn(kRegistrationDeadline));
      v1::RegisterPsReply reply;
      if (!stubs.For(*address)->RegisterPs(&context, request, &reply).ok()) continue;
      if (reply.status() == v1::SYNC_WRONG_JOB) stubs.Renew(*address);
      absl::MutexLock lock(&mutex_);
      failure_ = core_->OnRegisterReply(reply, service::MonotonicNow());
      if (!failure_.ok()) return;
    }
  }

  void Publish() {
    v1::PsStats stats;
    absl::Duration apply_time;
    std::size_t pending = 0;
    std::uint32_t epoch = 0;
    {
      absl::MutexLock lock(&mutex_);
      stats = core_->stats();
      apply_time = apply_time_;
      pending = core_->pending_bytes();
      epoch = core_->view().stamp().epoch();
    }
    wire::TransportCounters counters = data_.counters();
    if (local_data_ != nullptr) counters += local_data_->counters();
    const char* pushes = "Slice updates by what became of them.";
    metrics_.SetCounter("downpour_ps_pushes_total", pushes, {{"result", "applied"}},
                        static_cast<double>(stats.applied()));
    metrics_.SetCounter("downpour_ps_pushes_total", pushes, {{"result", "duplicate"}},
                        static_cast<double>(stats.duplicates()));
    metrics_.SetCounter("downpour_ps_pushes_total", pushes, {{"result", "refused"}},
                        static_cast<double>(stats.refused()));
    metrics_.SetCounter("downpour_ps_apply_seconds_total", "Time spent in carrying out data-plane requests.", {},
                        absl::ToDoubleSeconds(apply_time));
    metrics_.SetGauge("downpour_ps_staleness", "Mean staleness of the newest slice updates, in updates.", {},
                      stats.staleness());
    metrics_.SetGauge("downpour_ps_parameter_bytes", "Parameters held.", {},
                      static_cast<double>(stats.parameter_bytes()));
    const char* slices = "Slices held, by what this ps is to them.";
    metrics_.SetGauge("downpour_ps_slices", slices, {{"role", "primary"}}, static_cast<double>(stats.slices()));
    metrics_.SetGauge("downpour_ps_slices", slices, {{"role", "standby"}}, static_cast<double>(stats.standby_slices()));
    metrics_.SetGauge("downpour_ps_log_bytes", "Updates that another replica does not hold yet.", {},
                      static_cast<double>(stats.log_bytes()));
    const char* replicated = "Bytes that went to other replicas: whole slices, and updates as they were pushed.";
    metrics_.SetCounter("downpour_ps_replicated_bytes_total", replicated, {{"kind", "copy"}},
                        static_cast<double>(stats.copied_bytes()));
    metrics_.SetCounter("downpour_ps_replicated_bytes_total", replicated, {{"kind", "log"}},
                        static_cast<double>(stats.logged_bytes()));
    metrics_.SetGauge("downpour_ps_pending_bytes", "Pushes that wait for the verdict on their update.", {},
                      static_cast<double>(pending));
    metrics_.SetGauge("downpour_layout_epoch", "Raised by every change of the view.", {}, epoch);
    service::PublishDataBytes(counters, &metrics_);
  }

  PsServerOptions options_;
  std::uint64_t session_ = 0;
  std::string address_;
  std::string metrics_address_;
  mutable absl::Mutex mutex_;
  std::unique_ptr<core::PsCore> core_ ABSL_GUARDED_BY(mutex_);
  std::map<core::PsCore::CallId, std::function<void(wire::Frames)>> held_ ABSL_GUARDED_BY(mutex_);
  int answering_ ABSL_GUARDED_BY(mutex_) = 0;  // calls whose replies are on their way out
  core::PsCore::CallId next_call_ ABSL_GUARDED_BY(mutex_) = 1;
  absl::Duration apply_time_ ABSL_GUARDED_BY(mutex_);
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  service::Metrics metrics_;
  wire::GrpcDataService data_;
  std::unique_ptr<wire::SharedMemoryServer> local_data_;  // set before any thread of ours, null: none
  std::unique_ptr<wire::DataClient> peers_ = wire::MakeGrpcDataClient();
  service::Timer replication_timer_;
  std::unique_ptr<CheckpointThread> checkpoints_;
  std::unique_ptr<grpc::Server> server_;
  std::thread registration_;
};

absl::StatusOr<std::unique_ptr<PsServer>> PsServer::Start(PsServerOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  const absl::Status served = impl->Serve();
  if (!served.ok()) return served;
  return std::unique_ptr<PsServer>(new PsServer(std::move(impl)));
}

PsServer::PsServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PsServer::~PsServer() = default;
const std::string& PsServer::address() const { return impl_->address(); }
const std::string& PsServer::metrics_address() const { return impl_->metrics_address(); }
std::uint64_t PsServer::session() const { return impl_->session(); }
v1::DirectReply PsServer::Direct(const v1::DirectRequest& request) { return impl_->DirectCore(request); }
absl::Status PsServer::Wait() { return impl_->Wait(); }
void PsServer::Stop() { impl_->Stop(); }
void PsServer::Drain() { impl_->Drain(); }
std::size_t PsServer::held_calls() const { return impl_->held_calls(); }

}  // namespace downpour::ps
