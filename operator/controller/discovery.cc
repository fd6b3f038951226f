#include "operator/controller/discovery.h"

#include "absl/status/statusor.h"
#include "operator/controller/objects.h"
#include "operator/controller/owned_objects.h"
#include "operator/planner/conditions.h"

namespace downpour::controller {
namespace {

constexpr double kTrustedSeconds = 60;

// Where the coordinator is reached; empty: nowhere. Absent: it has done its work, and nobody looks for it unless
// another is started.
std::optional<std::string> CoordinatorAddress(const Pods& pods) {
  bool done = false;
  for (const PodPointer& pod : pods) {
    if (pod->role != api::Role::kCoordinator) continue;
    if (!pod->address.empty() && !HasEnded(*pod)) return pod->address;
    done = done || pod->phase == "Succeeded";
  }
  return done ? std::nullopt : std::optional<std::string>("");
}

}  // namespace

Discovery Discovery::OfNewJob() {
  Discovery discovery;
  discovery.slice_ = Slice::kMissing;
  return discovery;
}

std::optional<std::string> Discovery::Due(const JobRecord& record, const api::TrainingJobStatus& status,
                                          const Pods& pods) const {
  const std::optional<std::string> address = CoordinatorAddress(pods);
  if (!address.has_value() || planner::IsSettled(status) || record.meta.deletion_time.has_value()) return std::nullopt;
  switch (slice_) {
    case Slice::kMissing:
      return address->empty() ? std::nullopt : address;
    case Slice::kThere:
      return published_ == *address ? std::nullopt : address;
    case Slice::kUnknown:
      break;
  }
  // A leader that is new does not ask about jobs that have all members.
  return planner::IsTrue(status, planner::kReady) ? std::nullopt : address;
}

absl::Status Discovery::Publish(const JobRecord& record, const std::string& address, kube::Client& client,
                                NamespaceServices& services, double now) {
  absl::Status status;
  if (!address.empty()) status = AsRefusal(services.Ensure(record.meta.namespace_name));
  if (status.ok()) status = Write(record, address, client, now);
  hold_.Note(status, "the coordinator of the job cannot be found by name", now);
  if (address.empty()) hold_.obstacle.reset();  // nobody is held up by that
  return status;
}

absl::Status Discovery::Write(const JobRecord& record, const std::string& address, kube::Client& client, double now) {
  const std::string& namespace_name = record.meta.namespace_name;
  const std::string& name = record.meta.name;
  const kube::Json wanted = MakeEndpointSlice(record.job, address);
  absl::StatusOr<kube::Json> slice = absl::NotFoundError("");
  if (slice_ != Slice::kMissing) slice = client.Get(kube::kEndpointSlices, namespace_name, name);
  if (absl::IsNotFound(slice.status())) {
    slice_ = Slice::kMissing;
    if (address.empty()) return absl::OkStatus();
    slice = CreateOwned(client, record, kube::kEndpointSlices, wanted);
  }
  if (!slice.ok()) return slice.status();
  const kube::ObjectMeta meta = kube::ReadMeta(*slice);
  if (meta.controller_uid != record.meta.uid) return SomebodyElses(kube::kEndpointSlices, name);
  // The answer to its making may be without endpoints, and a server says null where there are none.
  const auto said = slice->find("endpoints");
  if (said != slice->end() && (address.empty() ? !said->empty() : *said != wanted.at("endpoints"))) {
    slice_ = Slice::kUnknown;  // should the answer be lost
    const kube::Json patch = {{"metadata", {{"uid", meta.uid}, {"resourceVersion", meta.resource_version}}},
                              {"endpoints", wanted.at("endpoints")}};
    absl::Status patched = client.MergePatch(kube::kEndpointSlices, namespace_name, name, patch).status();
    if (absl::IsNotFound(patched)) return Vanished(kube::kEndpointSlices, name);
    if (!patched.ok()) return patched;
  }
  published_ = address;
  published_at_ = now;
  slice_ = Slice::kThere;
  return absl::OkStatus();
}

void Discovery::DoubtAfterAMinute(double now) {
  if (slice_ == Slice::kThere && now >= published_at_ + kTrustedSeconds) slice_ = Slice::kUnknown;
}

}  // namespace downpour::controller
