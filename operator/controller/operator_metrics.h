#ifndef DOWNPOUR_OPERATOR_CONTROLLER_OPERATOR_METRICS_H_
#define DOWNPOUR_OPERATOR_CONTROLLER_OPERATOR_METRICS_H_

#include <string>

#include "absl/time/time.h"
#include "operator/api/training_job.h"
#include "operator/controller/job_record.h"
#include "operator/controller/pod.h"
#include "operator/controller/work_queue.h"
#include "operator/kube/informer.h"
#include "trainer/service/metrics.h"

namespace downpour::controller {

// The operator's metrics: controller-runtime's names where it has one, trainingjob_* for jobs. Thread-safe.
class OperatorMetrics {
 public:
  explicit OperatorMetrics(service::Metrics* metrics);

  void OnRequest(const std::string& method, int code, absl::Duration taken);
  void OnReconciled(bool error, bool requeue, absl::Duration waited, absl::Duration taken);
  void OnStale();
  // Counts what the step from the stored status to `after` says: starts, ends, failures, recoveries.
  void OnStatus(const JobRecord& before, const api::TrainingJobStatus& after, double now);
  void SetLeading(bool leading);
  // The gauges, as things are now.
  void Publish(const WorkQueueCounters& queue, const kube::Store<JobRecord>& jobs, const kube::Store<Pod>& pods);
  void PublishWatch(const std::string& resource, const kube::ReflectorState& state);

 private:
  service::Metrics* const metrics_;
};

}  // namespace downpour::controller

#endif  // DOWNPOUR_OPERATOR_CONTROLLER_OPERATOR_METRICS_H_
