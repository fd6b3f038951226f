#ifndef DOWNPOUR_OPERATOR_API_POD_TEMPLATE_H_
#define DOWNPOUR_OPERATOR_API_POD_TEMPLATE_H_

#include <string>
#include <string_view>
#include <vector>

#include "operator/api/manifest.h"
#include "operator/api/training_job.h"

// What of a pod the operator decides, and what of it a template may say. Pure functions.
namespace downpour::api {

// The container that runs Downpour; a template may have others beside it.
inline constexpr char kContainerName[] = "trainer";
// Variables of that container.
inline constexpr char kConfigVariable[] = "DOWNPOUR_CONFIG";
inline constexpr char kAddressVariable[] = "POD_IP";
inline constexpr char kNodeVariable[] = "DOWNPOUR_NODE";
// Its ports, and their names.
// Of the coordinator; control and data of a ps; of a worker of all-reduce what those take that come.
inline constexpr int kControlPort = 7070;
inline constexpr char kControlPortName[] = "grpc";
inline constexpr int kRingPort = 7071;  // where the workers of all-reduce meet
inline constexpr char kRingPortName[] = "ring";
inline constexpr int kMetricsPort = 8080;
inline constexpr char kMetricsPortName[] = "metrics";
// Volumes that are added where a template mounts nothing at their place. One that a template declares under such a name
// is taken instead.
inline constexpr char kTemporaryVolume[] = "downpour-tmp";
inline constexpr char kOutputVolume[] = "downpour-output";

// Labels of every object of a job begin with the first, but for the second.
inline constexpr char kLabelPrefix[] = "training.downpour.dev/";
inline constexpr char kManagedByLabel[] = "app.kubernetes.io/managed-by";

// "spec.worker.template".
const char* TemplatePath(Role role);
// The template of a role as JSON; "": none.
const std::string& PodTemplate(const TrainingJobSpec& spec, Role role);

// "/output/" and "//output/." are "/output". One without a slash at the beginning is taken from the root, as a node
// does.
std::string CleanMountPath(std::string_view path);

// On so many GPUs each worker computes on a cluster: spec.worker.gpus. Absent: the limit of nvidia.com/gpu of the
// container that runs Downpour, as far as CheckRelations would accept it, or 1. A part of a GPU does not count: CUDA
// gives a process one of them.
int WorkerGpus(const TrainingJobSpec& spec);

// What the templates of a job say and may not, by path: what the operator sets itself, what contradicts that, and
// containers of which none is Downpour's. What else is wrong with them the platform says.
std::vector<FieldError> CheckPodTemplates(const TrainingJobSpec& spec);

}  // namespace downpour::api

#endif  // DOWNPOUR_OPERATOR_API_POD_TEMPLATE_H_
