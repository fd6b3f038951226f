#ifndef DOWNPOUR_TRAINER_CORE_TESTING_OPTIMIZERS_H_
#define DOWNPOUR_TRAINER_CORE_TESTING_OPTIMIZERS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "trainer/core/optimizer.h"

// What the tests of the optimizers have in common.
namespace downpour::core::testing {

inline constexpr v1::OptimizerType kAllTypes[] = {v1::SGD,     v1::MOMENTUM, v1::NESTEROV,
                                                  v1::ADAGRAD, v1::RMS_PROP, v1::ADAM,
                                                  v1::ADAM_W,  v1::LAMB,     v1::DELAY_COMPENSATED_SGD};

// With something for every number that a type may use.
inline v1::OptimizerConfig ConfigOf(v1::OptimizerType type, double learning_rate = 0.01) {
  v1::OptimizerConfig config;
  config.set_type(type);
  config.set_learning_rate(learning_rate);
  config.set_momentum(0.9);
  config.set_beta1(0.9);
  config.set_beta2(0.999);
  config.set_epsilon(1e-8);
  config.set_decay(0.95);
  config.set_lambda(0.5);
  config.set_weight_decay(0.02);
  return config;
}

// Every type, each kind of compensation, and some with gap-aware staleness.
inline std::vector<v1::OptimizerConfig> AllConfigs() {
  std::vector<v1::OptimizerConfig> configs;
  for (const v1::OptimizerType type : kAllTypes) configs.push_back(ConfigOf(type));
  configs.push_back(ConfigOf(v1::DELAY_COMPENSATED_SGD));
  configs.back().set_compensation(v1::COMPENSATION_ADAPTIVE);
  for (const v1::OptimizerType type : {v1::SGD, v1::ADAM, v1::LAMB, v1::DELAY_COMPENSATED_SGD}) {
    configs.push_back(ConfigOf(type));
    configs.back().set_staleness_aware(true);
    configs.back().set_staleness_rule(v1::STALENESS_GAP);
  }
  return configs;
}

inline std::unique_ptr<Optimizer> Make(const v1::OptimizerConfig& config, std::size_t elements) {
  auto optimizer = CreateOptimizer(config, "layer.weight", static_cast<std::uint32_t>(elements));
  EXPECT_TRUE(optimizer.ok()) << optimizer.status();
  return *std::move(optimizer);
}

inline std::vector<float> RandomFloats(std::mt19937& random, std::size_t count) {
  std::vector<float> values(count);
  std::normal_distribution<float> normal;
  for (float& value : values) value = normal(random);
  return values;
}

inline Payload WholePayload(const std::vector<float>& values) { return Payload::OfFloats(values, nullptr); }

// What a step was given, so that the same can be done again.
struct GivenStep {
  std::vector<float> gradient;
  StepContext context;
  std::size_t staleness = 0;  // of what was pulled, in steps
};

inline std::vector<GivenStep> RandomSteps(std::mt19937& random, std::size_t elements, double learning_rate,
                                          std::size_t count) {
  std::vector<GivenStep> steps(count);
  for (std::size_t i = 0; i < count; ++i) {
    steps[i].gradient = RandomFloats(random, elements);
    steps[i].context.learning_rate = learning_rate / static_cast<double>(1 + random() % 3);
    steps[i].context.factor = random() % 3 == 0 ? 0.25 : 1;
    steps[i].staleness = std::min<std::size_t>(i, random() % 5);
    steps[i].context.staleness = steps[i].staleness;
  }
  return steps;
}

// Goes on from `history.back()`, the newest value.
inline void Take(Optimizer& optimizer, const std::vector<GivenStep>& steps, std::size_t begin, std::size_t end,
                 std::vector<std::vector<float>>& history) {
  for (std::size_t i = begin; i < end; ++i) {
    const std::vector<float> value = history.back();
    std::vector<float> updated(value.size());
    StepContext context = steps[i].context;
    context.pulled = &history[history.size() - 1 - steps[i].staleness];
    optimizer.Step(value, WholePayload(steps[i].gradient), context, absl::MakeSpan(updated));
    history.push_back(std::move(updated));
  }
}

// One element as a paper has it, in double precision: its value and what is remembered of it, which begins with 0.
struct Element {
  double value = 0;
  double first = 0;
  double second = 0;
  double third = 0;
};
// With the gradient times the factor, the step's number from 1, and the value that the gradient was computed with.
using ElementRule = std::function<void(Element&, double gradient, double rate, int step, double pulled)>;

inline double Distance(const std::vector<float>& a, const std::vector<double>& b) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / norm);
}

// That 100 steps are those of `rule`: of each of several slices all together to a millionth.
inline void ExpectFollows(const v1::OptimizerConfig& config, const ElementRule& rule, double tolerance = 1e-6) {
  for (const std::size_t elements : {1u, 7u, 64u, 1000u, 4099u}) {
    SCOPED_TRACE(elements);
    std::mt19937 random(static_cast<std::uint32_t>(elements));
    const std::vector<float> begin = RandomFloats(random, elements);
    const std::vector<GivenStep> steps = RandomSteps(random, elements, config.learning_rate(), 100);
    const std::unique_ptr<Optimizer> optimizer = Make(config, elements);
    std::vector<std::vector<float>> history = {begin};
    Take(*optimizer, steps, 0, steps.size(), history);

    std::vector<Element> slice(elements);
    std::vector<std::vector<double>> exact = {{begin.begin(), begin.end()}};
    for (std::size_t i = 0; i < elements; ++i) slice[i].value = begin[i];
    for (std::size_t step = 0; step < steps.size(); ++step) {
      const std::vector<double>& pulled = exact[exact.size() - 1 - steps[step].staleness];
      std::vector<double> now(elements);
      for (std::size_t i = 0; i < elements; ++i) {
        rule(slice[i], steps[step].context.factor * steps[step].gradient[i], steps[step].context.learning_rate,
             static_cast<int>(step) + 1, pulled[i]);
        now[i] = slice[i].value;
      }
      exact.push_back(std::move(now));
    }
    EXPECT_LT(Distance(history.back(), exact.back()), tolerance);
    EXPECT_GT(Distance(begin, exact.back()), 1e-3) << "nothing was learnt";
  }
}

inline bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

inline bool SameState(const OptimizerState& a, const OptimizerState& b) {
  if (a.type != b.type || a.vectors.size() != b.vectors.size() || a.scalars.size() != b.scalars.size()) return false;
  for (std::size_t i = 0; i < a.vectors.size(); ++i) {
    if (a.vectors[i].name != b.vectors[i].name || !SameBits(*a.vectors[i].values, *b.vectors[i].values)) return false;
  }
  for (std::size_t i = 0; i < a.scalars.size(); ++i) {
    if (a.scalars[i].name != b.scalars[i].name || a.scalars[i].value != b.scalars[i].value) return false;
  }
  return true;
}

}  // namespace downpour::core::testing

#endif  // DOWNPOUR_TRAINER_CORE_TESTING_OPTIMIZERS_H_
