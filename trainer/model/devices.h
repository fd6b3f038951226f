#ifndef DOWNPOUR_TRAINER_MODEL_DEVICES_H_
#define DOWNPOUR_TRAINER_MODEL_DEVICES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/model/model.h"

namespace downpour::model {

// What a model computes on.
struct DevicePlan {
  DeviceChoice device = DeviceChoice::kCpu;
  int replicas = 1;    // 1, and no `suffix`: a model that is no ReplicatedModel
  std::string suffix;  // of its description: ", 2 GPUs"
};

// Of `wanted` devices, at least 1, those that there are. `count` says how many GPUs this process sees, or why none; it
// is not asked where the choice is the CPU, on which replicas are threads. kAuto takes fewer GPUs where there are not
// so many, and the CPU, as one replica, where there is none. kInvalidArgument: batches of `batch_size` samples (0: not
// known) are fewer than devices. kFailedPrecondition: kCuda, and there are not so many.
absl::StatusOr<DevicePlan> PlanDevices(DeviceChoice choice, int wanted, std::int64_t batch_size,
                                       const std::function<absl::StatusOr<int>()>& count);

// CreateModel, with a replica on each of so many devices: CUDA's first ones, or threads of the CPU, which then share
// `options.threads`, rounded down but one each at least. Errors as of both, and kUnimplemented: options.local_optimizer
// with several.
absl::StatusOr<std::unique_ptr<Model>> CreateModelOnDevices(const ModelOptions& options, int devices);

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_DEVICES_H_
