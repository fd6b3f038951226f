#include <cmath>

#include "trainer/core/optimizers/kernel.h"
#include "trainer/core/optimizers/optimizers.h"

namespace downpour::core {
namespace {

struct Coefficients {
  float lambda, decay;
  float keep, add, epsilon;  // of the moving average
  float rate = 0;
  float factor = 1;
};

DOWNPOUR_KERNEL void Constant(const VectorOptimizer::Run run, const Coefficients c) {
  DOWNPOUR_INDEPENDENT_STEPS
  for (std::size_t i = 0; i < run.count; ++i) {
    const float g = c.factor * run.gradient[i];
    const float compensated = g + c.lambda * g * g * (run.value[i] - run.pulled[i]);
    run.updated[i] = run.value[i] - c.rate * (compensated + c.decay * run.value[i]);
  }
}

DOWNPOUR_KERNEL void Adaptive(const VectorOptimizer::Run run, const Coefficients c, float* const square) {
  DOWNPOUR_INDEPENDENT_STEPS
  for (std::size_t i = 0; i < run.count; ++i) {
    const float g = c.factor * run.gradient[i];
    square[i] = c.keep * square[i] + c.add * g * g;
    const float lambda = c.lambda / std::sqrt(square[i] + c.epsilon);
    const float compensated = g + lambda * g * g * (run.value[i] - run.pulled[i]);
    run.updated[i] = run.value[i] - c.rate * (compensated + c.decay * run.value[i]);
  }
}

class DelayCompensatedSgd final : public VectorOptimizer {
 public:
  DelayCompensatedSgd(const v1::OptimizerConfig& config, double weight_decay, std::uint32_t elements)
      : VectorOptimizer(config.compensation() == v1::COMPENSATION_ADAPTIVE ? "AdaptiveDelayCompensatedSGD"
                                                                           : "DelayCompensatedSGD"),
        adaptive_(config.compensation() == v1::COMPENSATION_ADAPTIVE),
        coefficients_{static_cast<float>(config.lambda()), static_cast<float>(weight_decay),
                      static_cast<float>(config.decay()), static_cast<float>(1 - config.decay()),
                      static_cast<float>(config.epsilon())} {
    if (adaptive_) AddVector("mean_square", elements);
  }

  void OnBegin(const StepContext& context) override {
    coefficients_.rate = static_cast<float>(context.learning_rate);
    coefficients_.factor = static_cast<float>(context.factor);
  }
  void StepRun(const Run& run) override {
    adaptive_ ? Adaptive(run, coefficients_, vector(0, run.first)) : Constant(run, coefficients_);
  }
  std::unique_ptr<Optimizer> Clone() const override { return std::make_unique<DelayCompensatedSgd>(*this); }

 private:
  bool adaptive_;
  Coefficients coefficients_;
};

}  // namespace

std::unique_ptr<VectorOptimizer> CreateDelayCompensatedSgd(const v1::OptimizerConfig& config, double weight_decay,
                                                           std::uint32_t elements) {
  return std::make_unique<DelayCompensatedSgd>(config, weight_decay, elements);
}

}  // namespace downpour::core
