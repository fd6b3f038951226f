#include "operator/controller/create_owned.h"

#include "absl/strings/str_cat.h"

namespace downpour::controller {

absl::Status SomebodyElses(const kube::Resource& resource, const std::string& name) {
  return absl::AlreadyExistsError(
      absl::StrCat(resource.kind, " ", name, " exists and belongs to somebody else; it is left alone"));
}

absl::StatusOr<kube::Json> CreateOwned(kube::Client* client, const JobRecord& record, const kube::Resource& resource,
                                       const kube::Json& object) {
  // A template with unknown fields did not get so far: see Reconciler::CheckTemplates.
  absl::StatusOr<kube::Json> created = client->Create(resource, record.meta.namespace_name, object,
                                                      {/*dry_run=*/false, /*metadata_only=*/true, /*unchecked=*/true});
  if (!absl::IsAlreadyExists(created.status())) return created;
  const std::string name = kube::FindText(object, {"metadata", "name"});
  absl::StatusOr<kube::Json> existing = client->Get(resource, record.meta.namespace_name, name);
  if (!existing.ok() || kube::ReadMeta(*existing).controller_uid == record.meta.uid) return existing;
  return SomebodyElses(resource, name);
}

}  // namespace downpour::controller
