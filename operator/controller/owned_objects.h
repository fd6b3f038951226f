#ifndef DOWNPOUR_OPERATOR_CONTROLLER_OWNED_OBJECTS_H_
#define DOWNPOUR_OPERATOR_CONTROLLER_OWNED_OBJECTS_H_

#include "absl/status/statusor.h"
#include "operator/controller/job_record.h"
#include "operator/kube/client.h"

namespace downpour::controller {

// `object`, which is to belong to the job: made now, or there already and the job's, as when an answer was lost or a
// cache is behind. Of its metadata at least uid, owner and version are answered. kAlreadyExists: it is somebody else's.
absl::StatusOr<kube::Json> CreateOwned(kube::Client& client, const JobRecord& record, const kube::Resource& resource,
                                       const kube::Json& object);

}  // namespace downpour::controller

#endif  // DOWNPOUR_OPERATOR_CONTROLLER_OWNED_OBJECTS_H_
