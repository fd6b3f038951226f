#ifndef DOWNPOUR_TRAINER_MODEL_HELD_GRADIENTS_H_
#define DOWNPOUR_TRAINER_MODEL_HELD_GRADIENTS_H_

#include <torch/types.h>

#include <cstddef>
#include <vector>

#include "trainer/model/model.h"

namespace downpour::model {

// Gradients that stay where they were computed while somebody reads them: row-major fp32. Not thread-safe. What
// LibTorch throws, its methods throw.
class HeldGradients {
 public:
  void Give(std::size_t tensor, const at::Tensor& gradient, const Model::OnDeviceGradient& on_gradient) {
    const at::NoGradGuard no_grad;
    // What has to be converted or put in order is so in the current stream, as what computed it.
    held_.push_back(gradient.detach().to(at::kFloat).contiguous());
    if (on_gradient) on_gradient(tensor, held_.back().const_data_ptr<float>());
  }
  void Release() { held_.clear(); }

 private:
  std::vector<at::Tensor> held_;
};

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_HELD_GRADIENTS_H_
