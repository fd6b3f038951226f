#include "trainer/cuda/kernels/squares.cuh"

#include <algorithm>

#include "trainer/cuda/kernels/gradient_block.cuh"

// Of gradients that lie in many places.
namespace downpour::cuda {
namespace {

// Many ranges in one launch: those of the blocks with the same y are one range's.
constexpr unsigned kRanges = 64;
struct Ranges {
  SquaresRange ranges[kRanges];
};
static_assert(sizeof(Ranges) <= 4096);

// A warp for each 256 values.
__global__ void SumBlocks(Ranges all) {
  const SquaresRange& range = all.ranges[blockIdx.y];
  const std::uint64_t blocks = (range.elements + kBlock - 1) / kBlock;
  for (std::uint64_t block = FirstBlock(); block < blocks; block += BlockStride()) {
    double squares = 0;
#pragma unroll
    for (unsigned i = 0; i < kPerLane; ++i) {
      const std::uint64_t index = IndexOf(block, i);
      const float value = index < range.elements ? range.values[index] : 0.0f;
      squares += double{value} * double{value};
    }
    squares = AddLanes(squares);
    if (Lane() == 0) range.partials[block] = squares;
  }
}

// A block of threads for each range.
__global__ void SumPartials(Ranges all) {
  const SquaresRange& range = all.ranges[blockIdx.y];
  const double sum = AddUpPartials(range.partials, (range.elements + kBlock - 1) / kBlock);
  if (threadIdx.x == 0) *range.sum = sum;
}

}  // namespace

cudaError_t SumSquares(const SquaresRange* ranges, std::uint64_t count, cudaStream_t stream) {
  for (std::uint64_t at = 0; at < count; at += kRanges) {
    const auto some = static_cast<unsigned>(std::min<std::uint64_t>(count - at, kRanges));
    Ranges arguments{};
    std::copy_n(ranges + at, some, arguments.ranges);
    std::uint64_t most = 0;
    for (unsigned i = 0; i < some; ++i) most = std::max(most, BlocksOf(ranges[at + i].elements));
    if (most != 0) {
      DOWNPOUR_RETURN_IF_CUDA_ERROR(Launch(&SumBlocks, CeilDivide(most, kWarps), some, arguments, stream));
    }
    DOWNPOUR_RETURN_IF_CUDA_ERROR(Launch(&SumPartials, 1, some, arguments, stream));
  }
  return cudaSuccess;
}

}  // namespace downpour::cuda
