// What the benchmark of the operator does with the cluster, as a fast plain client: it makes jobs, or the very pods
// that the operator would make for them, and waits until all of them run; it plays the kubelet where a pod has to end.
// One step a call; prints one JSON object. e2e/bench_operator.py puts the steps together.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "operator/api/manifest.h"
#include "operator/controller/job_record.h"
#include "operator/controller/objects.h"
#include "operator/controller/pod.h"
#include "operator/kube/client.h"
#include "operator/kube/credentials.h"
#include "operator/kube/http_transport.h"
#include "operator/kube/informer.h"
#include "operator/planner/conditions.h"

namespace downpour {
namespace {

using controller::Pod;
using kube::Json;
using PodStore = kube::Store<Pod>;

const kube::Resource kConfigMaps{"", "v1", "configmaps", "ConfigMap"};

struct Flags {
  std::string kubeconfig;
  std::string namespace_name = "bench";  // the first part of their names
  int namespaces = 25;
  int jobs = 1000;
  int parameter_servers = 2;
  int workers = 8;
  int threads = 16;
  int first = 0;
  int count = 200;
  double limit_seconds = 900;
  controller::PodOptions pods{"downpour.dev/server:bench", "downpour.dev/trainer:bench", "IfNotPresent"};
};

std::string NamespaceOf(const Flags& flags, int job) {
  return absl::StrCat(flags.namespace_name, "-", job % flags.namespaces);
}

Json MakeManifest(const Flags& flags, int job) {
  return {{"apiVersion", api::kApiVersion},
          {"kind", api::kKind},
          {"metadata", {{"name", absl::StrFormat("job-%04d", job)}, {"namespace", NamespaceOf(flags, job)}}},
          {"spec",
           {{"parameterServer", {{"replicas", flags.parameter_servers}}},
            {"worker", {{"replicas", flags.workers}}},
            {"model", {{"name", "LeNet"}}},
            {"dataset", {{"format", "IDX"}, {"path", "/usr/share/datasets/fashion-mnist"}}},
            {"training", {{"epochs", 10}, {"batchSize", 64}}}}}};
}

// Calls task(0) ... task(count - 1) from `threads` threads; returns the first error.
absl::Status InParallel(int threads, int count, const std::function<absl::Status(int)>& task) {
  std::atomic<int> next = 0;
  absl::Mutex mutex;
  absl::Status result;
  {
    std::vector<std::jthread> running;
    for (int i = 0; i < threads; ++i) {
      running.emplace_back([&] {
        for (int job = next++; job < count; job = next++) {
          absl::Status status = task(job);
          absl::MutexLock lock(&mutex);
          if (!status.ok() && result.ok()) result = std::move(status);
          if (!result.ok()) return;
        }
      });
    }
  }
  return result;
}

// The cluster as this process sees it: the pods of jobs, by a watch of its own.
class World {
 public:
  explicit World(std::shared_ptr<kube::CredentialSource> credentials)
      : client_(kube::MakeHttpTransport(credentials), Unlimited()),
        watch_transport_(kube::MakeHttpTransport(credentials)),
        pods_(
            controller::DecodePod, [](const Pod& pod) { return pod.meta.controller_uid; },
            [this](const auto& before, const auto& after) { OnChange(before, after); }) {
    kube::ReflectorOptions watch;
    watch.resource = kube::kPods;
    watch.label_selector = absl::StrCat(controller::kManagedByLabel, "=", controller::kManagedByValue);
    watch.fields = controller::PodFields();
    reflector_ = std::make_unique<kube::Reflector>(watch, &client_, watch_transport_.get(), &pods_, 1);
    reflector_->Start();
  }

  kube::Client& client() { return client_; }
  const PodStore& pods() const { return pods_; }
  bool WaitForSync() const { return reflector_->WaitForSync(absl::Seconds(60)); }

