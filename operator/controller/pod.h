#ifndef DOWNPOUR_OPERATOR_CONTROLLER_POD_H_
#define DOWNPOUR_OPERATOR_CONTROLLER_POD_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "operator/api/pod_template.h"
#include "operator/api/training_job.h"
#include "operator/kube/object.h"
#include "operator/kube/protobuf_object.h"
#include "operator/planner/plan.h"

namespace downpour::controller {

// Labels of every object that belongs to a job.
using api::kManagedByLabel;
inline constexpr char kManagedByValue[] = "downpour-operator";
inline constexpr char kJobNameLabel[] = "training.downpour.dev/job-name";
inline constexpr char kJobUidLabel[] = "training.downpour.dev/job-uid";
inline constexpr char kRoleLabel[] = "training.downpour.dev/role";  // coordinator, ps, worker
inline constexpr char kIndexLabel[] = "training.downpour.dev/index";
inline constexpr char kIncarnationLabel[] = "training.downpour.dev/incarnation";

using api::kContainerName;

struct PodCondition {
  std::string type;
  std::string status;  // "True", "False", "Unknown"
  std::string reason;
  std::string message;
  friend bool operator==(const PodCondition&, const PodCondition&) = default;
};

// What the operator keeps of a pod.
struct Pod {
  kube::ObjectMeta meta;  // without annotations and labels: there are many pods
  std::string job_name;
  api::Role role = api::Role::kWorker;
  int index = 0;
  int incarnation = 1;
  std::string phase;  // Pending, Running, Succeeded, Failed, Unknown
  std::string node;
  std::string address;  // IP; empty: none yet
  std::string reason;   // of the pod: Evicted, NodeLost, ...
  std::string message;
  std::vector<PodCondition>
      conditions;  // Ready if it is so, PodScheduled if not, DisruptionTarget; all of one that failed
  // Of the container whose state says why the pod failed or does not start; where none does, of kContainerName.
  std::string container;  // "init container fetch"; empty: kContainerName
  std::optional<int> exit_code;
  std::string container_reason;   // OOMKilled, Error, ...; of one that waits: ImagePullBackOff, ...
  std::string container_message;  // its last words: the end of its log if it failed
  std::optional<double> finished_time;
  bool waiting = false;
  std::optional<double> started_time;           // of kContainerName, while it runs
  std::vector<std::string> running_containers;  // ours and others
  friend bool operator==(const Pod&, const Pod&) = default;
};

// As the cache holds them.
using PodPointer = std::shared_ptr<const Pod>;
using Pods = std::vector<PodPointer>;

// What DecodePod reads.
kube::ProtobufFields PodFields();

// Nothing for a pod that lacks a label of ours or carries one that makes no sense. Nothing is taken from `before`.
std::optional<Pod> DecodePod(const kube::Json& object, const Pod* before = nullptr);

// Failed or succeeded: it will never run again.
bool HasEnded(const Pod& pod);

// How the planner sees it; `ready`: the coordinator counts it as a member.
planner::Instance ToInstance(const Pod& pod, bool ready);

// Why a pod that is pending is so, for people: "Unschedulable: 0/1 nodes ...", "ImagePullBackOff: ...",
// "ImagePullBackOff: init container fetch: ..." if it is not ours that waits. Empty: no word.
std::string WaitingReason(const Pod& pod);

}  // namespace downpour::controller

#endif  // DOWNPOUR_OPERATOR_CONTROLLER_POD_H_
