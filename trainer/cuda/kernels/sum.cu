#include "trainer/cuda/kernels/sum.cuh"

// The gradient of an update of several minibatches.
namespace downpour::cuda {
namespace {

__global__ void Sum(SumArguments a) {
  const std::uint64_t stride = std::uint64_t{gridDim.x} * kThreads;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * kThreads + threadIdx.x; i < a.elements; i += stride) {
    const float part = a.weight * a.values[i];
    a.sum[i] = a.first != 0 ? part : a.sum[i] + part;
  }
}

}  // namespace

cudaError_t AddTo(const SumArguments& arguments, cudaStream_t stream) {
  if (arguments.elements == 0) return cudaSuccess;
  return Launch(&Sum, CeilDivide(arguments.elements, kThreads), 1, arguments, stream);
}

}  // namespace downpour::cuda
