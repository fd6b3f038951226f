#include "trainer/cuda/optimizer_step.h"

#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace downpour::cuda {

absl::StatusOr<OptimizerStep> OptimizerStep::Create(const v1::OptimizerConfig& config) {
  OptimizerStep step;
  StepCoefficients& c = step.coefficients_;
  if (config.staleness_aware() && config.staleness_rule() == v1::STALENESS_GAP) {
    return absl::UnimplementedError("no kernel for GPUs takes steps that heed the gap of late gradients");
  }
  switch (config.type()) {
    case v1::SGD:
      c.rule = kSgdRule;
      return step;
    case v1::MOMENTUM:
    case v1::NESTEROV:
      c.rule = config.type() == v1::NESTEROV ? kNesterovRule : kMomentumRule;
      c.momentum = static_cast<float>(config.momentum());
      step.vectors_ = 1;
      return step;
    case v1::ADAM:
    case v1::ADAM_W:
      c.rule = kAdamRule;
      step.vectors_ = 2;
      step.decoupled_ = config.type() == v1::ADAM_W;
      step.beta1_ = config.beta1();
      step.beta2_ = config.beta2();
      c.beta1 = static_cast<float>(step.beta1_);
      c.rest1 = static_cast<float>(1 - step.beta1_);
      c.beta2 = static_cast<float>(step.beta2_);
      c.rest2 = static_cast<float>(1 - step.beta2_);
      c.epsilon = static_cast<float>(config.epsilon());
      return step;
    default:
      return absl::UnimplementedError(
          absl::StrCat("no kernel for GPUs takes steps of ", v1::OptimizerType_Name(config.type())));
  }
}

const StepCoefficients& OptimizerStep::Next(double learning_rate, double factor) {
  StepCoefficients& c = coefficients_;
  learning_rate_ = learning_rate;
  c.factor = static_cast<float>(factor);
  c.rate = static_cast<float>(learning_rate);
  c.plain_rate = static_cast<float>(learning_rate * factor);
  if (c.rule == kAdamRule) {
    powers_.beta1 *= beta1_;
    powers_.beta2 *= beta2_;
    c.rate = static_cast<float>(learning_rate / (1 - powers_.beta1));
    c.root_bias = static_cast<float>(1 / std::sqrt(1 - powers_.beta2));
  }
  return c;
}

void OptimizerStep::SetDecay(double weight_decay, StepTensor* tensor) const {
  const double decoupled = decoupled_ ? weight_decay : 0;
  tensor->decay = static_cast<float>(weight_decay - decoupled);
  tensor->lapse = static_cast<float>(learning_rate_ * decoupled);
}

}  // namespace downpour::cuda
