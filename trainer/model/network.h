#ifndef DOWNPOUR_TRAINER_MODEL_NETWORK_H_
#define DOWNPOUR_TRAINER_MODEL_NETWORK_H_

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/model/layers.h"

// Networks in LibTorch's terms: internal to the backend.
namespace downpour::model {

// A value of a batch on its way through a network; `lengths` of a sequence that is ragged, i64 [N] on the CPU.
struct Flow {
  torch::Tensor value;
  torch::Tensor lengths;
};

class Network : public torch::nn::Module {
 public:
  // The part of a sample, from its first row and column, that reaches the output. Where a window does not fit at the
  // border, the input behind it has no influence and a gradient of zero; leaving it out saves its computation.
  virtual const std::vector<std::int64_t>& used_shape() const = 0;
  virtual bool has_convolutions() const = 0;
  // Whether a layout of LayoutChoice::kFused would compute anything differently.
  virtual bool can_fuse() const = 0;

  // Inputs [N, used_shape...] -> outputs [N, ...]. In training mode it draws from LibTorch's default generator and
  // changes its buffers.
  virtual torch::Tensor Forward(const Flow& samples, bool fused) = 0;
};

// With all parameters set: a pure function of the arguments.
std::shared_ptr<Network> MakeLayerNetwork(const LayerPlan& plan, const data::Field& input, std::uint64_t seed);

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_NETWORK_H_
