// Has another network of a name that test_plugin has too, and no loss.
#include "downpour/plugin.h"

namespace {

struct Net : torch::nn::Module {
  Net() : values(register_parameter("values", torch::zeros({3}))) {}
  torch::Tensor forward(const torch::Tensor& images) { return values.repeat({images.size(0), 1}); }
  torch::Tensor values;
};
DOWNPOUR_MODEL("Net", Net);

}  // namespace
