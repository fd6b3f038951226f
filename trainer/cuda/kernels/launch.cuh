#ifndef DOWNPOUR_TRAINER_CUDA_KERNELS_LAUNCH_CUH_
#define DOWNPOUR_TRAINER_CUDA_KERNELS_LAUNCH_CUH_

#include <algorithm>
#include <cstdint>

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#else
// The same kernels on a machine without a GPU: only their arithmetic and their logic are tried there.
#include "trainer/cuda/testing/emulated_cuda.h"
#endif

namespace downpour::cuda {

// Every kernel has blocks of so many threads, and goes over what it is given in strides of the grid.
inline constexpr unsigned kThreads = 256;
inline constexpr unsigned kWarps = kThreads / 32;
// The rest is done by strides.
#if defined(__CUDACC__)
inline constexpr std::uint64_t kMostBlocks = 2048;  // more than any device runs at a time
#else
inline constexpr std::uint64_t kMostBlocks = 3;  // so that there is a rest
#endif

constexpr std::uint64_t CeilDivide(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

// Of a kernel that takes one struct. `x` blocks are wanted, at least 1; `y` is at most 65535. The error, if any, is of
// this launch or of work before it, not one that somebody else left behind.
template <typename Arguments>
cudaError_t Launch(void (*kernel)(Arguments), std::uint64_t x, unsigned y, Arguments arguments,
                   [[maybe_unused]] cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(std::min(x, kMostBlocks)), y);
#if defined(__CUDACC__)
  void* pointers[] = {&arguments};
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, dim3(kThreads), pointers, 0, stream);
#else
  return emulated::Run(grid, kThreads, [&] { kernel(arguments); });
#endif
}

}  // namespace downpour::cuda

// Leaves the function with the first error.
#define DOWNPOUR_RETURN_IF_CUDA_ERROR(call)                   \
  do {                                                        \
    const cudaError_t downpour_error = (call);                \
    if (downpour_error != cudaSuccess) return downpour_error; \
  } while (false)

#endif  // DOWNPOUR_TRAINER_CUDA_KERNELS_LAUNCH_CUH_
