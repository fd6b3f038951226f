#ifndef DOWNPOUR_OPERATOR_CONTROLLER_COORDINATOR_NAMES_H_
#define DOWNPOUR_OPERATOR_CONTROLLER_COORDINATOR_NAMES_H_

#include <functional>
#include <string>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "operator/controller/job_record.h"
#include "operator/controller/pod.h"
#include "operator/kube/client.h"
#include "operator/kube/informer.h"

namespace downpour::controller {

// The names under which workers and ps find the coordinators, whichever pods these are: one headless service for all
// jobs of a namespace, without a selector, and an EndpointSlice a job, which says where its coordinator is. A service
// a job, with a selector, costs the platform five writes and the work of two controllers where this costs one.
// Thread-safe; calls about one job do not overlap.
class CoordinatorNames {
 public:
  // All outlive it; `jobs` are grouped by namespace. `clock`: seconds since 1970.
  CoordinatorNames(kube::Client* client, const kube::Store<JobRecord>* jobs, std::function<double()> clock);

  // There is a service in this namespace now. One that was seen within the last minute is believed to be there: nobody
  // watches them. kAlreadyExists: there is one of somebody else.
  absl::Status EnsureService(const std::string& namespace_name);
  // Under its name the coordinator of the job is found at `pod`. `known`: somewhere it may have been found before, as
  // far as the caller knows. kAlreadyExists: the slice is somebody else's.
  absl::Status Publish(const JobRecord& record, const Pod& pod, bool known);
  // Deletes the service of a namespace that is known to have had one, if there are no jobs in it any more.
  absl::Status Retire(const std::string& namespace_name);
  // Finds out which namespaces have one, and deletes those that are not needed: a process before this one may have ended
  // in between. Of this namespace alone unless it is empty.
  absl::Status RetireUnused(const std::string& namespace_name);

 private:
  // What the server has: ours, or kNotFound or kAlreadyExists.
  absl::StatusOr<kube::ObjectMeta> Look(const std::string& namespace_name);

  kube::Client* const client_;
  const kube::Store<JobRecord>* const jobs_;
  const std::function<double()> clock_;
  absl::Mutex mutex_;
  std::unordered_map<std::string, double> seen_ ABSL_GUARDED_BY(mutex_);  // when, by namespace; until it is deleted
};

}  // namespace downpour::controller

#endif  // DOWNPOUR_OPERATOR_CONTROLLER_COORDINATOR_NAMES_H_
