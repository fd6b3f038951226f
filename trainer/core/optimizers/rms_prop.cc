#include <cmath>

#include "trainer/core/optimizers/kernel.h"
#include "trainer/core/optimizers/optimizers.h"

namespace downpour::core {
namespace {

struct Coefficients {
  float rate, factor, decay, epsilon;
  float keep, add;  // of the moving average
};

DOWNPOUR_KERNEL void Average(const VectorOptimizer::Run run, const Coefficients c, float* const square) {
  DOWNPOUR_INDEPENDENT_STEPS
  for (std::size_t i = 0; i < run.count; ++i) {
    const float g = c.factor * run.gradient[i] + c.decay * run.value[i];
    square[i] = c.keep * square[i] + c.add * g * g;
    run.updated[i] = run.value[i] - c.rate * (g / (std::sqrt(square[i]) + c.epsilon));
  }
}

class RmsProp final : public VectorOptimizer {
 public:
  RmsProp(const v1::OptimizerConfig& config, double weight_decay, std::uint32_t elements)
      : VectorOptimizer("RMSProp"),
        coefficients_{0,
                      1,
                      static_cast<float>(weight_decay),
                      static_cast<float>(config.epsilon()),
                      static_cast<float>(config.decay()),
                      static_cast<float>(1 - config.decay())} {
    AddVector("square_avg", elements);
  }

  void OnBegin(const StepContext& context) override {
    coefficients_.rate = static_cast<float>(context.learning_rate);
    coefficients_.factor = static_cast<float>(context.factor);
  }
  void StepRun(const Run& run) override { Average(run, coefficients_, vector(0, run.first)); }
  std::unique_ptr<Optimizer> Clone() const override { return std::make_unique<RmsProp>(*this); }

 private:
  Coefficients coefficients_;
};

}  // namespace

std::unique_ptr<VectorOptimizer> CreateRmsProp(const v1::OptimizerConfig& config, double weight_decay,
                                               std::uint32_t elements) {
  return std::make_unique<RmsProp>(config, weight_decay, elements);
}

}  // namespace downpour::core
