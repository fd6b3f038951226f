// Each optimizer that torch::optim has and ours, given the same gradients.
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "trainer/core/optimizers/torch_reference.h"
#include "trainer/core/testing/optimizers.h"

namespace downpour::core {
namespace {

using testing::TorchRule;

// 100 steps on several slices, with and without decay; each slice all together to a millionth.
void ExpectAlike(v1::OptimizerConfig config, TorchRule rule) {
  config.set_initial_accumulator(0.25);
  for (const double weight_decay : {0.0, 0.02}) {
    config.set_weight_decay(weight_decay);
    for (const std::size_t elements : {1u, 33u, 1000u, 5003u}) {
      std::mt19937 random(static_cast<std::uint32_t>(elements));
      std::vector<std::vector<float>> history = {testing::RandomFloats(random, elements)};
      std::vector<testing::GivenStep> steps = testing::RandomSteps(random, elements, config.learning_rate(), 100);
      std::vector<std::vector<float>> gradients;
      for (testing::GivenStep& step : steps) {
        step.context = {.learning_rate = config.learning_rate()};
        gradients.push_back(step.gradient);
      }
      const std::vector<double> exact = testing::TakeTorchSteps(rule,
                                                                {.learning_rate = config.learning_rate(),
                                                                 .momentum = config.momentum(),
                                                                 .beta1 = config.beta1(),
                                                                 .beta2 = config.beta2(),
                                                                 .epsilon = config.epsilon(),
                                                                 .decay = config.decay(),
                                                                 .initial_accumulator = config.initial_accumulator(),
                                                                 .weight_decay = config.weight_decay()},
                                                                history.back(), gradients);
      testing::Take(*testing::Make(config, elements), steps, 0, steps.size(), history);
      EXPECT_LT(testing::Distance(history.back(), exact), 1e-6) << elements << " elements, decay " << weight_decay;
    }
  }
}

TEST(TorchTest, Sgd) { ExpectAlike(testing::ConfigOf(v1::SGD), TorchRule::kSgd); }
TEST(TorchTest, Momentum) { ExpectAlike(testing::ConfigOf(v1::MOMENTUM), TorchRule::kMomentum); }
TEST(TorchTest, Nesterov) { ExpectAlike(testing::ConfigOf(v1::NESTEROV), TorchRule::kNesterov); }
TEST(TorchTest, Adagrad) { ExpectAlike(testing::ConfigOf(v1::ADAGRAD), TorchRule::kAdagrad); }
TEST(TorchTest, RmsProp) { ExpectAlike(testing::ConfigOf(v1::RMS_PROP), TorchRule::kRmsProp); }
TEST(TorchTest, Adam) { ExpectAlike(testing::ConfigOf(v1::ADAM), TorchRule::kAdam); }
TEST(TorchTest, AdamW) { ExpectAlike(testing::ConfigOf(v1::ADAM_W), TorchRule::kAdamW); }

}  // namespace
}  // namespace downpour::core
