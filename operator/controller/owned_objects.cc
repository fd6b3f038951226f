#include "operator/controller/owned_objects.h"

#include <string>

#include "operator/controller/objects.h"
#include "operator/controller/obstacles.h"

namespace downpour::controller {

absl::StatusOr<kube::Json> CreateOwned(kube::Client& client, const JobRecord& record, const kube::Resource& resource,
                                       const kube::Json& object) {
  // A template with unknown fields did not get so far: see TemplateCheck.
  absl::StatusOr<kube::Json> created = client.Create(resource, record.meta.namespace_name, object,
                                                     {/*dry_run=*/false, /*metadata_only=*/true, /*unchecked=*/true});
  if (created.ok()) return created;
  if (!absl::IsAlreadyExists(created.status())) return AsRefusal(created.status());
  const std::string name = kube::FindText(object, {"metadata", "name"});
  absl::StatusOr<kube::Json> existing = client.Get(resource, record.meta.namespace_name, name);
  if (absl::IsNotFound(existing.status())) return Vanished(resource, name);
  if (!existing.ok() || kube::ReadMeta(*existing).controller_uid == record.meta.uid) return existing;
  return SomebodyElses(resource, name);
}

}  // namespace downpour::controller
