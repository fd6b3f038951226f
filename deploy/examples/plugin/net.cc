// A small convolutional network for images, with a loss and a metric of its own.
#include <torch/torch.h>

#include <string>

#include "downpour/plugin.h"

namespace {

struct Net : torch::nn::Module {
  // `parameters` is spec.model.plugin.parameters, `fields` what the data set has of each sample.
  Net(const downpour::Parameters& parameters, const downpour::SampleFields& fields) {
    const std::int64_t filters = parameters.integer("filters", 16);
    const double rate = parameters.number("dropout", 0.25);
    if (filters < 1) throw downpour::ParameterError("filters", "expected at least 1, got " + std::to_string(filters));
    const std::vector<std::int64_t>& image = fields.input.shape;  // channels, height, width
    if (image.size() != 3) throw std::invalid_argument("expected images");
    const std::int64_t pixels = ((image[1] - 2) / 2) * ((image[2] - 2) / 2);
    convolution = register_module("convolution", torch::nn::Conv2d(image[0], filters, 3));
    norm = register_module("norm", torch::nn::BatchNorm2d(filters));
    dropout = register_module("dropout", torch::nn::Dropout(rate));
    classes = register_module("classes", torch::nn::Linear(filters * pixels, fields.target.classes));
  }

  torch::Tensor forward(const torch::Tensor& images) {  // float [N, C, H, W] in [0, 1]
    const torch::Tensor features = torch::relu(norm(convolution(images)));
    return classes(dropout(torch::max_pool2d(features, 2).flatten(1)));
  }

  torch::nn::Conv2d convolution{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Dropout dropout{nullptr};
  torch::nn::Linear classes{nullptr};
};
DOWNPOUR_MODEL("Net", Net);

// Lin et al. 2017, "Focal Loss for Dense Object Detection", with gamma 2: what is right already counts less.
torch::Tensor FocalLoss(const torch::Tensor& output, const torch::Tensor& target) {
  const torch::Tensor log_probability = torch::log_softmax(output, 1).gather(1, target.unsqueeze(1)).squeeze(1);
  return -(1 - log_probability.exp()).square() * log_probability;  // one value a sample
}
DOWNPOUR_LOSS("Focal", FocalLoss);

// How often the class is among the two that seem most likely.
DOWNPOUR_METRIC("Top2Accuracy", [](const torch::Tensor& output, const torch::Tensor& target) {
  return std::get<1>(output.topk(2, 1)).eq(target.unsqueeze(1)).any(1);
});

}  // namespace
