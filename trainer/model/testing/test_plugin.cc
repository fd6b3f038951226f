// Networks, losses and metrics that work, and some that do not.
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <csignal>
#include <stdexcept>

#include "downpour/plugin.h"

namespace {

using torch::Tensor;

// As the layers conv2d, batchNorm, tanh, dropout, flatten, dense.
struct Net : torch::nn::Module {
  Net(const downpour::Parameters& parameters, const downpour::SampleFields& fields)
      : dropout(register_module("dropout", torch::nn::Dropout(parameters.number("rate", 0)))) {
    const std::int64_t filters = parameters.integer("filters", 4);
    if (filters < 1) throw downpour::ParameterError("filters", "expected at least 1, got " + std::to_string(filters));
    const std::vector<std::int64_t>& image = fields.input.shape;
    conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(image.at(0), filters, 3)));
    norm = register_module("norm", torch::nn::BatchNorm2d(filters));
    dense = register_module("dense",
                            torch::nn::Linear(filters * (image.at(1) - 2) * (image.at(2) - 2), fields.target.classes));
  }

  Tensor forward(const Tensor& images) {
    return dense->forward(dropout->forward(norm->forward(conv->forward(images)).tanh().flatten(1)));
  }

  torch::nn::Dropout dropout;
  torch::nn::Conv2d conv{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Linear dense{nullptr};
};
DOWNPOUR_MODEL("Net", Net);

// The mean of the words' vectors.
struct Words : torch::nn::Module {
  Words(const downpour::Parameters&, const downpour::SampleFields& fields)
      : embedding(register_module("embedding", torch::nn::Embedding(fields.input.classes, fields.target.classes))) {}

  Tensor forward(const Tensor& words, const Tensor& lengths) {
    TORCH_CHECK(words.scalar_type() == torch::kLong && lengths.scalar_type() == torch::kLong, "not as promised");
    const Tensor real = torch::arange(words.size(1)).unsqueeze(0).lt(lengths.unsqueeze(1)).unsqueeze(2);
    return (embedding->forward(words) * real).sum(1) / lengths.clamp_min(1).unsqueeze(1);
  }

  torch::nn::Embedding embedding;
};
DOWNPOUR_MODEL("Words", Words);

// Makes a pair of numbers, whatever the classes.
struct Pair : torch::nn::Module {
  explicit Pair(const downpour::Parameters& parameters)
      : values(register_parameter("values", torch::ones({2}))), shape(parameters.integers("shape", {2})) {
    parameters.numbers("scales", {});
    parameters.flag("flag", false);
    parameters.text("text", "");
  }
  Tensor forward(const Tensor& images) { return values.repeat({images.size(0), 1}); }
  Tensor values;
  std::vector<std::int64_t> shape;
};
DOWNPOUR_MODEL("Pair", Pair);

struct Tied : torch::nn::Module {
  Tied() : a(register_parameter("a", torch::ones({2}))), b(register_parameter("b", a)) {}
  Tensor forward(const Tensor& images) { return (a + b).repeat({images.size(0), 1}); }
  Tensor a, b;
};
DOWNPOUR_MODEL("Tied", Tied);

struct Doubles : torch::nn::Module {
  Doubles() : a(register_parameter("a", torch::ones({2}, torch::kDouble))) {}
  Tensor forward(const Tensor& images) { return a.repeat({images.size(0), 1}); }
  Tensor a;
};
DOWNPOUR_MODEL("Doubles", Doubles);

struct ThrowsInConstructor : Pair {
  explicit ThrowsInConstructor(const downpour::Parameters& parameters) : Pair(parameters) {
    throw std::runtime_error("no such weather");
  }
};
DOWNPOUR_MODEL("ThrowsInConstructor", ThrowsInConstructor);

struct ThrowsInForward : Pair {
  using Pair::Pair;
  Tensor forward(const Tensor& images) { return images.matmul(values); }
};
DOWNPOUR_MODEL("ThrowsInForward", ThrowsInForward);

struct ThrowsInTraining : Pair {
  using Pair::Pair;
  Tensor forward(const Tensor& images) {
    if (is_training()) throw 7;
    return Pair::forward(images);
  }
};
DOWNPOUR_MODEL("ThrowsInTraining", ThrowsInTraining);

// What LibTorch throws when a GPU has no more memory.
struct RunsOutOfMemory : Pair {
  using Pair::Pair;
  Tensor forward(const Tensor& images) {
    TORCH_CHECK_WITH(
        OutOfMemoryError, !is_training(),
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.81 GiB of which "
        "1.12 GiB is free. Process 7 has 3.00 GiB memory in use. See the documentation\nand more of it");
    return Pair::forward(images);
  }
};
DOWNPOUR_MODEL("RunsOutOfMemory", RunsOutOfMemory);

struct Crashes : Pair {
  explicit Crashes(const downpour::Parameters& parameters) : Pair(parameters) { std::raise(SIGSEGV); }
};
DOWNPOUR_MODEL("Crashes", Crashes);

Tensor CrossEntropyOfSamples(const Tensor& output, const Tensor& target) {
  return torch::nn::functional::cross_entropy(output, target,
                                              torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
}
DOWNPOUR_LOSS("OwnCrossEntropy", CrossEntropyOfSamples);
DOWNPOUR_LOSS("OwnCrossEntropyAsSum", [](const Tensor& output, const Tensor& target) {
  return downpour::Sum(CrossEntropyOfSamples(output, target).sum(), target.size(0));
});
DOWNPOUR_LOSS("OneForTheBatch",
              [](const Tensor& output, const Tensor& target) { return CrossEntropyOfSamples(output, target).mean(); });
DOWNPOUR_METRIC("OwnAccuracy", [](const Tensor& output, const Tensor& target) { return output.argmax(1).eq(target); });
DOWNPOUR_METRIC("Nothing", [](const Tensor& output, const Tensor&) { return downpour::Sum(output.sum(), 0); });

}  // namespace
