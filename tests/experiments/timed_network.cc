// Networks whose steps take as long as the manifest says, without computing for most of it: on a few cores a job has as
// many machines that way as it has workers, each as fast as it would be alone.
#include <torch/torch.h>

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "downpour/plugin.h"
#include "trainer/model/pooled_convolution.h"

namespace {

struct TimedPerceptron : torch::nn::Module {
  TimedPerceptron(const downpour::Parameters& parameters, const downpour::SampleFields& fields)
      : milliseconds(parameters.integer("milliseconds", 20)) {
    const std::int64_t units = parameters.integer("units", 64);
    if (units < 1) throw downpour::ParameterError("units", "expected at least 1, got " + std::to_string(units));
    std::int64_t values = 1;
    for (const std::int64_t size : fields.input.shape) values *= size;
    hidden = register_module("hidden", torch::nn::Linear(values, units));
    classes = register_module("classes", torch::nn::Linear(units, fields.target.classes));
  }

  torch::Tensor forward(const torch::Tensor& images) {
    // In pieces: the clock of a sleep goes on while its process is stopped, so that one long sleep would hide a stop.
    for (std::int64_t piece = 0; is_training() && piece < milliseconds; ++piece) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return classes(torch::relu(hidden(images.flatten(1))));
  }

  const std::int64_t milliseconds;
  torch::nn::Linear hidden{nullptr};
  torch::nn::Linear classes{nullptr};
};
DOWNPOUR_MODEL("TimedPerceptron", TimedPerceptron);

// LeNet as in trainer/model/zoo. Here computing takes time of its own, which is part of that of a step: what is left of
// it is waited for. A third of a step is the forward pass, of an evaluation all. The last gradient is there at the end
// of a step; those of the dense layers are there early, as they are where the time goes into computing. A worker that
// does not get enough of the cores takes longer than it should: the time has to be well above what all of them need.
struct TimedLeNet : torch::nn::Module {
  using Clock = std::chrono::steady_clock;

  TimedLeNet(const downpour::Parameters& parameters, const downpour::SampleFields& fields)
      : sample_time(parameters.integer("microseconds", 600)) {
    if (fields.input.shape != std::vector<std::int64_t>{1, 28, 28}) {
      throw std::invalid_argument("needs images of 1 x 28 x 28");
    }
    conv1 = register_module("conv1", torch::nn::Conv2d(1, 20, 3));
    conv2 = register_module("conv2", torch::nn::Conv2d(20, 50, 5));
    fc1 = register_module("fc1", torch::nn::Linear(800, 128));
    fc2 = register_module("fc2", torch::nn::Linear(128, fields.target.classes));
    for (auto& named : named_parameters()) {
      if (named.value().dim() == 1) {
        torch::nn::init::zeros_(named.value());
      } else {
        torch::nn::init::kaiming_uniform_(named.value(), 0, torch::kFanIn, torch::kReLU);
      }
    }
    conv1->weight.register_hook([this](const torch::Tensor& /*gradient*/) { std::this_thread::sleep_until(end); });
  }

  torch::Tensor forward(const torch::Tensor& images) {
    const Clock::time_point begin = Clock::now();
    const Clock::duration step = sample_time * images.size(0);
    end = begin + step;
    const torch::Tensor first = downpour::model::PooledConvolution(images, conv1->weight, conv1->bias);
    const torch::Tensor second = downpour::model::PooledConvolution(first, conv2->weight, conv2->bias);
    const torch::Tensor output = fc2(fc1(second.flatten(1)).relu_());
    std::this_thread::sleep_until(begin + step / 3);
    return output;
  }

  const std::chrono::microseconds sample_time;
  Clock::time_point end;  // of the step under way
  torch::nn::Conv2d conv1{nullptr}, conv2{nullptr};
  torch::nn::Linear fc1{nullptr}, fc2{nullptr};
};
DOWNPOUR_MODEL("TimedLeNet", TimedLeNet);

}  // namespace
