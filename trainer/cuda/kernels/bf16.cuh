#ifndef DOWNPOUR_TRAINER_CUDA_KERNELS_BF16_CUH_
#define DOWNPOUR_TRAINER_CUDA_KERNELS_BF16_CUH_

#include <cstdint>

#include "trainer/cuda/kernels/launch.cuh"

namespace downpour::cuda {

// As PluginTable::round_bf16 and widen_bf16.
cudaError_t RoundBf16(const float* from, std::uint16_t* to, std::uint64_t elements, cudaStream_t stream);
cudaError_t WidenBf16(const std::uint16_t* from, float* to, std::uint64_t elements, cudaStream_t stream);

}  // namespace downpour::cuda

#endif  // DOWNPOUR_TRAINER_CUDA_KERNELS_BF16_CUH_
