#ifndef DOWNPOUR_TRAINER_CUDA_OPTIMIZER_STEP_H_
#define DOWNPOUR_TRAINER_CUDA_OPTIMIZER_STEP_H_

#include "absl/status/statusor.h"
#include "downpour/v1/config.pb.h"
#include "trainer/cuda/plugin_table.h"

namespace downpour::cuda {

// The optimizer of `config`, which was checked (core::CreateOptimizer), as DeviceKernels::Step takes it: of many
// tensors that are all at the same step. Steps are those of core::Optimizer, bit for bit. Not thread-safe.
class OptimizerStep {
 public:
  // kUnimplemented: there is no kernel for this type.
  static absl::StatusOr<OptimizerStep> Create(const v1::OptimizerConfig& config);

  // How many vectors a tensor has beside its value: StepTensor::first and, of two, second; 0 before the first step.
  int vectors() const { return vectors_; }

  // Of Adam, beta1 and beta2 to the power of the number of steps taken: what is remembered beside the vectors.
  struct Powers {
    double beta1 = 1, beta2 = 1;
  };
  const Powers& powers() const { return powers_; }
  void set_powers(const Powers& powers) { powers_ = powers; }

  // Begins the next step: `learning_rate` and `factor` as in core::StepContext.
  const StepCoefficients& Next(double learning_rate, double factor);
  // For the step that has begun: fills `decay` and `lapse` of a tensor with this weight decay (0: its weights do not
  // decay).
  void SetDecay(double weight_decay, StepTensor* tensor) const;

 private:
  OptimizerStep() = default;

  StepCoefficients coefficients_{};
  int vectors_ = 0;
  bool decoupled_ = false;
  double learning_rate_ = 0;
  double beta1_ = 0, beta2_ = 0;
  Powers powers_;
};

}  // namespace downpour::cuda

#endif  // DOWNPOUR_TRAINER_CUDA_OPTIMIZER_STEP_H_
