#include "trainer/cuda/kernels/gradient_block.cuh"

// The end of the check of a gradient: the sums of the blocks are added up.
namespace downpour::cuda {
namespace {

// One block of threads, so that the order depends on nothing but the number of elements.
__global__ void AddPartials(EncodeArguments a) {
  __shared__ double sums[kThreads];
  const auto* const partials = static_cast<const double*>(a.scratch);
  const std::uint64_t count = (a.elements + kBlock - 1) / kBlock;
  double sum = 0;
  for (std::uint64_t block = threadIdx.x; block < count; block += kThreads) sum += partials[block];
  sums[threadIdx.x] = sum;
  for (unsigned apart = kThreads / 2; apart > 0; apart /= 2) {
    __syncthreads();
    if (threadIdx.x < apart) sums[threadIdx.x] += sums[threadIdx.x + apart];
  }
  if (threadIdx.x == 0) a.checks->sum_of_squares = sums[0];
}

}  // namespace

cudaError_t BeginChecks(const EncodeArguments& arguments, cudaStream_t stream) {
  return cudaMemsetAsync(arguments.checks, 0, sizeof(GradientChecks), stream);
}

cudaError_t FinishChecks(const EncodeArguments& arguments, cudaStream_t stream) {
  return Launch(&AddPartials, 1, 1, arguments, stream);
}

}  // namespace downpour::cuda
