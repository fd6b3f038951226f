#ifndef DOWNPOUR_TRAINER_CUDA_KERNELS_SUMS_CUH_
#define DOWNPOUR_TRAINER_CUDA_KERNELS_SUMS_CUH_

#include <cstdint>

#include "trainer/cuda/kernels/launch.cuh"
#include "trainer/cuda/plugin_table.h"

namespace downpour::cuda {

// Of PluginTable, each.
cudaError_t Accumulate(float* to, const float* from, std::uint64_t elements, float weight, int add,
                       cudaStream_t stream);
cudaError_t SumSquares(const SquaresRange* ranges, std::uint64_t count, cudaStream_t stream);
cudaError_t RoundBf16(const float* from, void* to, std::uint64_t elements, cudaStream_t stream);
cudaError_t WidenBf16(const void* from, float* to, std::uint64_t elements, cudaStream_t stream);

}  // namespace downpour::cuda

#endif  // DOWNPOUR_TRAINER_CUDA_KERNELS_SUMS_CUH_
