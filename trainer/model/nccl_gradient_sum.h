#ifndef DOWNPOUR_TRAINER_MODEL_NCCL_GRADIENT_SUM_H_
#define DOWNPOUR_TRAINER_MODEL_NCCL_GRADIENT_SUM_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/model/gradient_sum.h"
#include "trainer/model/model.h"

namespace downpour::model {

// A DeviceGradientSum over CUDA's first devices, by NCCL, with a replica on each. An error says why there can be none:
// the kernels for GPUs or NCCL cannot be loaded, the devices do not meet.
absl::StatusOr<std::unique_ptr<GradientSum>> NewNcclGradientSum(const std::vector<Tensor>& tensors, int devices);

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_NCCL_GRADIENT_SUM_H_
