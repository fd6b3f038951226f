#ifndef DOWNPOUR_TRAINER_MODEL_NETWORK_H_
#define DOWNPOUR_TRAINER_MODEL_NETWORK_H_

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trainer/model/layers.h"

// Networks in LibTorch's terms: internal to the backend.
namespace downpour::model {

// A value of a batch on its way through a network; `lengths` of a sequence that is ragged, i64 [N] on the CPU.
struct Flow {
  torch::Tensor value;
  torch::Tensor lengths;
};

struct NamedTensor {
  std::string name;
  torch::Tensor value;
};

// Not thread-safe. What LibTorch or the network throws, its methods throw.
class Network {
 public:
  virtual ~Network() = default;

  // The tensors that it computes with, by the names of its state_dict, in the order of registration.
  virtual std::vector<NamedTensor> Parameters() const = 0;
  virtual std::vector<NamedTensor> Buffers() const = 0;
  // Puts the tensors of Buffers() back in their places, if it is a network that puts others there when it computes.
  virtual void PutBack(const std::vector<torch::Tensor>& /*buffers*/) {}

  virtual void Train(bool on) = 0;            // on at first
  virtual void To(torch::Device device) = 0;  // the tensors stay the same objects

  // The part of a sample, from its first row and column, that reaches the output. Where a window does not fit at the
  // border, the input behind it has no influence and a gradient of zero; leaving it out saves its computation.
  virtual const std::vector<std::int64_t>& used_shape() const = 0;
  // Whether there are convolutions, for which the layout of images and kernels may be chosen.
  virtual bool has_convolutions() const { return false; }
  // Whether a layout of LayoutChoice::kFused would compute anything differently.
  virtual bool can_fuse() const { return false; }

  // Whether it may draw in training mode.
  virtual bool draws() const { return true; }

  // Has `use` called in Forward before a layer computes with its tensors, with its name: what they are called before
  // the first ".". False: this network does not tell.
  virtual bool TellUse(const std::function<void(const std::string& layer)>& /*use*/) { return false; }

  // Inputs [N, used_shape...] -> outputs [N, ...]. In training mode it draws from LibTorch's default generator and
  // changes its buffers.
  virtual torch::Tensor Forward(const Flow& samples, bool fused) = 0;
};

// Undoes at its end what was done to the buffers meanwhile.
class BuffersAsBefore {
 public:
  explicit BuffersAsBefore(Network& network) : network_(network) {
    for (const NamedTensor& named : network.Buffers()) {
      buffers_.push_back(named.value);
      values_.push_back(named.value.clone());
    }
  }
  ~BuffersAsBefore() {
    const torch::NoGradGuard no_grad;
    network_.PutBack(buffers_);
    for (std::size_t i = 0; i < buffers_.size(); ++i) buffers_[i].copy_(values_[i]);
  }
  BuffersAsBefore(const BuffersAsBefore&) = delete;
  BuffersAsBefore& operator=(const BuffersAsBefore&) = delete;

  // As they were at first, in the order of Buffers().
  const std::vector<torch::Tensor>& values() const { return values_; }

 private:
  Network& network_;
  std::vector<torch::Tensor> buffers_;
  std::vector<torch::Tensor> values_;
};

// What LibTorch names, without what is undefined (the buffers of a BatchNorm that tracks nothing).
inline std::vector<NamedTensor> Named(const torch::OrderedDict<std::string, torch::Tensor>& tensors) {
  std::vector<NamedTensor> named;
  for (const auto& tensor : tensors) {
    if (tensor.value().defined()) named.push_back({tensor.key(), tensor.value()});
  }
  return named;
}

// With all parameters set: a pure function of the arguments.
std::shared_ptr<Network> MakeLayerNetwork(const LayerPlan& plan, const data::Field& input, std::uint64_t seed);

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_NETWORK_H_