  bool WaitForRunning(int count, absl::Duration limit) {
    absl::MutexLock lock(&mutex_);
    const auto enough = [this, count]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return running_ >= count; };
    return mutex_.AwaitWithTimeout(absl::Condition(&enough), limit);
  }
  int running() const {
    absl::MutexLock lock(&mutex_);
    return running_;
  }
  // From now on: when a pod with this key, but another uid than this one, is first seen, and whether it runs.
  void Expect(const std::string& key, const std::string& uid) {
    absl::MutexLock lock(&mutex_);
    expected_[key] = {uid, absl::InfiniteFuture(), false};
  }
  // When it was first seen; returns once it runs, so that what else there is to do for it does not meet the next one.
  absl::Time WaitForSuccessor(const std::string& key, absl::Duration limit) {
    absl::MutexLock lock(&mutex_);
    const auto runs = [this, &key]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return expected_.at(key).runs; };
    mutex_.AwaitWithTimeout(absl::Condition(&runs), limit);
    return expected_.at(key).seen;
  }

 private:
  struct Successor {
    std::string before;  // uid
    absl::Time seen;
    bool runs = false;
  };

  static kube::ClientOptions Unlimited() {
    kube::ClientOptions options;
    options.requests_per_second = 1e5;
    options.burst = 1e5;
    return options;
  }

  void OnChange(const PodStore::Pointer& before, const PodStore::Pointer& after) {
    const auto runs = [](const PodStore::Pointer& pod) { return pod != nullptr && pod->phase == "Running"; };
    absl::MutexLock lock(&mutex_);
    running_ += (runs(after) ? 1 : 0) - (runs(before) ? 1 : 0);
    if (after == nullptr) return;
    const auto found = expected_.find(after->meta.Key());
    if (found == expected_.end() || found->second.before == after->meta.uid) return;
    found->second.seen = std::min(found->second.seen, absl::Now());
    found->second.runs = runs(after);
  }

  kube::Client client_;
  std::shared_ptr<kube::Transport> watch_transport_;
  mutable absl::Mutex mutex_;
  int running_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unordered_map<std::string, Successor> expected_ ABSL_GUARDED_BY(mutex_);
  PodStore pods_;
  std::unique_ptr<kube::Reflector> reflector_;
};

int PodsOf(const Flags& flags) { return flags.jobs * (1 + flags.parameter_servers + flags.workers); }

absl::StatusOr<Json> WaitForAll(const Flags& flags, World& world, absl::Time begun, absl::Time made) {
  if (!world.WaitForRunning(PodsOf(flags), absl::Seconds(flags.limit_seconds))) {
    return absl::DeadlineExceededError(
        absl::StrCat(world.running(), " of ", PodsOf(flags), " pods run after ", flags.limit_seconds, " s"));
  }
  return Json{{"pods", PodsOf(flags)},
              {"requestedSeconds", absl::ToDoubleSeconds(made - begun)},
              {"seconds", absl::ToDoubleSeconds(absl::Now() - begun)}};
}

