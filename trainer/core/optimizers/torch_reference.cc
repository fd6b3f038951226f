#include "trainer/core/optimizers/torch_reference.h"

#include <cstdint>
#include <memory>
#include <tuple>

#include "torch/optim.h"
#include "torch/types.h"

namespace downpour::core::testing {
namespace {

at::Tensor Double(const std::vector<float>& values) {
  // The memory is only read, and copied.
  return at::from_blob(const_cast<float*>(values.data()), {static_cast<std::int64_t>(values.size())})
      .to(torch::kDouble);
}

std::unique_ptr<torch::optim::Optimizer> Create(TorchRule rule, const TorchNumbers& n,
                                                const std::vector<at::Tensor>& of) {
  namespace optim = torch::optim;
  switch (rule) {
    case TorchRule::kSgd:
      return std::make_unique<optim::SGD>(of, optim::SGDOptions(n.learning_rate).weight_decay(n.weight_decay));
    case TorchRule::kMomentum:
    case TorchRule::kNesterov:
      return std::make_unique<optim::SGD>(of, optim::SGDOptions(n.learning_rate)
                                                  .momentum(n.momentum)
                                                  .nesterov(rule == TorchRule::kNesterov)
                                                  .weight_decay(n.weight_decay));
    case TorchRule::kAdagrad:
      return std::make_unique<optim::Adagrad>(of, optim::AdagradOptions(n.learning_rate)
                                                      .initial_accumulator_value(n.initial_accumulator)
                                                      .eps(n.epsilon)
                                                      .weight_decay(n.weight_decay));
    case TorchRule::kRmsProp:
      return std::make_unique<optim::RMSprop>(
          of, optim::RMSpropOptions(n.learning_rate).alpha(n.decay).eps(n.epsilon).weight_decay(n.weight_decay));
    case TorchRule::kAdam:
      return std::make_unique<optim::Adam>(of, optim::AdamOptions(n.learning_rate)
                                                   .betas(std::make_tuple(n.beta1, n.beta2))
                                                   .eps(n.epsilon)
                                                   .weight_decay(n.weight_decay));
    case TorchRule::kAdamW:
      return std::make_unique<optim::AdamW>(of, optim::AdamWOptions(n.learning_rate)
                                                    .betas(std::make_tuple(n.beta1, n.beta2))
                                                    .eps(n.epsilon)
                                                    .weight_decay(n.weight_decay));
  }
  return nullptr;
}

}  // namespace

std::vector<double> TakeTorchSteps(TorchRule rule, const TorchNumbers& numbers, const std::vector<float>& value,
                                   const std::vector<std::vector<float>>& gradients) {
  at::Tensor parameter = Double(value).requires_grad_(true);
  const std::unique_ptr<torch::optim::Optimizer> optimizer = Create(rule, numbers, {parameter});
  for (const std::vector<float>& gradient : gradients) {
    parameter.mutable_grad() = Double(gradient);
    optimizer->step();
  }
  const at::Tensor result = parameter.detach().contiguous();
  const double* const values = result.data_ptr<double>();
  return {values, values + value.size()};
}

}  // namespace downpour::core::testing
