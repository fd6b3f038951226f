#include "operator/controller/job_record.h"

#include <string>
#include <utility>

namespace downpour::controller {

namespace {

void ReadSpec(const kube::Json& object, JobRecord& record) {
  // Only what the manifest itself may hold; the server's own metadata stays in `meta`.
  kube::Json manifest = {{"apiVersion", api::kApiVersion}, {"kind", api::kKind}};
  manifest["metadata"] = {{"name", record.meta.name}, {"namespace", record.meta.namespace_name}};
  if (const kube::Json* spec = kube::Find(object, {"spec"})) manifest["spec"] = *spec;
  const std::string managed_by = kube::FindText(object, {"spec", "managedBy"});
  record.managed_here = managed_by.empty() || managed_by == api::TrainingJobSpec().managed_by;
  api::ParsedManifest parsed = api::ParseStored(manifest.dump());
  record.job = std::move(parsed.job);
  record.errors = std::move(parsed.errors);
}

}  // namespace

std::optional<JobRecord> DecodeJob(const kube::Json& object, const JobRecord* before) {
  JobRecord record;
  record.meta = kube::ReadMeta(object);
  if (record.meta.name.empty() || record.meta.uid.empty()) return std::nullopt;
  const bool same_spec = before != nullptr && before->errors.empty() && before->meta.uid == record.meta.uid &&
                         before->meta.generation == record.meta.generation;
  if (same_spec) {
    record.job.spec = before->job.spec;
    record.managed_here = before->managed_here;
  } else {
    ReadSpec(object, record);
  }
  record.job.metadata.name = record.meta.name;
  record.job.metadata.namespace_name = record.meta.namespace_name;
  record.job.metadata.uid = record.meta.uid;
  record.job.metadata.generation = record.meta.generation;
  if (const kube::Json* status = kube::Find(object, {"status"}); status != nullptr && !status->empty()) {
    absl::StatusOr<api::TrainingJobStatus> read = api::StatusFromJson(status->dump(), api::TimeFormat::kRfc3339);
    if (read.ok()) {
      record.job.status = *std::move(read);
    } else {
      record.errors.push_back({"status", std::string(read.status().message())});
    }
  }
  return record;
}

}  // namespace downpour::controller
