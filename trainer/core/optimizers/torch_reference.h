#ifndef DOWNPOUR_TRAINER_CORE_OPTIMIZERS_TORCH_REFERENCE_H_
#define DOWNPOUR_TRAINER_CORE_OPTIMIZERS_TORCH_REFERENCE_H_

#include <vector>

namespace downpour::core::testing {

enum class TorchRule { kSgd, kMomentum, kNesterov, kAdagrad, kRmsProp, kAdam, kAdamW };

struct TorchNumbers {
  double learning_rate = 0;
  double momentum = 0;
  double beta1 = 0;
  double beta2 = 0;
  double epsilon = 0;
  double decay = 0;
  double initial_accumulator = 0;
  double weight_decay = 0;
};

// What torch::optim makes of `value` with one gradient after another, in double precision. For tests. It shows no
// header of LibTorch, which brings a protobuf of its own.
std::vector<double> TakeTorchSteps(TorchRule rule, const TorchNumbers& numbers, const std::vector<float>& value,
                                   const std::vector<std::vector<float>>& gradients);

}  // namespace downpour::core::testing

#endif  // DOWNPOUR_TRAINER_CORE_OPTIMIZERS_TORCH_REFERENCE_H_
