#include "trainer/model/torch_script_network.h"

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

#include <filesystem>
#include <stdexcept>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "trainer/model/thrown.h"
#include "trainer/model/torch_types.h"

namespace downpour::model {
namespace {

constexpr char kPath[] = "spec.model.torchScript.path: ";

// Where an attribute of a module is kept.
struct Slot {
  std::string name;  // "conv1.weight"
  c10::intrusive_ptr<c10::ivalue::Object> owner;
  std::size_t index;
  c10::IValue value;  // as saved

  c10::IValue Get() const { return owner->getSlot(index); }
  void Set(c10::IValue to) const { owner->setSlot(index, std::move(to)); }
};

class TorchScriptNetwork final : public Network {
 public:
  TorchScriptNetwork(torch::jit::Module module, std::vector<std::int64_t> input_shape, bool with_lengths)
      : module_(std::move(module)), input_shape_(std::move(input_shape)), with_lengths_(with_lengths) {
    for (const auto& named : module_.named_modules()) {
      const c10::intrusive_ptr<c10::ivalue::Object> owner = named.value._ivalue();
      const c10::ClassTypePtr type = owner->type();
      for (std::size_t i = 0; i < type->numAttributes(); ++i) {
        const std::string& name = type->getAttributeName(i);
        const Slot slot{named.name.empty() ? name : absl::StrCat(named.name, ".", name), owner, i, owner->getSlot(i)};
        const bool tensor = slot.value.isTensor() && slot.value.toTensor().defined();
        if (tensor && type->is_parameter(i)) parameters_.push_back({slot.name, slot.value.toTensor()});
        if (tensor && type->is_buffer(i)) buffers_.push_back(slot);
        if (name == "training" && slot.value.isBool()) training_.push_back(slot);
      }
    }
  }

  std::vector<NamedTensor> Parameters() const override { return parameters_; }

  std::vector<NamedTensor> Buffers() const override {
    std::vector<NamedTensor> buffers;
    for (const Slot& slot : buffers_) buffers.push_back({slot.name, slot.Get().toTensor()});
    return buffers;
  }

  // `self.mean = ...` in a module puts another tensor in a buffer's place.
  void PutBack(const std::vector<torch::Tensor>& buffers) override {
    for (std::size_t i = 0; i < buffers.size(); ++i) buffers_[i].Set(buffers[i]);
  }

  void Train(bool on) override {
    for (const Slot& slot : training_) slot.Set(on ? slot.value : c10::IValue(false));
  }

  void To(torch::Device device) override { module_.to(device); }

  const std::vector<std::int64_t>& used_shape() const override { return input_shape_; }

  torch::Tensor Forward(const Flow& samples, bool /*fused*/) override {
    std::vector<c10::IValue> inputs = {AsPromised(samples.value)};
    if (with_lengths_) inputs.emplace_back(samples.lengths);
    // LibTorch would compile anew after the first updates, by what it saw of them, with other rounding.
    const torch::jit::GraphOptimizerEnabledGuard as_written(false);
    const c10::IValue output = module_.forward(std::move(inputs));
    if (!output.isTensor()) {
      throw std::invalid_argument(
          absl::StrCat("forward returned ", output.type()->repr_str(), ", expected one Tensor"));
    }
    return output.toTensor();
  }

 private:
  torch::jit::Module module_;
  const std::vector<std::int64_t> input_shape_;
  const bool with_lengths_;
  std::vector<NamedTensor> parameters_;
  std::vector<Slot> buffers_;
  std::vector<Slot> training_;  // the mode of each module
};

absl::Status Refuse(const std::string& path, absl::string_view reason) {
  return absl::InvalidArgumentError(absl::StrCat(kPath, path, reason));
}

}  // namespace

absl::StatusOr<std::shared_ptr<Network>> LoadTorchScript(const std::string& path, const data::Field& input) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return absl::NotFoundError(absl::StrCat(kPath, "no file ", path));
  torch::jit::Module module;
  try {
    module = torch::jit::load(path, torch::Device(torch::kCPU));
  } catch (...) {
    return Refuse(path, absl::StrCat(" is no TorchScript archive (torch.jit.save): ", WhatWasThrown()));
  }
  const auto forward = module.find_method("forward");
  if (!forward.has_value()) return Refuse(path, " has no method forward");
  const std::vector<c10::Argument>& arguments = forward->function().getSchema().arguments();  // self is the first
  const std::size_t given = input.ragged() && arguments.size() > 2 ? 2 : 1;
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const c10::Argument& argument = arguments[i];
    const bool is_tensor = c10::TensorType::get()->isSubtypeOf(*argument.type());
    if (i <= given ? is_tensor : argument.default_value().has_value()) continue;
    return Refuse(path, absl::StrCat(": forward has a parameter ", argument.name(), ": ", argument.type()->str(),
                                     ", expected ", input.ragged() ? "(words: Tensor, lengths: Tensor)" : "one Tensor",
                                     " for ", data::ToString(input)));
  }
  if (arguments.size() <= given) return Refuse(path, ": forward takes nothing, expected one Tensor");
  auto network = std::make_shared<TorchScriptNetwork>(std::move(module), input.shape, given == 2);
  for (const NamedTensor& named : network->Parameters()) {
    if (named.value.requires_grad()) return network;
  }
  return Refuse(path, network->Parameters().empty()
                          ? " has no parameters to train; torch.jit.freeze makes constants of them"
                          : " has no parameter to train: none requires a gradient");
}

}  // namespace downpour::model
