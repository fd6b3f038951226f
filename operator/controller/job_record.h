#ifndef DOWNPOUR_OPERATOR_CONTROLLER_JOB_RECORD_H_
#define DOWNPOUR_OPERATOR_CONTROLLER_JOB_RECORD_H_

#include <optional>
#include <vector>

#include "operator/api/manifest.h"
#include "operator/api/training_job.h"
#include "operator/kube/object.h"

namespace downpour::controller {

// A TrainingJob as the API server holds it.
struct JobRecord {
  kube::ObjectMeta meta;
  api::TrainingJob job;                 // with the stored status; the spec only if there are no errors
  bool managed_here = true;             // false: spec.managedBy names another controller, whose schema may differ
  std::vector<api::FieldError> errors;  // a spec that this operator cannot read: stored under another schema
};

// Nothing for what has no name or uid. A status that cannot be read counts as an error of the object. The spec is taken
// from `before` if that is the same job of the same generation.
std::optional<JobRecord> DecodeJob(const kube::Json& object, const JobRecord* before = nullptr);

}  // namespace downpour::controller

#endif  // DOWNPOUR_OPERATOR_CONTROLLER_JOB_RECORD_H_
