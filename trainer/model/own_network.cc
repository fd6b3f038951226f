#include "trainer/model/own_network.h"

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "trainer/model/plugin_network.h"
#include "trainer/model/thrown.h"
#include "trainer/model/torch_types.h"

namespace downpour::model {
namespace {

constexpr std::int64_t kSamples = 2;

// Why it cannot be shared; empty: it can.
std::string Trouble(const NamedTensor& named, bool buffer) {
  const torch::Tensor& value = named.value;
  if (value.numel() == 0) return " is empty";
  if (value.scalar_type() == torch::kFloat) return "";
  const std::string is = absl::StrCat(" is ", c10::toString(value.scalar_type()));
  if (!buffer) return is + ", expected Float";
  if (!c10::isIntegralType(value.scalar_type(), /*includeBool=*/true)) return is + ", expected Float or integers";
  return value.to(torch::kFloat).to(value.scalar_type()).equal(value) ? "" : is + " and has values that fp32 has not";
}

torch::Tensor Zeros(const data::Field& field, std::int64_t longest, torch::Device device) {
  std::vector<std::int64_t> shape = field.shape;
  if (field.ragged()) shape.front() = longest;
  shape.insert(shape.begin(), kSamples);
  return AsPromised(torch::zeros(shape, torch::TensorOptions(TorchType(field.type)).device(device)));
}

}  // namespace

absl::Status CheckTensors(const Network& network, const std::string& where) {
  std::map<const void*, std::string> owners;
  const auto check = [&](const std::vector<NamedTensor>& tensors, bool buffer) -> absl::Status {
    const char* kind = buffer ? ": the buffer " : ": the parameter ";
    for (const NamedTensor& named : tensors) {
      if (const std::string trouble = Trouble(named, buffer); !trouble.empty()) {
        return absl::InvalidArgumentError(absl::StrCat(where, kind, named.name, trouble));
      }
      const auto [owner, first] = owners.emplace(named.value.const_data_ptr(), named.name);
      if (first) continue;
      return absl::InvalidArgumentError(absl::StrCat(where, kind, named.name, " has the memory of ", owner->second,
                                                     ": tied weights cannot be trained"));
    }
    return absl::OkStatus();
  };
  if (absl::Status parameters = check(network.Parameters(), false); !parameters.ok()) return parameters;
  return check(network.Buffers(), true);
}

absl::StatusOr<Value> TryOut(Network& network, const data::Field& input, torch::Device device,
                             const std::string& where) {
  constexpr std::int64_t kLongest = 16;
  const torch::NoGradGuard no_grad;
  Flow samples{Zeros(input, kLongest, device), {}};
  if (input.ragged()) samples.lengths = torch::tensor({kLongest, kLongest / 2});
  torch::Tensor output;
  const BuffersAsBefore buffers(network);
  network.Train(false);
  try {
    output = network.Forward(samples, /*fused=*/false);
  } catch (...) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, " threw, given two samples of ", data::ToString(input), ": ", WhatWasThrown()));
  }
  network.Train(true);
  if (!output.defined() || output.dim() == 0 || output.size(0) != kSamples) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, " made ", output.defined() ? data::ShapeText(output.sizes().vec()) : "nothing",
                     " of two samples of ", data::ToString(input), ", expected [2, ...], one output a sample"));
  }
  return Value{!output.is_floating_point(), 0, output.sizes().slice(1).vec()};
}

Sum MeasureOwn(const plugin::Measure& measure, const torch::Tensor& output, const torch::Tensor& target) {
  Sum measured = measure(output, AsPromised(target));
  TORCH_CHECK(measured.sum.defined() && measured.sum.numel() == 1, "the sum is not one value");
  return measured;
}

absl::Status TryOut(const plugin::Registry& own, const Objective& objective, const Value& output,
                    const data::Field& target, torch::Device device) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor zeros = Zeros({"", data::ElementType::kF32, output.shape}, 1, device);
  const torch::Tensor targets = Zeros(target, 1, device);
  const auto measure = [&](const plugin::Measure& one, const std::string& path, const std::string& name) {
    try {
      MeasureOwn(one, zeros, targets);
      return absl::OkStatus();
    } catch (...) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": ", name, " threw, given two outputs of ",
                                                     ToString(output), " and two of ", data::ToString(target), ": ",
                                                     WhatWasThrown()));
    }
  };
  if (!objective.own_loss.empty()) {
    absl::Status loss = measure(*FindNamed(own.losses, objective.own_loss), "spec.model.loss.type", objective.own_loss);
    if (!loss.ok()) return loss;
  }
  for (std::size_t i = 0; i < objective.metrics.size(); ++i) {
    const std::string& name = objective.metrics[i].own;
    if (name.empty()) continue;
    absl::Status metric = measure(*FindNamed(own.metrics, name), absl::StrCat("spec.model.metrics[", i, "]"), name);
    if (!metric.ok()) return metric;
  }
  return absl::OkStatus();
}

}  // namespace downpour::model
