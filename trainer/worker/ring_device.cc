#include "trainer/worker/ring_device.h"

#include <utility>

#include "absl/status/statusor.h"
#include "trainer/cuda/device_vectors.h"
#include "trainer/cuda/optimizer_step.h"
#include "trainer/cuda/plugin.h"

namespace downpour::worker {
namespace {

absl::StatusOr<std::unique_ptr<cuda::DeviceKernels>> OfModel(const model::Model& model) {
  const absl::StatusOr<const cuda::PluginTable*> table = cuda::LoadPlugin(cuda::PluginPath());
  if (!table.ok()) return table.status();
  return cuda::MakePluginKernels(**table, *model.cuda_device(), model.compute_stream());
}

}  // namespace

core::MakeReplicaVectors RingDevice::make_vectors() const {
  if (!on_device) return nullptr;
  return [kernels = kernels](const v1::View& view, absl::Span<const core::Slice> slices) {
    return cuda::MakeDeviceVectors(kernels.get(), view, slices);
  };
}

absl::Status CheckOnDevice(const v1::TrainingConfig& config) {
  if (config.all_reduce().state_copies() > 0) {
    return absl::UnimplementedError("an optimizer's state that is divided (allReduce.stateCopies) lives on the host");
  }
  return cuda::OptimizerStep::Create(config.optimizer()).status();
}

RingDevice FindRingDevice(const v1::TrainingConfig& config, const model::Model& model,
                          std::shared_ptr<cuda::DeviceKernels> given) {
  RingDevice device;
  if (given != nullptr || model.cuda_device().has_value()) {
    absl::Status usable = CheckOnDevice(config);
    if (usable.ok() && given == nullptr) {
      absl::StatusOr<std::unique_ptr<cuda::DeviceKernels>> found = OfModel(model);
      usable = found.status();
      if (found.ok()) given = *std::move(found);
    }
    device.on_device = usable.ok();
    if (usable.ok()) device.kernels = std::move(given);
    if (!usable.ok()) device.why_not = std::string(usable.message());
  }
  if (device.kernels == nullptr) device.kernels = cuda::MakeHostKernels();
  return device;
}

}  // namespace downpour::worker
