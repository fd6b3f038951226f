#include "trainer/core/optimizers/kernel.h"
#include "trainer/core/optimizers/optimizers.h"

namespace downpour::core {
namespace {

DOWNPOUR_KERNEL void Plain(const VectorOptimizer::Run run, const float rate) {
  DOWNPOUR_INDEPENDENT_STEPS
  for (std::size_t i = 0; i < run.count; ++i) run.updated[i] = run.value[i] - rate * run.gradient[i];
}

DOWNPOUR_KERNEL void WithDecay(const VectorOptimizer::Run run, const float rate, const float factor,
                               const float decay) {
  DOWNPOUR_INDEPENDENT_STEPS
  for (std::size_t i = 0; i < run.count; ++i) {
    run.updated[i] = run.value[i] - rate * (factor * run.gradient[i] + decay * run.value[i]);
  }
}

class Sgd final : public VectorOptimizer {
 public:
  explicit Sgd(double weight_decay) : VectorOptimizer("SGD"), decay_(static_cast<float>(weight_decay)) {}

  void OnBegin(const StepContext& context) override {
    factor_ = static_cast<float>(context.factor);
    rate_ = static_cast<float>(decay_ == 0 ? context.learning_rate * context.factor : context.learning_rate);
  }
  void StepRun(const Run& run) override { decay_ == 0 ? Plain(run, rate_) : WithDecay(run, rate_, factor_, decay_); }
  std::unique_ptr<Optimizer> Clone() const override { return std::make_unique<Sgd>(*this); }

 private:
  float decay_;
  float factor_ = 1;
  float rate_ = 0;
};

}  // namespace

std::unique_ptr<VectorOptimizer> CreateSgd(double weight_decay) { return std::make_unique<Sgd>(weight_decay); }

}  // namespace downpour::core
