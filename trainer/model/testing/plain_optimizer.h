#ifndef DOWNPOUR_TRAINER_MODEL_TESTING_PLAIN_OPTIMIZER_H_
#define DOWNPOUR_TRAINER_MODEL_TESTING_PLAIN_OPTIMIZER_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "trainer/model/model.h"

// What Model::TakeStep is held to: the formulas written down once more, in double and without LibTorch.
namespace downpour::model {

using Values = std::vector<std::vector<float>>;

// By what torch.nn.utils.clip_grad_norm_ multiplies the first `parameters` gradients.
inline double ClipCoefficient(const Values& gradients, std::size_t parameters, double most) {
  double squares = 0;
  for (std::size_t tensor = 0; tensor < parameters; ++tensor) {
    for (const double value : gradients[tensor]) squares += value * value;
  }
  return most > 0 ? std::min(1.0, most / (std::sqrt(squares) + 1e-6)) : 1;
}

class PlainOptimizer {
 public:
  explicit PlainOptimizer(const LocalOptimizer& options) : options_(options) {}

  void SetLearningRate(double learning_rate) { options_.learning_rate = learning_rate; }

  // Moves the first `parameters` of `values` by their gradients, the others by differences.
  void Step(const Values& gradients, std::size_t parameters, Values* values) {
    using Type = LocalOptimizer::Type;
    first_.resize(parameters);
    second_.resize(parameters);
    ++steps_;
    const double coefficient = ClipCoefficient(gradients, parameters, options_.clip_norm);
    const double rate = options_.learning_rate;
    for (std::size_t tensor = 0; tensor < values->size(); ++tensor) {
      std::vector<float>& weights = (*values)[tensor];
      if (tensor >= parameters) {
        for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= gradients[tensor][i];
        continue;
      }
      first_[tensor].resize(weights.size());
      second_[tensor].resize(weights.size());
      for (std::size_t i = 0; i < weights.size(); ++i) {
        double weight = weights[i];
        double gradient = coefficient * gradients[tensor][i];
        if (options_.type == Type::kAdamW) {
          weight -= rate * options_.weight_decay * weight;
        } else {
          gradient += options_.weight_decay * weight;
        }
        double& first = first_[tensor][i];
        double& second = second_[tensor][i];
        if (options_.type == Type::kSgd || options_.type == Type::kMomentum) {
          first = (options_.type == Type::kMomentum ? options_.momentum * first : 0) + gradient;
          weight -= rate * first;
        } else {
          first = options_.beta1 * first + (1 - options_.beta1) * gradient;
          second = options_.beta2 * second + (1 - options_.beta2) * gradient * gradient;
          const double mean = first / (1 - std::pow(options_.beta1, steps_));
          const double square = second / (1 - std::pow(options_.beta2, steps_));
          weight -= rate * mean / (std::sqrt(square) + options_.epsilon);
        }
        weights[i] = static_cast<float>(weight);
      }
    }
  }

 private:
  LocalOptimizer options_;
  int steps_ = 0;
  std::vector<std::vector<double>> first_, second_;  // moments; the first is the velocity of momentum
};

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_TESTING_PLAIN_OPTIMIZER_H_
