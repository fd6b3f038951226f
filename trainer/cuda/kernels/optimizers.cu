#include <algorithm>

#include "trainer/cuda/kernels/optimizers.cuh"
#include "trainer/cuda/optimizer_rules.h"

// Many tensors in one launch: those of the blocks with the same y are one tensor's.
namespace downpour::cuda {
namespace {

// As many as fit into the arguments of a kernel, of which there are 4 KiB at most.
constexpr unsigned kTensors = 64;
struct Tensors {
  StepCoefficients coefficients;
  StepTensor tensors[kTensors];
};
static_assert(sizeof(Tensors) <= 4096);

// Of a rule with so many vectors beside the value.
template <typename Rule, unsigned kVectors>
__global__ void Step(Tensors all) {
  const StepTensor& tensor = all.tensors[blockIdx.y];
  const std::uint64_t stride = std::uint64_t{gridDim.x} * kThreads;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * kThreads + threadIdx.x; i < tensor.elements; i += stride) {
    float first = 0, second = 0;
    if constexpr (kVectors >= 1) first = tensor.first[i];
    if constexpr (kVectors >= 2) second = tensor.second[i];
    tensor.updated[i] = Rule::Update(all.coefficients, tensor, tensor.value[i], tensor.gradient[i], first, second);
    if constexpr (kVectors >= 1) tensor.first[i] = first;
    if constexpr (kVectors >= 2) tensor.second[i] = second;
  }
}

}  // namespace

cudaError_t StepTensors(const StepCoefficients& coefficients, const StepTensor* tensors, std::uint64_t count,
                        cudaStream_t stream) {
  void (*kernel)(Tensors) = nullptr;
  switch (coefficients.rule) {
    case kSgdRule:
      kernel = &Step<Sgd, 0>;
      break;
    case kMomentumRule:
      kernel = &Step<Momentum, 1>;
      break;
    case kNesterovRule:
      kernel = &Step<Nesterov, 1>;
      break;
    case kAdamRule:
      kernel = &Step<Adam, 2>;
      break;
    case kBufferRule:
      kernel = &Step<BufferDifference, 0>;
      break;
    default:
      return cudaErrorInvalidValue;
  }
  for (std::uint64_t at = 0; at < count; at += kTensors) {
    const auto some = static_cast<unsigned>(std::min<std::uint64_t>(count - at, kTensors));
    Tensors arguments{coefficients, {}};
    std::copy_n(tensors + at, some, arguments.tensors);
    std::uint64_t most = 0;
    for (unsigned i = 0; i < some; ++i) most = std::max(most, tensors[at + i].elements);
    if (most == 0) continue;
    DOWNPOUR_RETURN_IF_CUDA_ERROR(Launch(kernel, CeilDivide(most, kThreads), some, arguments, stream));
  }
  return cudaSuccess;
}

}  // namespace downpour::cuda
