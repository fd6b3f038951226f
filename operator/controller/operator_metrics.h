#ifndef DOWNPOUR_OPERATOR_CONTROLLER_OPERATOR_METRICS_H_
#define DOWNPOUR_OPERATOR_CONTROLLER_OPERATOR_METRICS_H_

#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "operator/api/training_job.h"
#include "operator/controller/goodput.h"
#include "operator/controller/job_record.h"
#include "operator/controller/pod.h"
#include "operator/controller/work_queue.h"
#include "operator/kube/informer.h"
#include "trainer/service/metrics.h"

namespace downpour::controller {

// On a job, with the value "true": it gets a series trainingjob_goodput_ratio of its own. Opt-in, because series that
// are named after jobs grow with the number of jobs.
inline constexpr char kGoodputAnnotation[] = "training.downpour.dev/goodput";

// The operator's metrics: controller-runtime's names and labels where it has one, trainingjob_* for jobs. Thread-safe.
class OperatorMetrics {
 public:
  // `workers`: jobs worked on at a time. `api_server`: its host and port.
  OperatorMetrics(service::Metrics* metrics, int workers, std::string api_server);

  // `code` 0: there was no answer.
  void OnRequest(const std::string& method, int code, absl::Duration taken);
  void OnRateLimited(const std::string& method, absl::Duration waited);
  void OnRetry(const std::string& method, int code);
  // A pass over a key that `waited` for it has decided.
  void OnPass(absl::Duration waited, absl::Duration taken);
  // What it decided is done, `taken` after it began.
  void OnReconciled(bool error, bool requeue, absl::Duration taken);
  void OnPanic();
  void OnStale();
  // `news`: essential, picture or progress; see Reconciler.
  void OnStatusWrite(std::string_view news);
  // Counts what the step from the stored status to `after` says: starts, ends, failures, recoveries. `pods` are those
  // of the job, as they are now.
  void OnStatus(const JobRecord& before, const api::TrainingJobStatus& after, const Pods& pods, double now);
  void SetLeading(bool leading);
  // The gauges, as things are now.
  void Publish(const WorkQueueCounters& queue, const kube::Store<JobRecord>& jobs, const kube::Store<Pod>& pods,
               double now);
  void PublishWatch(const std::string& resource, const kube::ReflectorState& state);

 private:
  void ObserveRecovery(const api::RecoveryStatus& recovery);
  void PublishJobs(const std::vector<kube::Store<JobRecord>::Pointer>& jobs, double now);
  void PublishGoodput(const std::vector<kube::Store<JobRecord>::Pointer>& jobs, double now);

  service::Metrics* const metrics_;
  const std::string api_server_;
  std::mutex mutex_;
  std::map<std::string, std::pair<service::Labels, Goodput>> goodputs_;  // by uid; guarded by mutex_
};

}  // namespace downpour::controller

#endif  // DOWNPOUR_OPERATOR_CONTROLLER_OPERATOR_METRICS_H_
