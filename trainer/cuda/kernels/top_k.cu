#include "trainer/cuda/kernels/gradient_block.cuh"

// As trainer/core/codec/top_k.h: for each of the values with the largest magnitudes its index and the value itself, by
// rising index; of equal magnitudes the first.
//
// The smallest magnitude that is kept is found exactly, by its bits: a histogram of the upper 11 bits says in which
// of 2048 bins it is, a second one of the next 10 bits of the values in that bin says more, a third one the rest. Then
// the values above it, and those equal to it, are counted in each block of 256, which says where each is written. So
// the gradient is read five times; no more memory is needed than a few numbers for each block.
namespace downpour::cuda {
namespace {

struct Digit {
  unsigned shift, bits;
};
__device__ constexpr Digit DigitOf(unsigned pass) {
  return pass == 0 ? Digit{20, 11} : pass == 1 ? Digit{10, 10} : Digit{0, 10};
}
constexpr unsigned kMostBins = 2048;

struct Selection {
  std::uint32_t threshold;  // the digits that are known, 0 behind them; in the end, the least magnitude that is kept
  std::uint32_t left;       // how many are kept of those whose known digits are the threshold's
};

struct Scratch {
  double* partials;
  std::uint32_t* histograms;  // kMostBins for each pass; zero at first
  Selection* selection;
  // Of each block: how many values are above the threshold, and equal to it; then, of all blocks before it.
  std::uint32_t* above;
  std::uint32_t* equal;
};

__host__ __device__ inline Scratch ScratchOf(void* memory, std::uint64_t elements) {
  const std::uint64_t blocks = (elements + kBlock - 1) / kBlock;
  Scratch scratch;
  scratch.partials = static_cast<double*>(memory);
  scratch.selection = reinterpret_cast<Selection*>(scratch.partials + blocks);
  scratch.histograms = reinterpret_cast<std::uint32_t*>(scratch.selection + 1);
  scratch.above = scratch.histograms + 3 * kMostBins;
  scratch.equal = scratch.above + blocks;
  return scratch;
}

__global__ void BeginSelection(EncodeArguments a) {
  if (threadIdx.x == 0) *ScratchOf(a.scratch, a.elements).selection = {0, static_cast<std::uint32_t>(a.kept)};
}

template <unsigned kPass>
__global__ void Count(EncodeArguments a) {
  constexpr Digit kDigit = DigitOf(kPass);
  constexpr unsigned kBins = 1u << kDigit.bits;
  __shared__ unsigned bins[kBins];
  const Scratch scratch = ScratchOf(a.scratch, a.elements);
  const std::uint32_t known = scratch.selection->threshold >> (kDigit.shift + kDigit.bits);
  for (unsigned bin = threadIdx.x; bin < kBins; bin += kThreads) bins[bin] = 0;
  __syncthreads();
  const std::uint64_t blocks = (a.elements + kBlock - 1) / kBlock;
  for (std::uint64_t block = FirstBlock(); block < blocks; block += BlockStride()) {
    float sums[kPerLane];
    if constexpr (kPass == 0) {
      LoadAndCheck(a, block, sums);
    } else {
      LoadSums(a, block, sums);
    }
#pragma unroll
    for (unsigned i = 0; i < kPerLane; ++i) {
      const std::uint32_t magnitude = MagnitudeOf(sums[i]);
      if (IndexOf(block, i) >= a.elements || magnitude >> (kDigit.shift + kDigit.bits) != known) continue;
      atomicAdd(&bins[(magnitude >> kDigit.shift) % kBins], 1u);
    }
  }
  __syncthreads();
  for (unsigned bin = threadIdx.x; bin < kBins; bin += kThreads) {
    if (bins[bin] != 0) atomicAdd(&scratch.histograms[kPass * kMostBins + bin], bins[bin]);
  }
}

// One block of threads.
template <unsigned kPass>
__global__ void Choose(EncodeArguments a) {
  constexpr Digit kDigit = DigitOf(kPass);
  constexpr unsigned kOfThread = (1u << kDigit.bits) / kThreads;
  __shared__ std::uint32_t sums[kThreads];
  const Scratch scratch = ScratchOf(a.scratch, a.elements);
  const std::uint32_t* const bins = scratch.histograms + kPass * kMostBins;
  std::uint32_t sum = 0;
  for (unsigned i = 0; i < kOfThread; ++i) sum += bins[threadIdx.x * kOfThread + i];
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  // From the largest magnitudes down, past what is kept without question.
  std::uint32_t left = scratch.selection->left;
  unsigned thread = kThreads - 1;
  for (; thread > 0 && sums[thread] < left; --thread) left -= sums[thread];
  unsigned bin = thread * kOfThread + kOfThread - 1;
  for (; bin > thread * kOfThread && bins[bin] < left; --bin) left -= bins[bin];
  scratch.selection->left = left;
  scratch.selection->threshold |= bin << kDigit.shift;
}

__global__ void CountInBlocks(EncodeArguments a) {
  const Scratch scratch = ScratchOf(a.scratch, a.elements);
  const std::uint32_t threshold = scratch.selection->threshold;
  const std::uint64_t blocks = (a.elements + kBlock - 1) / kBlock;
  for (std::uint64_t block = FirstBlock(); block < blocks; block += BlockStride()) {
    float sums[kPerLane];
    LoadSums(a, block, sums);
    unsigned above = 0, equal = 0;
    for (unsigned i = 0; i < kPerLane; ++i) {
      const bool there = IndexOf(block, i) < a.elements;
      const std::uint32_t magnitude = MagnitudeOf(sums[i]);
      above += __popc(__ballot_sync(kAllLanes, there && magnitude > threshold));
      equal += __popc(__ballot_sync(kAllLanes, there && magnitude == threshold));
    }
    if (Lane() == 0) {
      scratch.above[block] = above;
      scratch.equal[block] = equal;
    }
  }
}

// One block of threads: from the counts of blocks to those of all blocks before each.
__global__ void AddUpBlocks(EncodeArguments a) {
  __shared__ std::uint32_t above[kThreads];
  __shared__ std::uint32_t equal[kThreads];
  const Scratch scratch = ScratchOf(a.scratch, a.elements);
  const std::uint64_t blocks = (a.elements + kBlock - 1) / kBlock;
  const std::uint64_t of_thread = (blocks + kThreads - 1) / kThreads;
  const std::uint64_t begin = threadIdx.x * of_thread < blocks ? threadIdx.x * of_thread : blocks;
  const std::uint64_t end = begin + of_thread < blocks ? begin + of_thread : blocks;
  std::uint32_t sum_above = 0, sum_equal = 0;
  for (std::uint64_t block = begin; block < end; ++block) {
    sum_above += scratch.above[block];
    sum_equal += scratch.equal[block];
  }
  above[threadIdx.x] = sum_above;
  equal[threadIdx.x] = sum_equal;
  __syncthreads();
  if (threadIdx.x == 0) {
    std::uint32_t before_above = 0, before_equal = 0;
    for (unsigned thread = 0; thread < kThreads; ++thread) {
      const std::uint32_t of_above = above[thread], of_equal = equal[thread];
      above[thread] = before_above;
      equal[thread] = before_equal;
      before_above += of_above;
      before_equal += of_equal;
    }
  }
  __syncthreads();
  std::uint32_t before_above = above[threadIdx.x], before_equal = equal[threadIdx.x];
  for (std::uint64_t block = begin; block < end; ++block) {
    const std::uint32_t of_above = scratch.above[block], of_equal = scratch.equal[block];
    scratch.above[block] = before_above;
    scratch.equal[block] = before_equal;
    before_above += of_above;
    before_equal += of_equal;
  }
}

__global__ void WritePairs(EncodeArguments a) {
  const Scratch scratch = ScratchOf(a.scratch, a.elements);
  const std::uint32_t threshold = scratch.selection->threshold;
  const std::uint32_t equal_kept = scratch.selection->left;
  auto* const out = reinterpret_cast<std::uint32_t*>(a.bytes);
  const unsigned lanes_before = (1u << Lane()) - 1;
  const std::uint64_t blocks = (a.elements + kBlock - 1) / kBlock;
  for (std::uint64_t block = FirstBlock(); block < blocks; block += BlockStride()) {
    float sums[kPerLane];
    LoadSums(a, block, sums);
    std::uint32_t above_before = scratch.above[block], equal_before = scratch.equal[block];
    for (unsigned i = 0; i < kPerLane; ++i) {
      const std::uint64_t index = IndexOf(block, i);
      const bool there = index < a.elements;
      const std::uint32_t magnitude = MagnitudeOf(sums[i]);
      const unsigned above = __ballot_sync(kAllLanes, there && magnitude > threshold);
      const unsigned equal = __ballot_sync(kAllLanes, there && magnitude == threshold);
      const std::uint32_t above_rank = above_before + __popc(above & lanes_before);
      const std::uint32_t equal_rank = equal_before + __popc(equal & lanes_before);
      above_before += __popc(above);
      equal_before += __popc(equal);
      if (!there) continue;
      const bool kept = magnitude > threshold || (magnitude == threshold && equal_rank < equal_kept);
      if (kept) {
        const std::uint64_t pair = std::uint64_t{above_rank} + (equal_rank < equal_kept ? equal_rank : equal_kept);
        out[2 * pair] = static_cast<std::uint32_t>(index);
        out[2 * pair + 1] = BitsOf(sums[i]);
      }
      if (a.next != nullptr) a.next[index] = kept ? 0.0f : sums[i];
    }
  }
}

template <unsigned kPass>
cudaError_t ChooseDigit(const EncodeArguments& a, std::uint64_t grid, cudaStream_t stream) {
  DOWNPOUR_RETURN_IF_CUDA_ERROR(Launch(&Count<kPass>, grid, 1, a, stream));
  return Launch(&Choose<kPass>, 1, 1, a, stream);
}

}  // namespace

// Of ScratchOf.
std::uint64_t TopKScratch(std::uint64_t elements) {
  const std::uint64_t of_block = sizeof(double) + 2 * sizeof(std::uint32_t);
  return BlocksOf(elements) * of_block + sizeof(Selection) + 3 * kMostBins * sizeof(std::uint32_t);
}

cudaError_t EncodeTopK(const EncodeArguments& a, cudaStream_t stream) {
  DOWNPOUR_RETURN_IF_CUDA_ERROR(BeginChecks(a, stream));
  if (a.elements == 0) return cudaSuccess;
  const Scratch scratch = ScratchOf(a.scratch, a.elements);
  const std::uint64_t grid = CeilDivide(BlocksOf(a.elements), kWarps);
  DOWNPOUR_RETURN_IF_CUDA_ERROR(cudaMemsetAsync(scratch.histograms, 0, 3 * kMostBins * sizeof(std::uint32_t), stream));
  DOWNPOUR_RETURN_IF_CUDA_ERROR(Launch(&BeginSelection, 1, 1, a, stream));
  DOWNPOUR_RETURN_IF_CUDA_ERROR(ChooseDigit<0>(a, grid, stream));
  DOWNPOUR_RETURN_IF_CUDA_ERROR(ChooseDigit<1>(a, grid, stream));
  DOWNPOUR_RETURN_IF_CUDA_ERROR(ChooseDigit<2>(a, grid, stream));
  DOWNPOUR_RETURN_IF_CUDA_ERROR(FinishChecks(a, stream));
  DOWNPOUR_RETURN_IF_CUDA_ERROR(Launch(&CountInBlocks, grid, 1, a, stream));
  DOWNPOUR_RETURN_IF_CUDA_ERROR(Launch(&AddUpBlocks, 1, 1, a, stream));
  return Launch(&WritePairs, grid, 1, a, stream);
}

}  // namespace downpour::cuda
