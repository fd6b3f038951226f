#include "operator/controller/coordinator_names.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "operator/controller/create_owned.h"
#include "operator/controller/objects.h"

namespace downpour::controller {
namespace {

constexpr double kTrustedSeconds = 60;

bool IsOurs(const kube::ObjectMeta& meta) {
  const auto found = meta.labels.find(kManagedByLabel);
  return found != meta.labels.end() && found->second == kManagedByValue;
}

}  // namespace

CoordinatorNames::CoordinatorNames(kube::Client* client, const kube::Store<JobRecord>* jobs,
                                   std::function<double()> clock)
    : client_(client), jobs_(jobs), clock_(std::move(clock)) {}

absl::StatusOr<kube::ObjectMeta> CoordinatorNames::Look(const std::string& namespace_name) {
  const absl::StatusOr<kube::Json> found = client_->Get(kube::kServices, namespace_name, kCoordinatorService);
  if (!found.ok()) return found.status();
  kube::ObjectMeta meta = kube::ReadMeta(*found);
  if (!IsOurs(meta)) return SomebodyElses(kube::kServices, kCoordinatorService);
  return meta;
}

absl::Status CoordinatorNames::EnsureService(const std::string& namespace_name) {
  {
    absl::MutexLock lock(&mutex_);
    const auto found = seen_.find(namespace_name);
    // A clock may have been ahead.
    if (found != seen_.end() && found->second <= clock_() && clock_() < found->second + kTrustedSeconds) {
      return absl::OkStatus();
    }
  }
  absl::Status status = Look(namespace_name).status();
  if (absl::IsNotFound(status)) {
    status = client_
                 ->Create(kube::kServices, namespace_name, MakeCoordinatorService(namespace_name),
                          {/*dry_run=*/false, /*metadata_only=*/true, /*unchecked=*/true})
                 .status();
    // Another job needed it too.
    if (absl::IsAlreadyExists(status)) status = Look(namespace_name).status();
  }
  if (!status.ok()) return status;
  absl::MutexLock lock(&mutex_);
  seen_[namespace_name] = clock_();
  return absl::OkStatus();
}

absl::Status CoordinatorNames::Publish(const JobRecord& record, const Pod& pod, bool known) {
  const kube::Json wanted = MakeCoordinatorEndpoints(record.job, pod);
  if (!known) {
    const absl::StatusOr<kube::Json> there = CreateOwned(client_, record, kube::kEndpointSlices, wanted);
    if (!there.ok()) return there.status();
    // Of one that was made just now the server tells no more than its metadata.
    const kube::Json* const endpoints = kube::Find(*there, {"endpoints"});
    if (endpoints == nullptr || *endpoints == wanted["endpoints"]) return absl::OkStatus();
  }
  const std::string name = kube::FindText(wanted, {"metadata", "name"});
  absl::Status patched = client_
                             ->MergePatch(kube::kEndpointSlices, record.meta.namespace_name, name,
                                          {{"endpoints", wanted["endpoints"]}})
                             .status();
  if (!absl::IsNotFound(patched)) return patched;
  return CreateOwned(client_, record, kube::kEndpointSlices, wanted).status();
}

absl::Status CoordinatorNames::Retire(const std::string& namespace_name) {
  {
    absl::MutexLock lock(&mutex_);
    if (seen_.count(namespace_name) == 0) return absl::OkStatus();
  }
  const auto is_used = [&] { return !jobs_->Group(namespace_name).empty(); };
  if (is_used()) return absl::OkStatus();
  const absl::StatusOr<kube::ObjectMeta> service = Look(namespace_name);
  absl::Status status = service.status();
  if (service.ok()) {
    kube::DeleteOptions options;
    options.preconditions.uid = service->uid;
    status = client_->Delete(kube::kServices, namespace_name, kCoordinatorService, options);
  }
  const bool ours_is_gone =
      status.ok() || absl::IsNotFound(status) || absl::IsAborted(status) || absl::IsAlreadyExists(status);
  if (!ours_is_gone) return status;
  {
    absl::MutexLock lock(&mutex_);
    seen_.erase(namespace_name);
  }
  // A job that came meanwhile may have taken it for granted.
  return is_used() ? EnsureService(namespace_name) : absl::OkStatus();
}

absl::Status CoordinatorNames::RetireUnused(const std::string& namespace_name) {
  kube::ListOptions options;
  options.label_selector = absl::StrCat(kManagedByLabel, "=", kManagedByValue);
  const absl::StatusOr<kube::ListPage> services = client_->List(kube::kServices, namespace_name, options);
  if (!services.ok()) return services.status();
  absl::Status result = absl::OkStatus();
  for (const kube::Json& service : services->items) {
    const kube::ObjectMeta meta = kube::ReadMeta(service);
    if (meta.name != kCoordinatorService) continue;
    {
      absl::MutexLock lock(&mutex_);
      seen_.emplace(meta.namespace_name, clock_());
    }
    result.Update(Retire(meta.namespace_name));
  }
  return result;
}

}  // namespace downpour::controller
