// A network that counts instead of learning, on whatever device it is: with a learning rate of 1 that staleness does
// not change and minibatches of a power of two, the trained values say how often each slice was updated and each sample
// used. The tensors are those of tests/integration/counter_worker.cc, where the worker's process counts without
// LibTorch.
#include <torch/torch.h>

#include <cstdint>
#include <string>

#include "downpour/plugin.h"

namespace {

constexpr std::int64_t kRows = 2500;
constexpr std::int64_t kSliceElements = std::int64_t{1} << 20;

struct CountingNetwork : torch::nn::Module {
  explicit CountingNetwork(const downpour::Parameters& parameters) {
    const std::int64_t count = parameters.integer("samples", 1);
    if (count < 1) throw downpour::ParameterError("samples", "expected at least 1, got " + std::to_string(count));
    samples = register_parameter("samples", torch::zeros({count}));
    large = register_parameter("large", torch::zeros({kRows, 1000}));
    small = register_parameter("small", torch::zeros({7}));
    scalar = register_parameter("scalar", torch::zeros({}));
    odd = register_parameter("odd", torch::zeros({3, 5}));
  }

  // Of sample numbers: for each of them its counter, as often as there are samples, and the first element of every
  // slice. The mean over the minibatch, which is made small, then has a gradient of -1 for each of these.
  torch::Tensor forward(const torch::Tensor& numbers) {
    torch::Tensor slices = scalar.reshape({});
    for (const torch::Tensor& tensor : {large, small, odd}) {
      slices = slices + tensor.flatten().slice(0, 0, tensor.numel(), kSliceElements).sum();
    }
    return samples.index_select(0, numbers.flatten()) * numbers.size(0) + slices;
  }

  torch::Tensor samples, large, small, scalar, odd;
};
DOWNPOUR_MODEL("Counting", CountingNetwork);

DOWNPOUR_LOSS("Less", [](const torch::Tensor& output, const torch::Tensor& /*target*/) { return -output; });

}  // namespace
