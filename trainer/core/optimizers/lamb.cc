#include <cmath>

#include "trainer/core/optimizers/adam_moments.h"
#include "trainer/core/optimizers/kernel.h"
#include "trainer/core/optimizers/optimizers.h"

namespace downpour::core {
namespace {

struct Coefficients {
  float beta1, rest1, beta2, rest2, epsilon, decay;
  float factor = 1;
  float bias = 0;       // 1 / the bias of the first moment
  float root_bias = 0;  // 1 / square root of the bias of the second
};

DOWNPOUR_KERNEL void Average(const VectorOptimizer::Run run, const Coefficients c, float* const average,
                             float* const square) {
  DOWNPOUR_INDEPENDENT_STEPS
  for (std::size_t i = 0; i < run.count; ++i) {
    const float g = c.factor * run.gradient[i];
    average[i] = c.beta1 * average[i] + c.rest1 * g;
    square[i] = c.beta2 * square[i] + c.rest2 * g * g;
  }
}

inline float Direction(const Coefficients& c, float value, float average, float square) {
  return average * c.bias / (std::sqrt(square) * c.root_bias + c.epsilon) + c.decay * value;
}

// A sum for each place within so many elements: its order is the same however wide a vector is and in whatever runs the
// gradient came.
constexpr std::size_t kLanes = 16;

DOWNPOUR_KERNEL void SumSquares(const float* const value, const float* const average, const float* const square,
                                const std::size_t count, const Coefficients c, double* const values,
                                double* const directions) {
  for (std::size_t begin = 0; begin < count; begin += kLanes) {
    const std::size_t lanes = count - begin < kLanes ? count - begin : kLanes;
    DOWNPOUR_INDEPENDENT_STEPS
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      const std::size_t i = begin + lane;
      const double x = value[i];
      const double r = Direction(c, value[i], average[i], square[i]);
      values[lane] += x * x;
      directions[lane] += r * r;
    }
  }
}

DOWNPOUR_KERNEL void Move(const float* const value, const float* const average, const float* const square,
                          const std::size_t count, const Coefficients c, const float rate, float* const updated) {
  DOWNPOUR_INDEPENDENT_STEPS
  for (std::size_t i = 0; i < count; ++i) {
    updated[i] = value[i] - rate * Direction(c, value[i], average[i], square[i]);
  }
}

double Norm(const double (&sums)[kLanes]) {
  double sum = 0;
  for (const double lane : sums) sum += lane;
  return std::sqrt(sum);
}

class Lamb final : public AdamMoments {
 public:
  Lamb(const v1::OptimizerConfig& config, double weight_decay, std::uint32_t elements)
      : AdamMoments("LAMB", config, elements), coefficients_{static_cast<float>(beta1()),
                                                             static_cast<float>(1 - beta1()),
                                                             static_cast<float>(beta2()),
                                                             static_cast<float>(1 - beta2()),
                                                             static_cast<float>(config.epsilon()),
                                                             static_cast<float>(weight_decay)} {}

  void OnBegin(const StepContext& context) override {
    Advance();
    learning_rate_ = context.learning_rate;
    coefficients_.factor = static_cast<float>(context.factor);
    coefficients_.bias = static_cast<float>(1 / bias1());
    coefficients_.root_bias = static_cast<float>(1 / std::sqrt(bias2()));
  }
  void StepRun(const Run& run) override { Average(run, coefficients_, vector(0, run.first), vector(1, run.first)); }
  void End(absl::Span<const float> value, absl::Span<float> updated) override {
    double values[kLanes] = {};
    double directions[kLanes] = {};
    SumSquares(value.data(), vector(0), vector(1), value.size(), coefficients_, values, directions);
    const double length = Norm(values);
    const double direction = Norm(directions);
    const double trust = length > 0 && direction > 0 ? length / direction : 1;
    Move(value.data(), vector(0), vector(1), value.size(), coefficients_, static_cast<float>(learning_rate_ * trust),
         updated.data());
  }
  std::unique_ptr<Optimizer> Clone() const override { return std::make_unique<Lamb>(*this); }

 private:
  double learning_rate_ = 0;
  Coefficients coefficients_;
};

}  // namespace

std::unique_ptr<VectorOptimizer> CreateLamb(const v1::OptimizerConfig& config, double weight_decay,
                                            std::uint32_t elements) {
  return std::make_unique<Lamb>(config, weight_decay, elements);
}

}  // namespace downpour::core
