#include <cmath>

#include "trainer/core/optimizers/kernel.h"
#include "trainer/core/optimizers/optimizers.h"

namespace downpour::core {
namespace {

struct Coefficients {
  float rate, factor, decay, epsilon;
};

DOWNPOUR_KERNEL void Accumulate(const VectorOptimizer::Run run, const Coefficients c, float* const sum) {
  DOWNPOUR_INDEPENDENT_STEPS
  for (std::size_t i = 0; i < run.count; ++i) {
    const float g = c.factor * run.gradient[i] + c.decay * run.value[i];
    sum[i] += g * g;
    run.updated[i] = run.value[i] - c.rate * (g / (std::sqrt(sum[i]) + c.epsilon));
  }
}

class Adagrad final : public VectorOptimizer {
 public:
  Adagrad(const v1::OptimizerConfig& config, double weight_decay, std::uint32_t elements)
      : VectorOptimizer("Adagrad"),
        coefficients_{0, 1, static_cast<float>(weight_decay), static_cast<float>(config.epsilon())} {
    AddVector("sum", elements, static_cast<float>(config.initial_accumulator()));
  }

  void OnBegin(const StepContext& context) override {
    coefficients_.rate = static_cast<float>(context.learning_rate);
    coefficients_.factor = static_cast<float>(context.factor);
  }
  void StepRun(const Run& run) override { Accumulate(run, coefficients_, vector(0, run.first)); }
  std::unique_ptr<Optimizer> Clone() const override { return std::make_unique<Adagrad>(*this); }

 private:
  Coefficients coefficients_;
};

}  // namespace

std::unique_ptr<VectorOptimizer> CreateAdagrad(const v1::OptimizerConfig& config, double weight_decay,
                                               std::uint32_t elements) {
  return std::make_unique<Adagrad>(config, weight_decay, elements);
}

}  // namespace downpour::core
