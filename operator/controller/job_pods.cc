#include "operator/controller/job_pods.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "operator/controller/owned_objects.h"
#include "operator/controller/slow_start.h"

namespace downpour::controller {
namespace {

using planner::Action;
using planner::ActionType;

// Notes what several threads wrote.
class SharedWrites {
 public:
  explicit SharedWrites(OwnWrites* writes) : writes_(writes) {}

  void MadePod(const std::string& resource_version) {
    absl::MutexLock lock(&mutex_);
    writes_->MadePod(resource_version);
  }
  void DeletedPod(const std::string& uid) {
    absl::MutexLock lock(&mutex_);
    writes_->DeletedPod(uid);
  }

 private:
  absl::Mutex mutex_;
  OwnWrites* const writes_ ABSL_PT_GUARDED_BY(mutex_);
};

absl::Status DeletePod(kube::Client& client, const Pod& pod, bool at_once, SharedWrites& writes) {
  kube::DeleteOptions options;
  options.preconditions.uid = pod.meta.uid;
  if (at_once) options.grace_seconds = 0;
  absl::Status deleted = client.Delete(kube::kPods, pod.meta.namespace_name, pod.meta.name, options);
  if (!deleted.ok() && !absl::IsNotFound(deleted)) return deleted;
  writes.DeletedPod(pod.meta.uid);
  return absl::OkStatus();
}

absl::Status CreatePod(kube::Client& client, const JobRecord& record, const Action& start,
                       const PodsOfRole& pods_of_role, const Pods& pods, SharedWrites& writes) {
  const absl::StatusOr<kube::Json> wanted = pods_of_role.Make(start.index, start.incarnation, start.avoid_nodes);
  if (!wanted.ok()) return wanted.status();
  // What is left of the start before bears the same name.
  for (const PodPointer& pod : pods) {
    if (pod->role != start.role || pod->index != start.index || !HasEnded(*pod)) continue;
    absl::Status removed = DeletePod(client, *pod, /*at_once=*/true, writes);
    if (!removed.ok()) return removed;
  }
  const absl::StatusOr<kube::Json> created = CreateOwned(client, record, kube::kPods, *wanted);
  if (!created.ok()) return created.status();
  const std::optional<Pod> pod = DecodePod(*created);
  if (!pod.has_value()) return absl::InternalError("the server returned a pod without our labels");
  writes.MadePod(pod->meta.resource_version);
  return absl::OkStatus();
}

}  // namespace

JobPods::JobPods(kube::Client* client, PodOptions options, int most_parallel,
                 std::function<bool(const JobRecord&)> is_current)
    : client_(client),
      options_(std::move(options)),
      most_parallel_(most_parallel),
      is_current_(std::move(is_current)) {}

JobPods::Started JobPods::Start(const JobRecord& record, const std::vector<Action>& starts, const Pods& pods,
                                OwnWrites& writes) {
  std::map<api::Role, PodsOfRole> roles;
  for (const Action& start : starts) roles.try_emplace(start.role, record.job, options_, start.role);
  SharedWrites shared(&writes);
  std::atomic<bool> broken_off = false;
  std::atomic<bool> some = false;
  const absl::Status status = SlowStart(helpers_, starts.size(), most_parallel_, [&](std::size_t i) {
    // Thousands take a while. That it changed has put the job into the queue, for a pass that knows what is wanted now.
    if (!is_current_(record)) {
      broken_off = true;
      return absl::OkStatus();
    }
    absl::Status made = CreatePod(*client_, record, starts[i], roles.at(starts[i].role), pods, shared);
    if (made.ok()) some = true;
    return made;
  });
  return {status, broken_off, some};
}

absl::Status JobPods::Remove(const JobRecord& record, const std::vector<Action>& removals, const Pods& pods,
                             OwnWrites& writes) {
  const auto ended = [](const Action& action) { return action.type == ActionType::kRemove; };
  if (removals.size() > 1 && removals.size() == pods.size() && std::all_of(removals.begin(), removals.end(), ended)) {
    // All there is of a job that is over: at once.
    kube::DeleteOptions options;
    options.grace_seconds = 0;
    absl::Status deleted =
        client_->DeleteCollection(kube::kPods, record.meta.namespace_name, PodSelector(record.meta.uid), options);
    if (deleted.ok()) {
      for (const PodPointer& pod : pods) writes.DeletedPod(pod->meta.uid);
    }
    return deleted;
  }
  std::unordered_map<std::string, const Pod*> by_uid;
  for (const PodPointer& pod : pods) by_uid[pod->meta.uid] = pod.get();
  SharedWrites shared(&writes);
  return SlowStart(helpers_, removals.size(), most_parallel_, [&](std::size_t i) {
    const Action& action = removals[i];
    const auto found = by_uid.find(action.uid);
    if (found == by_uid.end()) return absl::OkStatus();
    const Pod& pod = *found->second;
    if (action.type == ActionType::kStop && pod.meta.deletion_time.has_value()) return absl::OkStatus();
    return DeletePod(*client_, pod, /*at_once=*/action.type != ActionType::kStop, shared);
  });
}

}  // namespace downpour::controller
