#include "trainer/cuda/kernels/gradient_block.cuh"
#include "trainer/cuda/kernels/rounding.cuh"

// As trainer/core/codec/bf16.h: the upper half, rounded to nearest, ties to even; what is finite stays finite.
namespace downpour::cuda {
namespace {

constexpr std::uint32_t kInfinity = 0x7f800000;
constexpr std::uint32_t kLargest = 0x7f7f;  // of the finite bf16
constexpr std::uint32_t kQuiet = 0x0040;

__device__ inline std::uint32_t HalfOf(std::uint32_t bits) {
  const std::uint32_t magnitude = bits & 0x7fffffff;
  std::uint32_t half;
  if (magnitude < kInfinity) {
    half = (magnitude + 0x7fff + ((magnitude >> 16) & 1)) >> 16;
    if (half > kLargest) half = kLargest;
  } else {
    half = magnitude >> 16;
    // A NaN whose payload is in the lower half would become an infinity.
    if (magnitude > kInfinity) half |= kQuiet;
  }
  return half | ((bits >> 16) & 0x8000);
}

__global__ void Bf16(EncodeArguments a) {
  auto* const out = reinterpret_cast<std::uint16_t*>(a.bytes);
  const std::uint64_t blocks = (a.elements + kBlock - 1) / kBlock;
  for (std::uint64_t block = FirstBlock(); block < blocks; block += BlockStride()) {
    float sums[kPerLane];
    LoadAndCheck(a, block, sums);
#pragma unroll
    for (unsigned i = 0; i < kPerLane; ++i) {
      const std::uint64_t index = IndexOf(block, i);
      if (index >= a.elements) continue;
      const std::uint32_t half = HalfOf(BitsOf(sums[i]));
      out[index] = static_cast<std::uint16_t>(half);
      if (a.next != nullptr) a.next[index] = sums[i] - FloatOf(half << 16);
    }
  }
}

struct RoundArguments {
  const float* from;
  std::uint16_t* to;
  std::uint64_t elements;
};

__global__ void Round(RoundArguments a) {
  const std::uint64_t stride = std::uint64_t{gridDim.x} * kThreads;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * kThreads + threadIdx.x; i < a.elements; i += stride) {
    a.to[i] = static_cast<std::uint16_t>(HalfOf(BitsOf(a.from[i])));
  }
}

struct WidenArguments {
  const std::uint16_t* from;
  float* to;
  std::uint64_t elements;
};

__global__ void Widen(WidenArguments a) {
  const std::uint64_t stride = std::uint64_t{gridDim.x} * kThreads;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * kThreads + threadIdx.x; i < a.elements; i += stride) {
    a.to[i] = FloatOf(std::uint32_t{a.from[i]} << 16);
  }
}

}  // namespace

cudaError_t RoundBf16(const float* from, void* to, std::uint64_t elements, cudaStream_t stream) {
  if (elements == 0) return cudaSuccess;
  const RoundArguments arguments{from, static_cast<std::uint16_t*>(to), elements};
  return Launch(&Round, CeilDivide(elements, kThreads), 1, arguments, stream);
}

cudaError_t WidenBf16(const void* from, float* to, std::uint64_t elements, cudaStream_t stream) {
  if (elements == 0) return cudaSuccess;
  const WidenArguments arguments{static_cast<const std::uint16_t*>(from), to, elements};
  return Launch(&Widen, CeilDivide(elements, kThreads), 1, arguments, stream);
}

cudaError_t EncodeBf16(const EncodeArguments& arguments, cudaStream_t stream) {
  return EncodeWith(&Bf16, arguments, stream);
}

}  // namespace downpour::cuda
