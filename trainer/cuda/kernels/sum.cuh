#ifndef DOWNPOUR_TRAINER_CUDA_KERNELS_SUM_CUH_
#define DOWNPOUR_TRAINER_CUDA_KERNELS_SUM_CUH_

#include "trainer/cuda/kernels/launch.cuh"
#include "trainer/cuda/plugin_table.h"

namespace downpour::cuda {

cudaError_t AddTo(const SumArguments& arguments, cudaStream_t stream);

}  // namespace downpour::cuda

#endif  // DOWNPOUR_TRAINER_CUDA_KERNELS_SUM_CUH_
