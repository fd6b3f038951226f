// Each optimizer of torch::optim and ours, given the same gradients.
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "torch/optim.h"
#include "torch/types.h"
#include "trainer/core/testing/optimizers.h"

namespace downpour::core {
namespace {

// 100 steps on several slices, those of torch in double precision; each slice all together to a millionth.
template <class TorchOptimizer, class Options>
void ExpectAlike(const v1::OptimizerConfig& config, const Options& options) {
  for (const std::int64_t elements : {1, 33, 1000, 5003}) {
    std::mt19937 random(static_cast<std::uint32_t>(elements));
    const auto count = static_cast<std::size_t>(elements);
    std::vector<std::vector<float>> history = {testing::RandomFloats(random, count)};
    std::vector<testing::GivenStep> steps = testing::RandomSteps(random, count, config.learning_rate(), 100);
    for (testing::GivenStep& step : steps) step.context = {.learning_rate = config.learning_rate()};

    const auto tensor_of = [&](const std::vector<float>& values) {
      return at::from_blob(const_cast<float*>(values.data()), {elements}).to(torch::kDouble);
    };
    torch::Tensor parameter = tensor_of(history.back()).clone().requires_grad_(true);
    TorchOptimizer optimizer(std::vector<torch::Tensor>{parameter}, options);
    for (const testing::GivenStep& step : steps) {
      parameter.mutable_grad() = tensor_of(step.gradient);
      optimizer.step();
    }
    testing::Take(*testing::Make(config, count), steps, 0, steps.size(), history);
    const torch::Tensor exact = parameter.detach();
    EXPECT_LT(testing::Distance(history.back(), {exact.data_ptr<double>(), exact.data_ptr<double>() + elements}), 1e-6)
        << elements << " elements";
  }
}

// With and without the decay that the configurations have.
template <class TorchOptimizer, class Options>
void ExpectAlikeWithAndWithoutDecay(v1::OptimizerConfig config, Options options) {
  ExpectAlike<TorchOptimizer>(config, options.weight_decay(config.weight_decay()));
  config.set_weight_decay(0);
  ExpectAlike<TorchOptimizer>(config, options.weight_decay(0));
}

TEST(TorchTest, Sgd) {
  ExpectAlikeWithAndWithoutDecay<torch::optim::SGD>(testing::ConfigOf(v1::SGD), torch::optim::SGDOptions(0.01));
}

TEST(TorchTest, Momentum) {
  ExpectAlikeWithAndWithoutDecay<torch::optim::SGD>(testing::ConfigOf(v1::MOMENTUM),
                                                    torch::optim::SGDOptions(0.01).momentum(0.9));
}

TEST(TorchTest, Nesterov) {
  ExpectAlikeWithAndWithoutDecay<torch::optim::SGD>(testing::ConfigOf(v1::NESTEROV),
                                                    torch::optim::SGDOptions(0.01).momentum(0.9).nesterov(true));
}

TEST(TorchTest, Adagrad) {
  v1::OptimizerConfig config = testing::ConfigOf(v1::ADAGRAD);
  config.set_initial_accumulator(0.25);
  ExpectAlikeWithAndWithoutDecay<torch::optim::Adagrad>(
      config, torch::optim::AdagradOptions(0.01).initial_accumulator_value(0.25).eps(1e-8));
}

TEST(TorchTest, RmsProp) {
  ExpectAlikeWithAndWithoutDecay<torch::optim::RMSprop>(testing::ConfigOf(v1::RMS_PROP),
                                                        torch::optim::RMSpropOptions(0.01).alpha(0.95).eps(1e-8));
}

TEST(TorchTest, Adam) {
  ExpectAlikeWithAndWithoutDecay<torch::optim::Adam>(testing::ConfigOf(v1::ADAM), torch::optim::AdamOptions(0.01));
}

TEST(TorchTest, AdamW) {
  ExpectAlikeWithAndWithoutDecay<torch::optim::AdamW>(testing::ConfigOf(v1::ADAM_W), torch::optim::AdamWOptions(0.01));
}

}  // namespace
}  // namespace downpour::core
