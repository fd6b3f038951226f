#include "operator/planner/devices.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "operator/planner/status.h"

namespace downpour::planner {
namespace {

constexpr char kFellBack[] = "FellBackToCPU";  // reason and event

}  // namespace

void UpdateDevices(Context& context) {
  const std::string& gpus = context.observed.gpus;
  if (gpus.empty() || context.job.spec.training.device == api::Device::kCpu || IsSettled(context.status)) return;
  const CoordinatorReport* report = TrainingReport(context);
  if (report == nullptr || report->devices.empty()) return;
  const auto on_cpu = std::find_if(report->devices.begin(), report->devices.end(),
                                   [](const WorkerDevice& worker) { return absl::StartsWith(worker.device, "cpu"); });
  if (on_cpu == report->devices.end()) {
    context.SetCondition(kGpuInUse, true, "InUse",
                         absl::StrCat("all of ", report->devices.size(), " workers compute on ", gpus));
    return;
  }
  const auto others = std::count_if(on_cpu, report->devices.end(),
                                    [](const WorkerDevice& worker) { return absl::StartsWith(worker.device, "cpu"); }) -
                      1;
  std::string message = absl::StrCat(InstanceName(api::Role::kWorker, on_cpu->index),
                                     others > 0 ? absl::StrCat(" and ", others, " more") : "", " asked for ", gpus,
                                     " and computes on: ", on_cpu->device, "; with device CUDA it would not begin");
  const api::Condition* const before = FindCondition(context.status, kGpuInUse);
  if (before == nullptr || before->status) context.Emit(true, kFellBack, message);
  context.SetCondition(kGpuInUse, false, kFellBack, std::move(message));
}

}  // namespace downpour::planner
