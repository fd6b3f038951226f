// A perceptron whose step takes as long as the manifest says without computing for most of it: on a few cores a job has
// as many machines that way as it has workers, each as fast as it would be alone.
#include <torch/torch.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

#include "downpour/plugin.h"

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

}  // namespace
