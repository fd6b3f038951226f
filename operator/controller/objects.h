#ifndef DOWNPOUR_OPERATOR_CONTROLLER_OBJECTS_H_
#define DOWNPOUR_OPERATOR_CONTROLLER_OBJECTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "operator/api/pod_template.h"
#include "operator/api/training_job.h"
#include "operator/kube/object.h"
#include "operator/planner/plan.h"

// The objects that the operator makes for a job. Pure functions; names are deterministic, so that making one twice is
// refused by the server.
namespace downpour::controller {

// What the pods of all jobs have in common.
struct PodOptions {
  std::string server;   // coordinator and ps
  std::string trainer;  // worker
  std::string pull_policy = "IfNotPresent";
  // User, group and fsGroup of a pod, unless its template says otherwise; 0: none is set, so that the platform chooses.
  // It must not be root in any case.
  std::int64_t run_as_user = 65532;
};

using api::kControlPort;
using api::kMetricsPort;

// "lenet-worker-3".
std::string PodName(const api::TrainingJob& job, api::Role role, int index);
// Where the model is written, if that is in no volume that outlives its pod; else, and of a template that is refused,
// empty.
std::string TemporaryOutput(const api::TrainingJobSpec& spec);
// The templates that mount no volume that outlives their pods where checkpoints go: "spec.coordinator.template and
// spec.parameterServer.template", of all-reduce that of the workers; empty: none, or checkpoints go to no directory.
std::string TemporaryCheckpoints(const api::TrainingJobSpec& spec);

// The first resource of GPUs that a container of the workers' template has limits for: "nvidia.com/gpu",
// "nvidia.com/mig-1g.10gb", "amd.com/gpu"; or "resourceClaims", where it has claims of devices. Empty: none.
std::string GpusOf(const api::TrainingJobSpec& spec);

// Of all objects: the job's own labels of kube::kTrainingJobs are not copied.
std::string PodSelector(const std::string& job_uid);
// The uid of the job as the processes know it: 32 hexadecimal digits.
std::string ProcessJobUid(const std::string& kubernetes_uid);

// kAlreadyExists: an object of this name is not ours.
absl::Status SomebodyElses(const kube::Resource& resource, const std::string& name);

// Of the headless service in each namespace with jobs.
inline constexpr char kServiceName[] = "downpour-jobs";
// The service itself: it selects nothing and belongs to no job.
kube::Json MakeService(const std::string& namespace_name);
// Under which name a coordinator with this address is found through that service, ready or not. Empty: it is not.
kube::Json MakeEndpointSlice(const api::TrainingJob& job, const std::string& address);
std::string PodDisruptionBudgetName(const api::TrainingJob& job);
// Keeps voluntary disruptions away from the ps, whose loss costs more than that of a worker.
kube::Json MakePodDisruptionBudget(const api::TrainingJob& job, const planner::ProtectedPs& ps);
// The pods of one role of a job, which must outlive this: all that they have in common is made once. Thread-safe.
class PodsOfRole {
 public:
  PodsOfRole(const api::TrainingJob& job, const PodOptions& options, api::Role role);
  // The template of the role, merged into what we say of a pod (MergePodSpec). What api::CheckPodTemplates refuses is
  // not looked for here: arguments, name and labels are ours in any case. It never runs on `avoid_nodes`.
  // kInvalidArgument: "spec.worker.template: ...".
  absl::StatusOr<kube::Json> Make(int index, int incarnation, const std::vector<std::string>& avoid_nodes = {}) const;

 private:
  const api::TrainingJob& job_;
  const api::Role role_;
  const absl::StatusOr<kube::Json> common_;
};

}  // namespace downpour::controller

#endif  // DOWNPOUR_OPERATOR_CONTROLLER_OBJECTS_H_
