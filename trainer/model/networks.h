#ifndef DOWNPOUR_TRAINER_MODEL_NETWORKS_H_
#define DOWNPOUR_TRAINER_MODEL_NETWORKS_H_

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

// The networks, in LibTorch's terms: internal to the backend.
namespace downpour::model {

class Network : public torch::nn::Module {
 public:
  // The part of a sample, from its first row and column, that reaches the logits. Where a pooling window does not fit
  // at the border, the input behind it has no influence and a gradient of zero; leaving it out saves its computation.
  const std::vector<std::int64_t>& used_shape() const { return used_shape_; }

  virtual bool has_convolutions() const = 0;

  // samples [N, used_shape...] -> logits [N, classes]. `fused`: by PooledConvolution.
  virtual torch::Tensor Forward(const torch::Tensor& samples, bool fused) = 0;

 protected:
  std::vector<std::int64_t> used_shape_;
};

// With all parameters set: a pure function of the arguments. Errors as of CreateModel.
absl::StatusOr<std::shared_ptr<Network>> MakeNetwork(const std::string& name,
                                                     const std::vector<std::int64_t>& sample_shape, int classes,
                                                     std::uint64_t seed);

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_NETWORKS_H_
