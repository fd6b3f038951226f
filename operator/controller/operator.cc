#include "operator/controller/operator.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "operator/controller/cordoned_nodes.h"
#include "operator/controller/operator_metrics.h"
#include "operator/controller/thread_pool.h"
#include "operator/kube/client_metrics.h"
#include "operator/kube/wait.h"
#include "operator/kube/wall_clock.h"
#include "spdlog/spdlog.h"

namespace downpour::controller {
namespace {

constexpr absl::Duration kPublishPeriod = absl::Seconds(5);
constexpr absl::Duration kLongestSilence = absl::Minutes(2);  // of whoever publishes
// The pods of a job start together, each in several steps: one look at all of them is enough.
constexpr absl::Duration kStartDelay = absl::Milliseconds(200);
constexpr absl::Duration kLeftoversRetry = absl::Minutes(1);

// The pass that this thread makes, carries out, or did last: a number of this process's.
thread_local std::uint64_t current_pass = 0;

// With which lines of the log about a job begin.
std::string About(const std::string& key, const std::string& uid) {
  return absl::StrCat("job=", key, " uid=", uid, " reconcile=", current_pass);
}

}  // namespace

class Operator::Impl {
 public:
  Impl(OperatorOptions options, const MakeTransport& make_transport, service::Metrics* metrics)
      : options_(std::move(options)),
        metrics_(metrics, options_.queue.at_once, options_.api_server),
        client_metrics_{
            [this](const std::string& method, int code, absl::Duration taken) {
              metrics_.OnRequest(method, code, taken);
            },
            [this](const std::string& method, absl::Duration waited) { metrics_.OnRateLimited(method, waited); },
            [this](const std::string& method, int code) { metrics_.OnRetry(method, code); }},
        queue_(options_.queue),
        watch_transport_(make_transport()),
        client_(make_transport(), options_.client, &client_metrics_),
        event_client_(make_transport(), options_.client, &client_metrics_),
        events_(&event_client_, "downpour-operator", options_.election.identity),
        jobs_(
            DecodeJob, [](const JobRecord& job) { return job.meta.namespace_name; },
            [this](const auto& before, const auto& after) {
              if (work_begun_) queue_.Add((after != nullptr ? after : before)->meta.Key());
            }),
        pods_(
            DecodePod, [](const Pod& pod) { return pod.meta.controller_uid; },
            [this](const auto& before, const auto& after) { OnPod(before, after); }),
        gateway_(MakeCoordinatorGateway({.clock = [this] { return Now(); }},
                                        [this](const std::string& key) { queue_.Add(key); })),
        reconciler_(
            options_.reconciler, &client_, &jobs_, &pods_, gateway_.get(),
            {[this](const kube::EventToRecord& event) {
               spdlog::info("{} event={} message=\"{}\"", About(event.about.Key(), event.about.uid), event.reason,
                            absl::Utf8SafeCEscape(event.message));
               events_.Record(event);
             },
             [this] { metrics_.OnStale(); },
             [this](const JobRecord& before, const api::TrainingJobStatus& after) {
               metrics_.OnStatus(before, after, pods_.Group(before.meta.uid), Now());
             },
             [this](std::string_view news) { metrics_.OnStatusWrite(news); }, [this] { return nodes_->Names(); }},
            [this] { return Now(); }) {
    kube::ReflectorOptions watch = options_.watch;
    watch.namespace_name = options_.namespace_name;
    std::random_device seed;
    nodes_ = std::make_unique<CordonedNodes>(
        watch, &client_, watch_transport_.get(), [this](const std::string& node) { OnNode(node); }, seed());
    watch.resource = kube::kTrainingJobs;
    job_reflector_ = std::make_unique<kube::Reflector>(watch, &client_, watch_transport_.get(), &jobs_, seed());
    watch.resource = kube::kPods;
    watch.label_selector = absl::StrCat(kManagedByLabel, "=", kManagedByValue);
    watch.fields = PodFields();
    pod_reflector_ = std::make_unique<kube::Reflector>(watch, &client_, watch_transport_.get(), &pods_, seed());
    if (options_.elect_leader) {
      kube::ClientOptions client = options_.client;
      client.timeout = options_.election.renew_deadline / 2;
      elector_ = std::make_unique<kube::LeaderElector>(
          options_.election, std::make_unique<kube::Client>(make_transport(), client, &client_metrics_),
          [this] {
            spdlog::info("this process leads");
            SetLeading();
          },
          [this](const std::string& reason) { Lose(reason); });
    }
  }

