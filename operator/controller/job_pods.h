#ifndef DOWNPOUR_OPERATOR_CONTROLLER_JOB_PODS_H_
#define DOWNPOUR_OPERATOR_CONTROLLER_JOB_PODS_H_

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "operator/controller/job_record.h"
#include "operator/controller/objects.h"
#include "operator/controller/own_writes.h"
#include "operator/controller/pod.h"
#include "operator/controller/thread_pool.h"
#include "operator/kube/client.h"
#include "operator/planner/plan.h"

namespace downpour::controller {

// Makes and deletes the pods of jobs, many at a time: what is refused is refused once (SlowStart). Names are
// deterministic and deletions carry the uid, so what slips through is refused by the server. Calls wait for the server.
// Thread-safe; calls about one job take turns.
class JobPods {
 public:
  // `client` outlives it. `is_current`: whether what a job asks for is still what this record says.
  JobPods(kube::Client* client, PodOptions options, int most_parallel,
          std::function<bool(const JobRecord&)> is_current);

  struct Started {
    absl::Status status;
    bool broken_off = false;  // it asks for something else by now: what was not tried is neither made nor refused
    bool some = false;        // were made
  };
  // Carries out these kStart actions; `pods`: of the job, as the plan saw them.
  Started Start(const JobRecord& record, const std::vector<planner::Action>& starts, const Pods& pods,
                OwnWrites& writes);
  // Carries out these kStop, kForceStop and kRemove actions.
  absl::Status Remove(const JobRecord& record, const std::vector<planner::Action>& removals, const Pods& pods,
                      OwnWrites& writes);

 private:
  kube::Client* const client_;
  const PodOptions options_;
  const int most_parallel_;
  const std::function<bool(const JobRecord&)> is_current_;
  ThreadPool helpers_;  // beside the thread that calls
};

}  // namespace downpour::controller

#endif  // DOWNPOUR_OPERATOR_CONTROLLER_JOB_PODS_H_
