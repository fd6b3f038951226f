#ifndef DOWNPOUR_OPERATOR_CONTROLLER_CREATE_OWNED_H_
#define DOWNPOUR_OPERATOR_CONTROLLER_CREATE_OWNED_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "operator/controller/job_record.h"
#include "operator/kube/client.h"
#include "operator/kube/object.h"

namespace downpour::controller {

// kAlreadyExists, in words.
absl::Status SomebodyElses(const kube::Resource& resource, const std::string& name);

// Made now (of servers that can answer so: its metadata), or there already and the job's: an answer was lost, or a cache
// is behind. kAlreadyExists: it is somebody else's.
absl::StatusOr<kube::Json> CreateOwned(kube::Client* client, const JobRecord& record, const kube::Resource& resource,
                                       const kube::Json& object);

}  // namespace downpour::controller

#endif  // DOWNPOUR_OPERATOR_CONTROLLER_CREATE_OWNED_H_
