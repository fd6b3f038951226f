#include "trainer/cuda/kernels/gradient_block.cuh"

// As trainer/core/codec/one_bit.h: each block of 256 values is two float32, the mean of the negative values and that of
// the others, and then a bit for each value.
//
// The means are of sums that are added up in the order of the values, as on the CPU, so each is the work of one thread.
// A block of threads takes 32 blocks at a time through its shared memory, and has 64 such sums side by side.
namespace downpour::cuda {
namespace {

constexpr unsigned kTile = 32;  // blocks
constexpr std::uint64_t kBlockBytes = 2 * sizeof(float) + kBlock / 8;

__global__ void OneBit(EncodeArguments a) {
  // Padded, so that the threads that each go along a block are never at the same bank.
  __shared__ float values[kTile][kBlock + 1];
  __shared__ float means[2][kTile];
  const std::uint64_t blocks = (a.elements + kBlock - 1) / kBlock;
  for (std::uint64_t first = std::uint64_t{blockIdx.x} * kTile; first < blocks;
       first += std::uint64_t{gridDim.x} * kTile) {
    const auto here = static_cast<unsigned>(blocks - first < kTile ? blocks - first : kTile);
    for (unsigned block = Warp(); block < here; block += kWarps) {
      float sums[kPerLane];
      LoadAndCheck(a, first + block, sums);
#pragma unroll
      for (unsigned i = 0; i < kPerLane; ++i) values[block][i * 32 + Lane()] = sums[i];
    }
    __syncthreads();

    const unsigned block_of_sum = threadIdx.x % kTile;
    if (threadIdx.x < 2 * kTile && block_of_sum < here) {
      const bool not_negative = threadIdx.x >= kTile;
      const std::uint64_t left = a.elements - (first + block_of_sum) * kBlock;
      const auto count = static_cast<unsigned>(left < kBlock ? left : kBlock);
      double sum = 0;
      unsigned summands = 0;
      for (unsigned i = 0; i < count; ++i) {
        const float value = values[block_of_sum][i];
        const bool counts = (value >= 0) == not_negative;
        sum += counts ? double{value} : 0.0;  // which changes nothing: a sum that begins with 0 is never -0
        summands += counts ? 1 : 0;
      }
      auto mean = static_cast<float>(sum / static_cast<double>(summands == 0 ? 1 : summands));
      if (!IsFinite(mean)) mean = 0;
      means[not_negative ? 1 : 0][block_of_sum] = mean;
      float* const out = reinterpret_cast<float*>(a.bytes + (first + block_of_sum) * kBlockBytes);
      out[not_negative ? 1 : 0] = mean;
    }
    __syncthreads();

    for (unsigned block = Warp(); block < here; block += kWarps) {
      std::uint8_t* const bits = a.bytes + (first + block) * kBlockBytes + 2 * sizeof(float);
      const std::uint64_t left = a.elements - (first + block) * kBlock;
      const unsigned bytes = ((left < kBlock ? static_cast<unsigned>(left) : kBlock) + 7) / 8;
      for (unsigned i = 0; i < kPerLane; ++i) {
        const std::uint64_t index = IndexOf(first + block, i);
        const float value = values[block][i * 32 + Lane()];
        const bool bit = index < a.elements && value >= 0;
        const unsigned word = __ballot_sync(kAllLanes, bit);
        const unsigned byte = i * 4 + Lane();
        if (Lane() < 4 && byte < bytes) bits[byte] = static_cast<std::uint8_t>(word >> (8 * Lane()));
        if (a.next != nullptr && index < a.elements) a.next[index] = value - means[bit ? 1 : 0][block];
      }
    }
    // The next values are written by the warp that has read these; the next means, after all have waited again.
  }
}

}  // namespace

cudaError_t EncodeOneBit(const EncodeArguments& arguments, cudaStream_t stream) {
  DOWNPOUR_RETURN_IF_CUDA_ERROR(BeginChecks(arguments, stream));
  if (arguments.elements == 0) return cudaSuccess;
  const std::uint64_t tiles = CeilDivide(BlocksOf(arguments.elements), kTile);
  DOWNPOUR_RETURN_IF_CUDA_ERROR(Launch(&OneBit, tiles, 1, arguments, stream));
  return FinishChecks(arguments, stream);
}

}  // namespace downpour::cuda
