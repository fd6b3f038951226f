#include "trainer/cuda/kernels/gradient_block.cuh"

// The end of the check of a gradient: the sums of the blocks are added up.
namespace downpour::cuda {
namespace {

// One block of threads, so that the order depends on nothing but the number of elements.
__global__ void AddPartials(EncodeArguments a) {
  const double sum = AddUpPartials(static_cast<const double*>(a.scratch), (a.elements + kBlock - 1) / kBlock);
  if (threadIdx.x == 0) a.checks->sum_of_squares = sum;
}

}  // namespace

cudaError_t BeginChecks(const EncodeArguments& arguments, cudaStream_t stream) {
  return cudaMemsetAsync(arguments.checks, 0, sizeof(GradientChecks), stream);
}

cudaError_t FinishChecks(const EncodeArguments& arguments, cudaStream_t stream) {
  return Launch(&AddPartials, 1, 1, arguments, stream);
}

}  // namespace downpour::cuda
