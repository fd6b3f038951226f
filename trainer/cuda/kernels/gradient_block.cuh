#ifndef DOWNPOUR_TRAINER_CUDA_KERNELS_GRADIENT_BLOCK_CUH_
#define DOWNPOUR_TRAINER_CUDA_KERNELS_GRADIENT_BLOCK_CUH_

#include <cmath>
#include <cstdint>
#include <cstring>

#include "trainer/cuda/kernels/launch.cuh"
#include "trainer/cuda/plugin_table.h"

// What the codecs have in common: a gradient is gone through in blocks of 256 values, each by one warp, whose lane l
// has the values l, l + 32, ... l + 224: neighbouring lanes read neighbouring memory.
namespace downpour::cuda {

inline constexpr unsigned kBlock = 256;            // values
inline constexpr unsigned kPerLane = kBlock / 32;  // values
inline constexpr unsigned kAllLanes = 0xffffffff;

inline std::uint64_t BlocksOf(std::uint64_t elements) { return CeilDivide(elements, kBlock); }

// The scratch of every codec begins with the sum of squares of each block.
inline std::uint64_t PartialsBytes(std::uint64_t elements) { return BlocksOf(elements) * sizeof(double); }

__device__ inline std::uint32_t BitsOf(float value) {
  std::uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}
__device__ inline float FloatOf(std::uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}
__device__ inline std::uint32_t MagnitudeOf(float value) { return BitsOf(value) & 0x7fffffff; }
__device__ inline bool IsFinite(float value) { return MagnitudeOf(value) < 0x7f800000; }

// Of this thread.
__device__ inline unsigned Lane() { return threadIdx.x % 32; }
__device__ inline unsigned Warp() { return threadIdx.x / 32; }
__device__ inline std::uint64_t FirstBlock() { return std::uint64_t{blockIdx.x} * kWarps + Warp(); }
__device__ inline std::uint64_t BlockStride() { return std::uint64_t{gridDim.x} * kWarps; }
// Of the block `block`, the value `i` of this lane.
__device__ inline std::uint64_t IndexOf(std::uint64_t block, unsigned i) { return block * kBlock + i * 32 + Lane(); }

// Of one value of each lane, in the order of GradientChecks. By all lanes of a warp together.
__device__ inline double AddLanes(double squares) {
  for (unsigned apart = 16; apart > 0; apart /= 2) squares += __shfl_xor_sync(kAllLanes, squares, apart);
  return squares;
}

// The sums of blocks, in the order of GradientChecks. By all threads of one block of threads together; what thread 0
// returns counts.
__device__ inline double AddUpPartials(const double* partials, std::uint64_t count) {
  __shared__ double sums[kThreads];
  double sum = 0;
  for (std::uint64_t block = threadIdx.x; block < count; block += kThreads) sum += partials[block];
  sums[threadIdx.x] = sum;
  for (unsigned apart = kThreads / 2; apart > 0; apart /= 2) {
    __syncthreads();
    if (threadIdx.x < apart) sums[threadIdx.x] += sums[threadIdx.x + apart];
  }
  return sums[0];
}

// What is encoded: gradient + residual; 0 behind the last value.
__device__ inline void LoadSums(const EncodeArguments& a, std::uint64_t block, float (&sums)[kPerLane]) {
#pragma unroll
  for (unsigned i = 0; i < kPerLane; ++i) {
    const std::uint64_t index = IndexOf(block, i);
    sums[i] = index < a.elements ? a.gradient[index] : 0.0f;
    if (a.residual != nullptr && index < a.elements) sums[i] += a.residual[index];
  }
}

// The same, and says what there is to say of the gradient: the block's sum of squares goes to the scratch, values that
// are not finite are counted. By all lanes of a warp together.
__device__ inline void LoadAndCheck(const EncodeArguments& a, std::uint64_t block, float (&sums)[kPerLane]) {
  double squares = 0;
  unsigned not_finite = 0;
#pragma unroll
  for (unsigned i = 0; i < kPerLane; ++i) {
    const std::uint64_t index = IndexOf(block, i);
    const float gradient = index < a.elements ? a.gradient[index] : 0.0f;
    squares += double{gradient} * double{gradient};
    if (!IsFinite(gradient)) ++not_finite;
    sums[i] = gradient;
    if (a.residual != nullptr && index < a.elements) sums[i] += a.residual[index];
  }
  squares = AddLanes(squares);
  if (Lane() == 0) static_cast<double*>(a.scratch)[block] = squares;
  // Integers add up to the same in any order.
  if (not_finite != 0) atomicAdd(&a.checks->not_finite, std::uint64_t{not_finite});
}

// Around the kernels that call LoadAndCheck for every block.
cudaError_t BeginChecks(const EncodeArguments& arguments, cudaStream_t stream);
cudaError_t FinishChecks(const EncodeArguments& arguments, cudaStream_t stream);

// For codecs of one kernel, with a warp a block.
inline cudaError_t EncodeWith(void (*kernel)(EncodeArguments), const EncodeArguments& arguments, cudaStream_t stream) {
  DOWNPOUR_RETURN_IF_CUDA_ERROR(BeginChecks(arguments, stream));
  if (arguments.elements == 0) return cudaSuccess;
  const std::uint64_t blocks = CeilDivide(BlocksOf(arguments.elements), kWarps);
  DOWNPOUR_RETURN_IF_CUDA_ERROR(Launch(kernel, blocks, 1, arguments, stream));
  return FinishChecks(arguments, stream);
}

// The codecs, each in a file of its name.
cudaError_t EncodeFp32(const EncodeArguments& arguments, cudaStream_t stream);
cudaError_t EncodeBf16(const EncodeArguments& arguments, cudaStream_t stream);
cudaError_t EncodeInt8(const EncodeArguments& arguments, cudaStream_t stream);
cudaError_t EncodeOneBit(const EncodeArguments& arguments, cudaStream_t stream);
cudaError_t EncodeTopK(const EncodeArguments& arguments, cudaStream_t stream);
std::uint64_t TopKScratch(std::uint64_t elements);

}  // namespace downpour::cuda

#endif  // DOWNPOUR_TRAINER_CUDA_KERNELS_GRADIENT_BLOCK_CUH_
