#include "trainer/model/networks.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/functional/pooling.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "trainer/model/pooled_convolution.h"

namespace downpour::model {
namespace {

using torch::Tensor;

// LeNet of "Dive into Deep Learning", section 12.5.
class LeNet final : public Network {
 public:
  static constexpr std::int64_t kFirstKernel = 3;
  static constexpr std::int64_t kSecondKernel = 5;

  LeNet(const std::vector<std::int64_t>& sample_shape, int classes) {
    const auto pooled = [](std::int64_t extent) { return ((extent - kFirstKernel + 1) / 2 - kSecondKernel + 1) / 2; };
    const auto used = [](std::int64_t extent) { return (2 * extent + kSecondKernel - 1) * 2 + kFirstKernel - 1; };
    const std::int64_t height = pooled(sample_shape[1]);
    const std::int64_t width = pooled(sample_shape[2]);
    used_shape_ = {sample_shape[0], used(height), used(width)};
    conv1_ = register_module("conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(sample_shape[0], 20, kFirstKernel)));
    conv2_ = register_module("conv2", torch::nn::Conv2d(torch::nn::Conv2dOptions(20, 50, kSecondKernel)));
    fc1_ = register_module("fc1", torch::nn::Linear(50 * height * width, 128));
    fc2_ = register_module("fc2", torch::nn::Linear(128, classes));
  }

  // The smallest image that leaves something after both poolings.
  static constexpr std::int64_t kMinimumExtent = 14;

  bool has_convolutions() const override { return true; }

  Tensor Forward(const Tensor& samples, bool fused) override {
    const auto block = [fused](const Tensor& input, torch::nn::Conv2d& conv) {
      if (fused) return PooledConvolution(input, conv->weight, conv->bias);
      return torch::avg_pool2d(conv->forward(input).relu_(), 2);
    };
    const Tensor features = block(block(samples, conv1_), conv2_).flatten(1);
    return fc2_->forward(fc1_->forward(features).relu_());
  }

 private:
  torch::nn::Conv2d conv1_{nullptr}, conv2_{nullptr};
  torch::nn::Linear fc1_{nullptr}, fc2_{nullptr};
};

class Mlp final : public Network {
 public:
  Mlp(const std::vector<std::int64_t>& sample_shape, int classes) {
    used_shape_ = sample_shape;
    std::int64_t inputs = 1;
    for (std::int64_t extent : sample_shape) inputs *= extent;
    fc1_ = register_module("fc1", torch::nn::Linear(inputs, 128));
    fc2_ = register_module("fc2", torch::nn::Linear(128, classes));
  }

  bool has_convolutions() const override { return false; }

  Tensor Forward(const Tensor& samples, bool /*fused*/) override {
    return fc2_->forward(fc1_->forward(samples.flatten(1)).relu_());
  }

 private:
  torch::nn::Linear fc1_{nullptr}, fc2_{nullptr};
};

// Weights by Kaiming's uniform rule for ReLU, biases zero. The values come from a generator of our own, so nothing
// else in the process has a part in them.
void Initialize(Network& network, std::uint64_t seed) {
  const torch::NoGradGuard no_grad;
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  for (Tensor& parameter : network.parameters()) {
    if (parameter.dim() < 2) {
      parameter.zero_();
    } else {
      const double fan_in = static_cast<double>(parameter.numel()) / static_cast<double>(parameter.size(0));
      const double bound = std::sqrt(6.0 / fan_in);
      parameter.uniform_(-bound, bound, generator);
    }
  }
}

}  // namespace

absl::StatusOr<std::shared_ptr<Network>> MakeNetwork(const std::string& name,
                                                     const std::vector<std::int64_t>& sample_shape, int classes,
                                                     std::uint64_t seed) {
  const bool positive =
      !sample_shape.empty() && *std::min_element(sample_shape.begin(), sample_shape.end()) > 0 && classes > 0;
  const auto refuse = [&](const char* expected) {
    return absl::InvalidArgumentError(absl::StrFormat("model %s cannot take samples of shape [%s] in %d classes: %s",
                                                      name, absl::StrJoin(sample_shape, ", "), classes, expected));
  };
  std::shared_ptr<Network> network;
  if (name == "LeNet") {
    if (!positive || sample_shape.size() != 3 || sample_shape[1] < LeNet::kMinimumExtent ||
        sample_shape[2] < LeNet::kMinimumExtent) {
      return refuse("expected [channels, height, width], height and width at least 14");
    }
    network = std::make_shared<LeNet>(sample_shape, classes);
  } else if (name == "MLP") {
    if (!positive) return refuse("expected positive extents");
    network = std::make_shared<Mlp>(sample_shape, classes);
  } else {
    return absl::NotFoundError(absl::StrFormat("no model \"%s\"; known: LeNet, MLP", name));
  }
  Initialize(*network, seed);
  return network;
}

}  // namespace downpour::model
