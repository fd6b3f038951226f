#include "operator/controller/namespace_services.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "operator/controller/objects.h"
#include "operator/controller/pod.h"

namespace downpour::controller {
namespace {

constexpr double kTrustedSeconds = 60;

bool IsOurs(const kube::ObjectMeta& meta) {
  const auto label = meta.labels.find(kManagedByLabel);
  return label != meta.labels.end() && label->second == kManagedByValue && meta.controller_uid.empty();
}

}  // namespace

NamespaceServices::NamespaceServices(kube::Client* client, std::function<double()> clock)
    : client_(client), clock_(std::move(clock)) {}

std::shared_ptr<NamespaceServices::Known> NamespaceServices::Of(const std::string& namespace_name) {
  absl::MutexLock lock(&mutex_);
  std::shared_ptr<Known>& known = known_[namespace_name];
  if (known == nullptr) known = std::make_shared<Known>();
  return known;
}

absl::Status NamespaceServices::Look(const std::string& namespace_name, Known& known) {
  known.state = Known::State::kUnknown;
  // Not as the server remembers it: that may be what was removed a moment ago.
  const absl::StatusOr<kube::Json> found = client_->Get(kube::kServices, namespace_name, kServiceName);
  if (absl::IsNotFound(found.status())) {
    known.state = Known::State::kMissing;
    return absl::OkStatus();
  }
  if (!found.ok()) return found.status();
  const kube::ObjectMeta meta = kube::ReadMeta(*found);
  if (!IsOurs(meta)) return SomebodyElses(kube::kServices, kServiceName);
  if (meta.deletion_time.has_value()) {
    return absl::UnavailableError(absl::StrCat("Service ", kServiceName, " is being deleted"));
  }
  known.state = Known::State::kThere;
  known.uid = meta.uid;
  known.seen = clock_();
  return absl::OkStatus();
}

absl::Status NamespaceServices::Ensure(const std::string& namespace_name) {
  const std::shared_ptr<Known> known = Of(namespace_name);
  const double begun = clock_();
  absl::MutexLock lock(&known->turn);
  const double now = clock_();
  if (begun < known->failed && known->failed <= now) return known->failure;
  absl::Status ensured = EnsureInTurn(namespace_name, now, *known);
  if (!ensured.ok()) {
    known->failure = ensured;
    known->failed = clock_();
  }
  return ensured;
}

absl::Status NamespaceServices::EnsureInTurn(const std::string& namespace_name, double now, Known& known) {
  const double age = now - known.seen;  // less than none: a clock was ahead
  if (known.state == Known::State::kThere && age >= 0 && age < kTrustedSeconds) return absl::OkStatus();
  absl::Status looked = Look(namespace_name, known);
  if (!looked.ok() || known.state == Known::State::kThere) return looked;
  known.state = Known::State::kUnknown;  // should the answer be lost
  const absl::StatusOr<kube::Json> made =
      client_->Create(kube::kServices, namespace_name, MakeService(namespace_name),
                      {/*dry_run=*/false, /*metadata_only=*/true, /*unchecked=*/true});
  if (absl::IsAlreadyExists(made.status())) {  // an answer was lost
    looked = Look(namespace_name, known);
    if (!looked.ok() || known.state == Known::State::kThere) return looked;
    return absl::UnavailableError(absl::StrCat("Service ", kServiceName, " comes and goes"));
  }
  if (!made.ok()) return made.status();
  known.state = Known::State::kThere;
  known.uid = kube::ReadMeta(*made).uid;
  known.seen = clock_();
  return absl::OkStatus();
}

absl::Status NamespaceServices::Remove(const std::string& namespace_name, const std::function<bool()>& is_used) {
  absl::Status removed;
  {
    const std::shared_ptr<Known> known = Of(namespace_name);
    absl::MutexLock lock(&known->turn);
    removed = RemoveInTurn(namespace_name, is_used, *known);
  }
  Drop(namespace_name);
  return removed;
}

absl::Status NamespaceServices::RemoveInTurn(const std::string& namespace_name, const std::function<bool()>& is_used,
                                             Known& known) {
  if (is_used()) return absl::OkStatus();
  if (known.state == Known::State::kUnknown) {
    absl::Status looked = Look(namespace_name, known);
    if (absl::IsAlreadyExists(looked)) return absl::OkStatus();  // not ours to remove
    if (!looked.ok()) return looked;
  }
  if (known.state == Known::State::kMissing) return absl::OkStatus();
  known.state = Known::State::kUnknown;
  kube::DeleteOptions options;
  options.preconditions.uid = known.uid;
  absl::Status removed = client_->Delete(kube::kServices, namespace_name, kServiceName, options);
  if (!removed.ok() && !absl::IsNotFound(removed)) return removed;
  known.state = Known::State::kMissing;
  return absl::OkStatus();
}

void NamespaceServices::Drop(const std::string& namespace_name) {
  absl::MutexLock lock(&mutex_);
  const auto found = known_.find(namespace_name);
  // Whoever shares it got it under this lock.
  if (found != known_.end() && found->second.use_count() == 1) known_.erase(found);
}

}  // namespace downpour::controller