  ~Impl() {
    Stop();
    if (publisher_.joinable()) publisher_.join();
    Drain();
    if (starter_.joinable()) starter_.join();
    threads_.reset();
    job_reflector_.reset();
    pod_reflector_.reset();
    nodes_.reset();
    // Given back only now that nothing writes any more.
    elector_.reset();
    gateway_.reset();
  }

  void Start() {
    job_reflector_->Start();
    pod_reflector_->Start();
    nodes_->Start();
    publisher_ = std::thread([this] { Publish(); });
    starter_ = std::thread([this] { BeginWork(); });
    if (elector_ != nullptr) {
      elector_->Start();
    } else {
      SetLeading();
    }
  }

  absl::Status Wait() {
    absl::MutexLock lock(&mutex_);
    const auto over = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopped_ || !lost_.empty(); };
    mutex_.Await(absl::Condition(&over));
    return lost_.empty() ? absl::OkStatus() : absl::AbortedError(lost_);
  }

  void Stop() {
    {
      absl::MutexLock lock(&mutex_);
      stopped_ = true;
    }
    queue_.Shutdown();
  }

  std::string Stuck() const {
    const absl::Duration pass = queue_.counters().longest_running;
    if (pass > options_.longest_pass) return absl::StrCat("a pass lasts for ", absl::FormatDuration(pass), " already");
    const absl::Duration silence = kube::MonotonicNow() - absl::Nanoseconds(published_at_.load());
    if (silence > kLongestSilence) {
      return absl::StrCat("no metrics were made for ", absl::FormatDuration(silence));
    }
    return "";
  }

  std::string Unready() const {
    for (const auto& [name, reflector] :
         {std::pair{"trainingjobs", job_reflector_.get()}, std::pair{"pods", pod_reflector_.get()}}) {
      const kube::ReflectorState state = reflector->state();
      if (!state.synced) {
        return absl::StrCat("the cache of ", name, " is not filled yet", state.last_error.empty() ? "" : ": ",
                            state.last_error);
      }
      if (kube::MonotonicNow() - state.last_contact > options_.stale_watch) {
        return absl::StrCat("nothing was heard about ", name, " for ",
                            absl::FormatDuration(kube::MonotonicNow() - state.last_contact), ": ", state.last_error);
      }
    }
    return "";
  }

 private:
  // To the microsecond, as times are stored.
  double Now() { return std::floor(clock_.Now() * 1e6) / 1e6; }

  void OnPod(const kube::Store<Pod>::Pointer& before, const kube::Store<Pod>::Pointer& after) {
    const Pod& pod = *(after != nullptr ? after : before);
    if (pod.job_name.empty() || !work_begun_) return;
    const std::string key = absl::StrCat(pod.meta.namespace_name, "/", pod.job_name);
    if (jobs_.Get(key) == nullptr) return;  // nothing is left to do, or it is looked at when it comes
    // All others wait for a coordinator that they can find.
    const bool found =
        pod.role == api::Role::kCoordinator && !pod.address.empty() && (before == nullptr || before->address.empty());
    if (after == nullptr || found || HasEnded(pod) || pod.meta.deletion_time.has_value()) {
      queue_.Add(key);
    } else {
      queue_.AddAfter(key, kStartDelay);
    }
  }