// What owns the pods of each job in place of the job: a platform with owners that are missing would remove them. In the
// form of a reference.
absl::StatusOr<std::vector<Json>> CreateOwners(const Flags& flags, World& world) {
  std::vector<Json> owners(static_cast<std::size_t>(flags.jobs));
  absl::Status status = InParallel(flags.threads, flags.jobs, [&](int job) -> absl::Status {
    const Json map = {{"apiVersion", kConfigMaps.ApiVersion()},
                      {"kind", kConfigMaps.kind},
                      {"metadata", MakeManifest(flags, job).at("metadata")}};
    const absl::StatusOr<Json> made = world.client().Create(kConfigMaps, NamespaceOf(flags, job), map);
    if (!made.ok()) return made.status();
    const kube::ObjectMeta meta = kube::ReadMeta(*made);
    owners[static_cast<std::size_t>(job)] = {
        {"apiVersion", kConfigMaps.ApiVersion()}, {"kind", kConfigMaps.kind}, {"name", meta.name}, {"uid", meta.uid}};
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return owners;
}

// The jobs as the operator would know them.
absl::StatusOr<std::vector<api::TrainingJob>> ParseJobs(const Flags& flags) {
  std::vector<api::TrainingJob> jobs;
  for (int job = 0; job < flags.jobs; ++job) {
    api::ParsedManifest parsed = api::ParseManifest(MakeManifest(flags, job).dump());
    if (!parsed.errors.empty()) return absl::InternalError(parsed.errors.front().ToString());
    parsed.job.metadata.namespace_name = NamespaceOf(flags, job);
    parsed.job.metadata.uid = absl::StrFormat("00000000-0000-4000-8000-%012d", job);
    jobs.push_back(std::move(parsed.job));
  }
  return jobs;
}

// The same pods as the operator makes. What it learns of their jobs is there before the time starts.
absl::StatusOr<Json> CreatePods(const Flags& flags, World& world) {
  const absl::StatusOr<std::vector<Json>> owners = CreateOwners(flags, world);
  if (!owners.ok()) return owners.status();
  const absl::StatusOr<std::vector<api::TrainingJob>> jobs = ParseJobs(flags);
  if (!jobs.ok()) return jobs.status();
  std::vector<std::pair<api::Role, int>> members = {{api::Role::kCoordinator, 0}};
  for (int i = 0; i < flags.parameter_servers; ++i) members.emplace_back(api::Role::kParameterServer, i);
  for (int i = 0; i < flags.workers; ++i) members.emplace_back(api::Role::kWorker, i);
  const absl::Time begun = absl::Now();
  const std::size_t each = members.size();
  absl::Status status = InParallel(flags.threads, PodsOf(flags), [&](int number) -> absl::Status {
    const std::size_t index = static_cast<std::size_t>(number);
    const api::TrainingJob& job = (*jobs)[index / each];
    const auto [role, member] = members[index % each];
    absl::StatusOr<Json> pod = controller::PodsOfRole(job, flags.pods, role).Make(member, 1);
    if (!pod.ok()) return pod.status();
    (*pod)["metadata"]["ownerReferences"][0].update((*owners)[index / each]);
    // As the operator asks for it.
    return world.client()
        .Create(kube::kPods, job.metadata.namespace_name, *pod,
                {/*dry_run=*/false, /*metadata_only=*/true, /*unchecked=*/true})
        .status();
  });
  if (!status.ok()) return status;
  return WaitForAll(flags, world, begun, absl::Now());
}

absl::StatusOr<Json> CreateJobs(const Flags& flags, World& world) {
  const absl::Time begun = absl::Now();
  absl::Status status = InParallel(flags.threads, flags.jobs, [&](int job) {
    return world.client().Create(kube::kTrainingJobs, NamespaceOf(flags, job), MakeManifest(flags, job)).status();
  });
  if (!status.ok()) return status;
  return WaitForAll(flags, world, begun, absl::Now());
}

// As the kubelet reports a container that ended. What it was before stands in no condition any more.
absl::Status End(World& world, const Pod& pod, int exit_code) {
  const std::string now = kube::FormatTime(absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()));
  const Json terminated = {
      {"exitCode", exit_code}, {"reason", exit_code == 0 ? "Completed" : "Error"}, {"finishedAt", now}};
  const Json status = {{"phase", exit_code == 0 ? "Succeeded" : "Failed"},
                       {"containerStatuses", Json::array({{{"name", controller::kContainerName},
                                                           {"image", ""},
                                                           {"imageID", ""},
                                                           {"ready", false},
                                                           {"restartCount", 0},
                                                           {"state", {{"terminated", terminated}}}}})}};
  return world.client()
      .MergePatch(kube::kPods, pod.meta.namespace_name, pod.meta.name, {{"status", status}}, "status")
      .status();
}

// Workers fail one after the other, each of another job; how long until the replacement's pod is there.
absl::StatusOr<Json> React(const Flags& flags, World& world) {
  Json seconds = Json::array();
  for (int i = flags.first; i < flags.first + flags.count; ++i) {
    const std::string key =
        absl::StrFormat("%s/job-%04d-worker-%d", NamespaceOf(flags, i % flags.jobs), i % flags.jobs, i / flags.jobs);
    const PodStore::Pointer pod = world.pods().Get(key);
    if (pod == nullptr) return absl::NotFoundError(absl::StrCat("no pod ", key));
    world.Expect(key, pod->meta.uid);
    const absl::Time ended = absl::Now();
    if (absl::Status status = End(world, *pod, 1); !status.ok()) return status;
    const absl::Time seen = world.WaitForSuccessor(key, absl::Seconds(30));
    if (seen == absl::InfiniteFuture()) return absl::DeadlineExceededError(absl::StrCat("no successor of ", key));
    seconds.push_back(absl::ToDoubleSeconds(seen - ended));
  }
  return Json{{"seconds", seconds}};
}

// The processes of a job exit 0 once its outcome is stored, as those whose coordinator is done do.
absl::StatusOr<Json> Finish(const Flags& flags, World& world, std::shared_ptr<kube::CredentialSource> credentials) {
  absl::Mutex mutex;
  std::unordered_set<std::string> seen;
  std::vector<std::string> succeeded;  // uids of jobs, in the order in which they were seen
  kube::Store<controller::JobRecord> jobs(
      controller::DecodeJob, [](const controller::JobRecord&) { return std::string(); },
      [&](const auto&, const auto& after) {
        if (after == nullptr || !planner::IsTrue(after->job.status, planner::kSuccessCriteriaMet)) return;
        absl::MutexLock lock(&mutex);
        if (seen.insert(after->meta.uid).second) succeeded.push_back(after->meta.uid);
      });
  const std::unique_ptr<kube::Transport> transport = kube::MakeHttpTransport(std::move(credentials));
  kube::ReflectorOptions watch;
  watch.resource = kube::kTrainingJobs;
  kube::Reflector reflector(watch, &world.client(), transport.get(), &jobs, 1);
  reflector.Start();

  const absl::Time deadline = absl::Now() + absl::Seconds(flags.limit_seconds);
  std::atomic<int> ended = 0;
  absl::Status status = InParallel(flags.threads, flags.jobs, [&](int job) -> absl::Status {
    std::string uid;
    {
      absl::MutexLock lock(&mutex);
      const auto there = [&]()
                             ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return static_cast<int>(succeeded.size()) > job; };
      if (!mutex.AwaitWithDeadline(absl::Condition(&there), deadline)) {
        return absl::DeadlineExceededError(absl::StrCat(succeeded.size(), " of ", flags.jobs, " jobs succeeded"));
      }
      uid = succeeded[static_cast<std::size_t>(job)];
    }
    for (const PodStore::Pointer& pod : world.pods().Group(uid)) {
      const absl::Status result = End(world, *pod, 0);
      if (!result.ok() && !absl::IsNotFound(result)) return result;
      ++ended;
    }
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return Json{{"pods", ended.load()}};
}

absl::StatusOr<Json> Run(const Flags& flags, const std::string& step) {
  absl::StatusOr<std::unique_ptr<kube::CredentialSource>> found = kube::FindCredentials(flags.kubeconfig);
  if (!found.ok()) return found.status();
  const std::shared_ptr<kube::CredentialSource> credentials = *std::move(found);
  World world(credentials);
  if (!world.WaitForSync()) return absl::DeadlineExceededError("the pods cannot be listed");
  if (step == "create-pods") return CreatePods(flags, world);
  if (step == "create-jobs") return CreateJobs(flags, world);
  if (step == "react") return React(flags, world);
  return Finish(flags, world, credentials);
}

int Main(int argc, char** argv) {
  CLI::App app{"Steps of the operator's benchmark."};
  Flags flags;
  std::string step;
  app.add_option("step", step)->required()->check(CLI::IsMember({"create-pods", "create-jobs", "react", "finish"}));
  app.add_option("--kubeconfig", flags.kubeconfig)->required();
  app.add_option("--namespace", flags.namespace_name)->capture_default_str();
  app.add_option("--namespaces", flags.namespaces)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--jobs", flags.jobs)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--parameter-servers", flags.parameter_servers)->capture_default_str();
  app.add_option("--workers", flags.workers)->capture_default_str();
  app.add_option("--threads", flags.threads)->check(CLI::Range(1, 256))->capture_default_str();
  app.add_option("--first", flags.first, "the job with the first of them (react)")->capture_default_str();
  app.add_option("--count", flags.count, "pods that fail (react)")->capture_default_str();
  app.add_option("--limit", flags.limit_seconds, "seconds to wait for pods")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const absl::Status ready = kube::InitialiseHttp(2);
  const absl::StatusOr<Json> result = ready.ok() ? Run(flags, step) : ready;
  if (!result.ok()) {
    absl::FPrintF(stderr, "operator_bench: %s: %s\n", step, std::string(result.status().message()));
    return 1;
  }
  absl::PrintF("%s\n", result->dump());
  return 0;
}

}  // namespace
}  // namespace downpour

// What CLI11 may throw while the options are declared would be a defect of ours: ending is right.
// NOLINTNEXTLINE(bugprone-exception-escape)
int main(int argc, char** argv) { return downpour::Main(argc, argv); }
