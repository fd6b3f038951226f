#include "trainer/cuda/device_vectors.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "trainer/core/optimizer.h"
#include "trainer/cuda/device_event.h"
#include "trainer/cuda/device_memory.h"
#include "trainer/cuda/optimizer_step.h"

namespace downpour::cuda {
namespace {

// Values of neighbouring tensors begin at multiples of it: 256 bytes.
constexpr std::size_t kAlignment = 64;

class DeviceVectors final : public core::ReplicaVectors {
 public:
  DeviceVectors(DeviceKernels* kernels, const v1::View& view, absl::Span<const core::Slice> slices,
                const OptimizerStep& step)
      : kernels_(kernels) {
    for (const core::Slice& slice : slices) {
      const v1::TensorSpec& tensor = view.tensors(static_cast<int>(slice.tensor));
      if (slice.tensor == tensors_.size()) {
        elements_ = (elements_ + kAlignment - 1) / kAlignment * kAlignment;
        tensors_.push_back(elements_);
      }
      const bool buffer = tensor.kind() == v1::BUFFER;
      slices_.push_back({elements_,
                         slice.elements,
                         buffer,
                         buffer ? 0 : core::WeightDecayOf(view.optimizer(), tensor.name()),
                         step,
                         {}});
      elements_ += slice.elements;
    }
  }

  absl::Status Allocate(int vectors) {
    absl::StatusOr<DeviceEvent> event = DeviceEvent::Create(kernels_);
    if (!event.ok()) return event.status();
    event_ = *std::move(event);
    for (int i = 0; i <= vectors; ++i) {
      absl::StatusOr<DeviceMemory<float>> memory = DeviceMemory<float>::Allocate(kernels_, elements_);
      if (!memory.ok()) {
        return absl::Status(memory.status().code(), absl::StrCat("values and ", vectors, " vectors of the optimizer, ",
                                                                 (1 + vectors) * elements_ * sizeof(float),
                                                                 " bytes: ", memory.status().message()));
      }
      memory_.push_back(*std::move(memory));
    }
    return absl::OkStatus();
  }

  absl::Status Put(std::uint32_t slice, absl::Span<const float> value, const core::OptimizerState& state) override {
    OfSlice& of = slices_[slice];
    const std::size_t vectors = of.buffer ? 0 : memory_.size() - 1;
    if (value.size() != of.elements || state.vectors.size() != vectors) {
      return absl::InternalError(absl::StrCat("slice ", slice, ": ", value.size(), " values and ", state.vectors.size(),
                                              " vectors, expected ", of.elements, " and ", vectors));
    }
    absl::Status copied = kernels_->Copy(At(0, of), value.data(), value.size() * sizeof(float));
    for (std::size_t i = 0; copied.ok() && i < vectors; ++i) {
      copied = kernels_->Copy(At(i + 1, of), state.vectors[i].values->data(), of.elements * sizeof(float));
    }
    if (!copied.ok()) return copied;
    of.state = state;
    for (core::StateVector& vector : of.state.vectors) vector.values.reset();
    if (state.scalars.size() == 2) of.step.set_powers({state.scalars[0].value, state.scalars[1].value});
    return absl::OkStatus();
  }

  absl::Status Get(std::uint32_t slice, absl::Span<float> value, core::OptimizerState* state) override {
    const OfSlice& of = slices_[slice];
    *state = of.state;
    absl::Status copied = kernels_->Copy(value.data(), At(0, of), value.size() * sizeof(float));
    for (std::size_t i = 0; copied.ok() && i < state->vectors.size(); ++i) {
      auto values = std::make_shared<std::vector<float>>(of.elements);
      copied = kernels_->Copy(values->data(), At(i + 1, of), of.elements * sizeof(float));
      state->vectors[i].values = std::move(values);
    }
    if (state->scalars.size() == 2) {
      state->scalars[0].value = of.step.powers().beta1;
      state->scalars[1].value = of.step.powers().beta2;
    }
    const absl::Status finished = Finish();
    return copied.ok() ? finished : copied;
  }

  absl::Status Step(absl::Span<const SliceStep> steps) override {
    struct Group {
      StepCoefficients coefficients;
      std::vector<StepTensor> tensors;
    };
    std::vector<Group> groups;
    for (const SliceStep& step : steps) {
      OfSlice& of = slices_[step.slice];
      StepTensor tensor{};
      tensor.value = tensor.updated = At(0, of);
      tensor.gradient = step.sum.data();
      tensor.elements = of.elements;
      StepCoefficients coefficients{};
      if (of.buffer) {
        coefficients.rule = kBufferRule;
        coefficients.samples = static_cast<double>(step.samples);
      } else {
        coefficients = of.step.Next(step.learning_rate, step.factor);
        of.step.SetDecay(of.decay, &tensor);
        if (memory_.size() > 1) tensor.first = At(1, of);
        if (memory_.size() > 2) tensor.second = At(2, of);
      }
      auto group = std::find_if(groups.begin(), groups.end(),
                                [&](const Group& one) { return one.coefficients == coefficients; });
      if (group == groups.end()) group = groups.insert(group, {coefficients, {}});
      group->tensors.push_back(tensor);
    }
    for (const Group& group : groups) {
      if (absl::Status taken = kernels_->Step(group.coefficients, group.tensors); !taken.ok()) return taken;
    }
    return absl::OkStatus();
  }

  absl::Status Finish() override { return event_.AwaitAll(); }

  absl::Status Read(absl::Span<const float> from, absl::Span<float> to) override {
    if (absl::Status copied = kernels_->Copy(to.data(), from.data(), to.size() * sizeof(float)); !copied.ok()) {
      return copied;
    }
    return Finish();
  }

  const float* tensor(std::size_t tensor) const override { return memory_.front().data() + tensors_[tensor]; }

 private:
  struct OfSlice {
    std::size_t begin, elements;
    bool buffer;
    double decay;
    OptimizerStep step;
    core::OptimizerState state;  // without its values
  };
  float* At(std::size_t vector, const OfSlice& slice) const { return memory_[vector].data() + slice.begin; }

  DeviceKernels* const kernels_;
  DeviceEvent event_;
  std::size_t elements_ = 0;
  std::vector<std::size_t> tensors_;  // where each begins
  std::vector<OfSlice> slices_;
  std::vector<DeviceMemory<float>> memory_;  // values, then each vector of the optimizer
};

}  // namespace

absl::StatusOr<std::unique_ptr<core::ReplicaVectors>> MakeDeviceVectors(DeviceKernels* kernels, const v1::View& view,
                                                                        absl::Span<const core::Slice> slices) {
  const absl::StatusOr<OptimizerStep> step = OptimizerStep::Create(view.optimizer());
  if (!step.ok()) return step.status();
  auto vectors = std::make_unique<DeviceVectors>(kernels, view, slices, *step);
  if (absl::Status allocated = vectors->Allocate(step->vectors()); !allocated.ok()) return allocated;
  return vectors;
}

}  // namespace downpour::cuda
