#include "operator/controller/disruption_budget.h"

#include <algorithm>
#include <string>

#include "absl/status/statusor.h"
#include "operator/controller/objects.h"
#include "operator/controller/owned_objects.h"
#include "operator/planner/conditions.h"

namespace downpour::controller {
namespace {

constexpr double kBelievedSeconds = 600;

// The budget that has the name of the job's, whosever it is.
absl::StatusOr<kube::Json> Look(const JobRecord& record, kube::Client& client) {
  return client.Get(kube::kPodDisruptionBudgets, record.meta.namespace_name, PodDisruptionBudgetName(record.job));
}

bool IsOwn(const kube::Json& budget, const JobRecord& record) {
  return kube::ReadMeta(budget).controller_uid == record.meta.uid;
}

// What of `there` differs from `spec`, if anything does.
absl::Status Change(const kube::Json& there, const kube::Json& spec, kube::Client& client) {
  kube::Json patch = kube::Json::object();
  const kube::Json* const least = kube::Find(there, {"spec", "minAvailable"});
  if (least == nullptr || *least != spec.at("minAvailable")) patch["minAvailable"] = spec.at("minAvailable");
  const kube::Json wanted = spec.at("selector").value("matchExpressions", kube::Json());
  const kube::Json* const others = kube::Find(there, {"spec", "selector", "matchExpressions"});
  if ((others == nullptr ? kube::Json() : *others) != wanted) patch["selector"] = {{"matchExpressions", wanted}};
  if (patch.empty()) return absl::OkStatus();
  const kube::ObjectMeta meta = kube::ReadMeta(there);
  return client
      .MergePatch(kube::kPodDisruptionBudgets, meta.namespace_name, meta.name,
                  {{"metadata", {{"resourceVersion", meta.resource_version}}}, {"spec", std::move(patch)}})
      .status();
}

}  // namespace

DisruptionBudget DisruptionBudget::OfNewJob() {
  DisruptionBudget budget;
  budget.budget_ = Budget::kMissing;
  return budget;
}

std::optional<double> DisruptionBudget::Due(const api::TrainingJobStatus& status,
                                            const std::optional<planner::ProtectedPs>& wanted, absl::Duration delay,
                                            double now) {
  if (planner::IsOver(status)) return std::nullopt;
  if (!wanted.has_value()) return budget_ == Budget::kMissing ? std::nullopt : std::optional<double>(held_until_);
  // An eviction waits for it, or would cost what it should not.
  const bool is_for_others = budget_ == Budget::kThere && protected_ != *wanted;
  if (is_for_others || (budget_ == Budget::kUnknown && !wanted->free.empty())) return held_until_;
  if (!planner::IsTrue(status, planner::kReady)) return std::nullopt;
  // Members that come and go must not put it off again and again.
  if (!ready_since_.has_value()) {
    ready_since_ = std::min(now, planner::FindCondition(status, planner::kReady)->last_transition_time);
  }
  const double due =
      budget_ == Budget::kThere ? seen_at_ + kBelievedSeconds : *ready_since_ + absl::ToDoubleSeconds(delay);
  return std::max(due, held_until_);
}

absl::Status DisruptionBudget::Write(const JobRecord& record, const std::optional<planner::ProtectedPs>& wanted,
                                     kube::Client& client, double now) {
  absl::Status written = wanted.has_value() ? Make(record, *wanted, client) : Remove(record, client);
  if (written.ok()) {
    budget_ = wanted.has_value() ? Budget::kThere : Budget::kMissing;
    protected_ = wanted.value_or(planner::ProtectedPs());
    seen_at_ = now;
  } else {
    budget_ = Budget::kUnknown;  // an answer may have been lost
  }
  held_until_ = written.ok() ? 0 : now + absl::ToDoubleSeconds(kRetry);
  return written;
}

absl::Status DisruptionBudget::Make(const JobRecord& record, const planner::ProtectedPs& wanted, kube::Client& client) {
  const kube::Json budget = MakePodDisruptionBudget(record.job, wanted);
  if (budget_ != Budget::kMissing) {
    const absl::StatusOr<kube::Json> found = Look(record, client);
    if (found.ok() && IsOwn(*found, record)) return Change(*found, budget.at("spec"), client);
    if (!found.ok() && !absl::IsNotFound(found.status())) return found.status();
  }
  return CreateOwned(client, record, kube::kPodDisruptionBudgets, budget).status();
}

absl::Status DisruptionBudget::Remove(const JobRecord& record, kube::Client& client) {
  const absl::StatusOr<kube::Json> found = Look(record, client);
  if (absl::IsNotFound(found.status()) || (found.ok() && !IsOwn(*found, record))) return absl::OkStatus();
  if (!found.ok()) return found.status();
  const kube::ObjectMeta meta = kube::ReadMeta(*found);
  kube::DeleteOptions options;
  options.preconditions.uid = meta.uid;
  absl::Status deleted = client.Delete(kube::kPodDisruptionBudgets, meta.namespace_name, meta.name, options);
  return absl::IsNotFound(deleted) ? absl::OkStatus() : deleted;
}

}  // namespace downpour::controller
