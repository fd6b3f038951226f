#include <cmath>

#include "trainer/core/optimizers/adam_moments.h"
#include "trainer/core/optimizers/kernel.h"
#include "trainer/core/optimizers/optimizers.h"

namespace downpour::core {
namespace {

struct Coefficients {
  float beta1, rest1, beta2, rest2, epsilon;
  float decay;      // L2
  float lapse = 0;  // the decoupled decay of a step; 1 less it would lose the last bits that it has
  float factor = 1;
  float rate = 0;       // with the bias correction of the first moment
  float root_bias = 0;  // 1 / square root of the bias of the second
};

DOWNPOUR_KERNEL void Adapt(const VectorOptimizer::Run run, const Coefficients c, float* const average,
                           float* const square) {
  DOWNPOUR_INDEPENDENT_STEPS
  for (std::size_t i = 0; i < run.count; ++i) {
    const float g = c.factor * run.gradient[i] + c.decay * run.value[i];
    average[i] = c.beta1 * average[i] + c.rest1 * g;
    square[i] = c.beta2 * square[i] + c.rest2 * g * g;
    const float step = c.rate * (average[i] / (std::sqrt(square[i]) * c.root_bias + c.epsilon));
    run.updated[i] = run.value[i] - (c.lapse * run.value[i] + step);
  }
}

class Adam final : public AdamMoments {
 public:
  Adam(const v1::OptimizerConfig& config, double weight_decay, std::uint32_t elements)
      : AdamMoments(config.type() == v1::ADAM_W ? "AdamW" : "Adam", config, elements),
        decoupled_decay_(config.type() == v1::ADAM_W ? weight_decay : 0),
        coefficients_{static_cast<float>(beta1()),          static_cast<float>(1 - beta1()),
                      static_cast<float>(beta2()),          static_cast<float>(1 - beta2()),
                      static_cast<float>(config.epsilon()), static_cast<float>(weight_decay - decoupled_decay_)} {}

  void OnBegin(const StepContext& context) override {
    Advance();
    coefficients_.factor = static_cast<float>(context.factor);
    coefficients_.lapse = static_cast<float>(context.learning_rate * decoupled_decay_);
    coefficients_.rate = static_cast<float>(context.learning_rate / bias1());
    coefficients_.root_bias = static_cast<float>(1 / std::sqrt(bias2()));
  }
  void StepRun(const Run& run) override { Adapt(run, coefficients_, vector(0, run.first), vector(1, run.first)); }
  std::unique_ptr<Optimizer> Clone() const override { return std::make_unique<Adam>(*this); }

 private:
  double decoupled_decay_;
  Coefficients coefficients_;
};

}  // namespace

std::unique_ptr<VectorOptimizer> CreateAdam(const v1::OptimizerConfig& config, double weight_decay,
                                            std::uint32_t elements) {
  return std::make_unique<Adam>(config, weight_decay, elements);
}

}  // namespace downpour::core
