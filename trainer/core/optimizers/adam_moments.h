#ifndef DOWNPOUR_TRAINER_CORE_OPTIMIZERS_ADAM_MOMENTS_H_
#define DOWNPOUR_TRAINER_CORE_OPTIMIZERS_ADAM_MOMENTS_H_

#include <cmath>
#include <string>
#include <utility>

#include "downpour/v1/config.pb.h"
#include "trainer/core/optimizers/vector_optimizer.h"

namespace downpour::core {

// What Adam and its relatives remember: the moving averages of gradient and squared gradient, and how far these are
// from having forgotten that they began with 0.
class AdamMoments : public VectorOptimizer {
 protected:
  AdamMoments(std::string type, const v1::OptimizerConfig& config, std::uint32_t elements)
      : VectorOptimizer(std::move(type)), beta1_(config.beta1()), beta2_(config.beta2()) {
    AddVector("exp_avg", elements);
    AddVector("exp_avg_sq", elements);
    // The powers rather than the number of the step: std::pow differs in its last bit between machines.
    AddScalar("beta1_power", 1);
    AddScalar("beta2_power", 1);
  }

  // One more step. Afterwards bias1 and bias2 are what the averages are to be divided by.
  void Advance() {
    scalar(0) *= beta1_;
    scalar(1) *= beta2_;
  }
  double bias1() { return 1 - scalar(0); }
  double bias2() { return 1 - scalar(1); }
  double beta1() const { return beta1_; }
  double beta2() const { return beta2_; }

 private:
  double beta1_;
  double beta2_;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_OPTIMIZERS_ADAM_MOMENTS_H_
