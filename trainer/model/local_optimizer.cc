#include "trainer/model/local_optimizer.h"

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <cmath>
#include <tuple>

namespace downpour::model {
namespace {

template <typename Options>
Options AdamOptions(const LocalOptimizer& options) {
  return Options(options.learning_rate)
      .betas(std::make_tuple(options.beta1, options.beta2))
      .eps(options.epsilon)
      .weight_decay(options.weight_decay);
}

}  // namespace

std::unique_ptr<torch::optim::Optimizer> MakeLocalOptimizer(const LocalOptimizer& options,
                                                            const std::vector<torch::Tensor>& parameters) {
  switch (options.type) {
    case LocalOptimizer::Type::kAdam:
      return std::make_unique<torch::optim::Adam>(parameters, AdamOptions<torch::optim::AdamOptions>(options));
    case LocalOptimizer::Type::kAdamW:
      return std::make_unique<torch::optim::AdamW>(parameters, AdamOptions<torch::optim::AdamWOptions>(options));
    case LocalOptimizer::Type::kSgd:
    case LocalOptimizer::Type::kMomentum:
      break;
  }
  const double momentum = options.type == LocalOptimizer::Type::kMomentum ? options.momentum : 0;
  return std::make_unique<torch::optim::SGD>(
      parameters,
      torch::optim::SGDOptions(options.learning_rate).momentum(momentum).weight_decay(options.weight_decay));
}

void ClipNorm(const std::vector<torch::Tensor>& parameters, double most) {
  const torch::NoGradGuard no_grad;
  double squares = 0;
  for (const torch::Tensor& parameter : parameters) {
    if (parameter.grad().defined()) squares += parameter.grad().to(torch::kDouble).square().sum().item<double>();
  }
  const double norm = std::sqrt(squares);
  if (norm <= most) return;
  for (const torch::Tensor& parameter : parameters) {
    if (parameter.grad().defined()) parameter.grad().mul_(most / norm);
  }
}

}  // namespace downpour::model
