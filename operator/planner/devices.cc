#include "operator/planner/devices.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "operator/planner/status.h"

namespace downpour::planner {
namespace {

// Reasons and events.
constexpr char kFellBack[] = "FellBackToCPU";
constexpr char kFewer[] = "FewerGPUs";

}  // namespace

void UpdateDevices(Context& context) {
  const std::string& gpus = context.observed.gpus;
  if (gpus.empty() || context.job.spec.training.device == api::Device::kCpu || IsSettled(context.status)) return;
  const CoordinatorReport* report = TrainingReport(context);
  if (report == nullptr || report->devices.empty()) return;
  const int wanted = context.observed.worker_gpus;
  const auto on_cpu = [](const WorkerDevice& worker) { return absl::StartsWith(worker.device, "cpu"); };
  const auto on_fewer = [wanted](const WorkerDevice& worker) { return worker.count < wanted; };
  // On no GPU weighs more than on fewer.
  const bool fell_back = std::any_of(report->devices.begin(), report->devices.end(), on_cpu);
  const auto lacks = [&](const WorkerDevice& worker) { return fell_back ? on_cpu(worker) : on_fewer(worker); };
  const auto first = std::find_if(report->devices.begin(), report->devices.end(), lacks);
  const std::string asked = wanted > 1 ? absl::StrCat(gpus, ", ", wanted, " GPUs each") : gpus;
  if (first == report->devices.end()) {
    context.SetCondition(kGpuInUse, true, "InUse",
                         absl::StrCat("all of ", report->devices.size(), " workers compute on ", asked));
    return;
  }
  const auto others = std::count_if(report->devices.begin(), report->devices.end(), lacks) - 1;
  const char* const reason = fell_back ? kFellBack : kFewer;
  std::string message = absl::StrCat(InstanceName(api::Role::kWorker, first->index),
                                     others > 0 ? absl::StrCat(" and ", others, " more") : "", " asked for ", asked,
                                     " and computes on: ", first->device, "; with device CUDA it would not begin");
  const api::Condition* const before = FindCondition(context.status, kGpuInUse);
  if (before == nullptr || before->status || before->reason != reason) context.Emit(true, reason, message);
  context.SetCondition(kGpuInUse, false, reason, std::move(message));
}

}  // namespace downpour::planner
