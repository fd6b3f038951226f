#ifndef DOWNPOUR_TRAINER_CUDA_KERNELS_ROUNDING_CUH_
#define DOWNPOUR_TRAINER_CUDA_KERNELS_ROUNDING_CUH_

#include <cstdint>

#include "trainer/cuda/kernels/launch.cuh"

namespace downpour::cuda {

// Of PluginTable, in bf16.cu.
cudaError_t RoundBf16(const float* from, void* to, std::uint64_t elements, cudaStream_t stream);
cudaError_t WidenBf16(const void* from, float* to, std::uint64_t elements, cudaStream_t stream);

}  // namespace downpour::cuda

#endif  // DOWNPOUR_TRAINER_CUDA_KERNELS_ROUNDING_CUH_
