#ifndef DOWNPOUR_TRAINER_CUDA_KERNELS_OPTIMIZERS_CUH_
#define DOWNPOUR_TRAINER_CUDA_KERNELS_OPTIMIZERS_CUH_

#include <cstdint>

#include "trainer/cuda/kernels/launch.cuh"
#include "trainer/cuda/plugin_table.h"

namespace downpour::cuda {

// PluginTable::step.
cudaError_t StepTensors(const StepCoefficients& coefficients, const StepTensor* tensors, std::uint64_t count,
                        cudaStream_t stream);

}  // namespace downpour::cuda

#endif  // DOWNPOUR_TRAINER_CUDA_KERNELS_OPTIMIZERS_CUH_