  // It is drained, or is not any more: that is news to whoever has a ps there.
  void OnNode(const std::string& node) {
    if (!work_begun_) return;
    for (const auto& pod : pods_.All()) {
      if (pod->role != api::Role::kParameterServer || pod->node != node || pod->job_name.empty()) continue;
      queue_.Add(absl::StrCat(pod->meta.namespace_name, "/", pod->job_name));
    }
  }

  void SetLeading() {
    metrics_.SetLeading(true);
    absl::MutexLock lock(&mutex_);
    leading_ = true;
  }

  void Lose(const std::string& reason) {
    metrics_.SetLeading(false);
    client_.Stop();  // also where it is stopped already and only lets its passes end
    absl::MutexLock lock(&mutex_);
    lost_ = absl::StrCat("leadership is lost: ", reason);
  }

  // Once this process leads and its caches are whole.
  void BeginWork() {
    {
      absl::MutexLock lock(&mutex_);
      const auto leads = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return leading_ || stopped_; };
      mutex_.Await(absl::Condition(&leads));
    }
    while (!Stopped()) {
      if (job_reflector_->WaitForSync(absl::Seconds(1)) && pod_reflector_->WaitForSync(absl::Seconds(1))) break;
    }
    if (Stopped()) return;
    // Until then nothing is put into a queue that nobody empties. What changes from now on goes before all there is.
    work_begun_ = true;
    for (const auto& job : jobs_.All()) queue_.Add(job->meta.Key(), /*low_priority=*/true);
    threads_->Run([this] { LookForLeftovers(); });
    spdlog::info("works on {} jobs and {} pods, {} jobs at a time", jobs_.size(), pods_.size(), options_.queue.at_once);
    MakePasses();
  }

  // The last job of a namespace may have gone while nobody led.
  absl::Status QueueNamespaces() {
    kube::ListOptions options;
    options.field_selector = absl::StrCat("metadata.name=", kServiceName);
    options.limit = options_.watch.page_size;
    options.metadata_only = true;
    do {
      const absl::StatusOr<kube::ListPage> page = client_.List(kube::kServices, options_.namespace_name, options);
      if (!page.ok()) return page.status();
      for (const kube::Json& service : page->items) {
        queue_.Add(absl::StrCat(kube::ReadMeta(service).namespace_name, "/"), /*low_priority=*/true);
      }
      options.continue_token = page->continue_token;
    } while (!options.continue_token.empty());
    return absl::OkStatus();
  }

  void LookForLeftovers() {
    while (!Stopped()) {
      const absl::Status done = QueueNamespaces();
      if (done.ok()) return;
      spdlog::warn("services of namespaces without jobs may be left over: {}", std::string(done.message()));
      absl::MutexLock lock(&mutex_);
      mutex_.AwaitWithTimeout(absl::Condition(&stopped_), kLeftoversRetry);
    }
  }

  bool Stopped() const {
    absl::MutexLock lock(&mutex_);
    return stopped_;
  }

  // Once nothing new begins: lets passes end and events be written.
  void Drain() {
    const absl::Duration deadline = kube::MonotonicNow() + options_.longest_drain;
    if (!queue_.AwaitIdle(options_.longest_drain)) spdlog::warn("ends in the middle of what it does");
    client_.Stop();
    events_.Flush(std::max(deadline - kube::MonotonicNow(), absl::ZeroDuration()));
    event_client_.Stop();
  }

  // One pass after the other. What they decide waits for the API server, and is carried out side by side.
  void MakePasses() {
    std::uint64_t passes = 0;
    while (const std::optional<WorkQueue::Item> item = queue_.Get()) {
      const std::string& key = item->key;
      const std::uint64_t number = current_pass = ++passes;
      const absl::Duration begun = kube::MonotonicNow();
      Decision decision;
      if (absl::Status defect = Guard([&] { decision = reconciler_.Decide(key); }); !defect.ok()) {
        decision = {{std::move(defect), std::nullopt}};
      }
      metrics_.OnPass(item->waited, kube::MonotonicNow() - begun);
      if (!decision.carry_out) {
        OnReconciled(key, begun, decision.result);
        continue;
      }
      threads_->Run([this, key, number, begun, carry_out = std::move(decision.carry_out)] {
        current_pass = number;
        ReconcileResult result;
        if (absl::Status defect = Guard([&] { result = carry_out(); }); !defect.ok()) {
          result = {std::move(defect), std::nullopt};
        }
        OnReconciled(key, begun, result);
      });
    }
  }

  // A defect of ours must not end the work on all other jobs.
  absl::Status Guard(const std::function<void()>& step) {
    try {
      step();
      return absl::OkStatus();
    } catch (const std::exception& error) {
      metrics_.OnPanic();
      return absl::InternalError(error.what());
    }
  }

  // Once what a pass decided is done.
  void OnReconciled(const std::string& key, absl::Duration begun, const ReconcileResult& result) {
    const bool conflict = absl::IsAborted(result.status);
    if (!result.status.ok() && !conflict) {
      const kube::Store<JobRecord>::Pointer job = jobs_.Get(key);
      spdlog::warn("{} error=\"{}\"", About(key, job == nullptr ? "" : job->meta.uid),
                   absl::Utf8SafeCEscape(result.status.message()));
    }
    metrics_.OnReconciled(!result.status.ok() && !conflict, result.requeue_after.has_value(),
                          kube::MonotonicNow() - begun);
    if (!result.status.ok()) {
      queue_.Retry(key);
    } else {
      queue_.Forget(key);
    }
    // Also after an error, whose back-off may last longer.
    if (result.requeue_after.has_value()) queue_.AddAfter(key, *result.requeue_after);
    queue_.Done(key);
  }

  void Publish() {
    for (;;) {
      {
        absl::MutexLock lock(&mutex_);
        if (mutex_.AwaitWithTimeout(absl::Condition(&stopped_), kPublishPeriod)) return;
      }
      metrics_.Publish(queue_.counters(), jobs_, pods_, Now());
      metrics_.PublishWatch("trainingjobs", job_reflector_->state());
      metrics_.PublishWatch("pods", pod_reflector_->state());
      metrics_.PublishWatch("nodes", nodes_->state());
      published_at_ = absl::ToInt64Nanoseconds(kube::MonotonicNow());
    }
  }

  const OperatorOptions options_;
  kube::WallClock clock_;
  OperatorMetrics metrics_;
  kube::ClientMetrics client_metrics_;
  mutable absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool leading_ ABSL_GUARDED_BY(mutex_) = false;
  std::string lost_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> work_begun_ = false;
  std::atomic<std::int64_t> published_at_ = absl::ToInt64Nanoseconds(kube::MonotonicNow());

  WorkQueue queue_;
  std::shared_ptr<kube::Transport> watch_transport_;
  kube::Client client_, event_client_;
  kube::EventRecorder events_;
  kube::Store<JobRecord> jobs_;
  kube::Store<Pod> pods_;
  std::unique_ptr<CoordinatorGateway> gateway_;
  Reconciler reconciler_;
  std::unique_ptr<kube::Reflector> job_reflector_, pod_reflector_;
  std::unique_ptr<CordonedNodes> nodes_;
  std::unique_ptr<kube::LeaderElector> elector_;
  std::unique_ptr<ThreadPool> threads_ = std::make_unique<ThreadPool>();
  std::thread publisher_, starter_;
};

Operator::Operator(OperatorOptions options, const MakeTransport& make_transport, service::Metrics* metrics)
    : impl_(std::make_unique<Impl>(std::move(options), make_transport, metrics)) {}
Operator::~Operator() = default;
void Operator::Start() { impl_->Start(); }
absl::Status Operator::Wait() { return impl_->Wait(); }
void Operator::Stop() { impl_->Stop(); }
std::string Operator::Unready() const { return impl_->Unready(); }
std::string Operator::Stuck() const { return impl_->Stuck(); }

}  // namespace downpour::controller
