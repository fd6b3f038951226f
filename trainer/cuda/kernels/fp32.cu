#include "trainer/cuda/kernels/gradient_block.cuh"

// The values themselves: what goes out at the end, when nothing may be left over.
namespace downpour::cuda {
namespace {

__global__ void Fp32(EncodeArguments a) {
  auto* const out = reinterpret_cast<float*>(a.bytes);
  const std::uint64_t blocks = (a.elements + kBlock - 1) / kBlock;
  for (std::uint64_t block = FirstBlock(); block < blocks; block += BlockStride()) {
    float sums[kPerLane];
    LoadAndCheck(a, block, sums);
#pragma unroll
    for (unsigned i = 0; i < kPerLane; ++i) {
      const std::uint64_t index = IndexOf(block, i);
      if (index >= a.elements) continue;
      out[index] = sums[i];
      if (a.next != nullptr) a.next[index] = 0;
    }
  }
}

}  // namespace

cudaError_t EncodeFp32(const EncodeArguments& arguments, cudaStream_t stream) {
  return EncodeWith(&Fp32, arguments, stream);
}

}  // namespace downpour::cuda
