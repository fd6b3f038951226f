#ifndef DOWNPOUR_TRAINER_CUDA_KERNELS_SQUARES_CUH_
#define DOWNPOUR_TRAINER_CUDA_KERNELS_SQUARES_CUH_

#include <cstdint>

#include "trainer/cuda/kernels/launch.cuh"
#include "trainer/cuda/plugin_table.h"

namespace downpour::cuda {

// PluginTable::sum_squares.
cudaError_t SumSquares(const SquaresRange* ranges, std::uint64_t count, cudaStream_t stream);

}  // namespace downpour::cuda

#endif  // DOWNPOUR_TRAINER_CUDA_KERNELS_SQUARES_CUH_
