#include "trainer/core/optimizers/kernel.h"
#include "trainer/core/optimizers/optimizers.h"

namespace downpour::core {
namespace {

struct Coefficients {
  float rate, factor, decay, momentum;
  bool nesterov;
};

DOWNPOUR_KERNEL void Heavy(const VectorOptimizer::Run run, const Coefficients c, float* const buffer) {
  DOWNPOUR_INDEPENDENT_STEPS
  for (std::size_t i = 0; i < run.count; ++i) {
    buffer[i] = c.momentum * buffer[i] + (c.factor * run.gradient[i] + c.decay * run.value[i]);
    run.updated[i] = run.value[i] - c.rate * buffer[i];
  }
}

DOWNPOUR_KERNEL void Nesterov(const VectorOptimizer::Run run, const Coefficients c, float* const buffer) {
  DOWNPOUR_INDEPENDENT_STEPS
  for (std::size_t i = 0; i < run.count; ++i) {
    const float g = c.factor * run.gradient[i] + c.decay * run.value[i];
    buffer[i] = c.momentum * buffer[i] + g;
    run.updated[i] = run.value[i] - c.rate * (g + c.momentum * buffer[i]);
  }
}

class Momentum final : public VectorOptimizer {
 public:
  Momentum(const v1::OptimizerConfig& config, double weight_decay, std::uint32_t elements)
      : VectorOptimizer(config.type() == v1::NESTEROV ? "Nesterov" : "Momentum"),
        coefficients_{0, 1, static_cast<float>(weight_decay), static_cast<float>(config.momentum()),
                      config.type() == v1::NESTEROV} {
    AddVector("momentum_buffer", elements);
  }

  void OnBegin(const StepContext& context) override {
    coefficients_.rate = static_cast<float>(context.learning_rate);
    coefficients_.factor = static_cast<float>(context.factor);
  }
  void StepRun(const Run& run) override {
    float* const buffer = vector(0, run.first);
    coefficients_.nesterov ? Nesterov(run, coefficients_, buffer) : Heavy(run, coefficients_, buffer);
  }
  std::unique_ptr<Optimizer> Clone() const override { return std::make_unique<Momentum>(*this); }

 private:
  Coefficients coefficients_;
};

}  // namespace

std::unique_ptr<VectorOptimizer> CreateMomentum(const v1::OptimizerConfig& config, double weight_decay,
                                                std::uint32_t elements) {
  return std::make_unique<Momentum>(config, weight_decay, elements);
}

}  // namespace downpour::core
