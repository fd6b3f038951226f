#ifndef DOWNPOUR_TRAINER_CORE_TESTING_MOMENTUM_H_
#define DOWNPOUR_TRAINER_CORE_TESTING_MOMENTUM_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "trainer/core/optimizer.h"
#include "trainer/core/sole_owner.h"

namespace downpour::core {

// A rule with memory, for tests: v = v / 2 + gradient, value -= rate x v; and a count of its steps.
class TestMomentum final : public Optimizer {
 public:
  explicit TestMomentum(std::uint32_t elements) : velocity_(std::make_shared<std::vector<float>>(elements)) {}

  void Step(absl::Span<const float> value, const EncodedGradient& gradient, const StepContext& context,
            absl::Span<float> updated) override {
    if (!SoleOwner(velocity_)) velocity_ = std::make_shared<std::vector<float>>(*velocity_);
    ++steps_;
    gradient.ForEachFloats(value.size(), [&](std::size_t first, absl::Span<const float> run) {
      for (std::size_t i = first; i < first + run.size(); ++i) {
        (*velocity_)[i] = (*velocity_)[i] / 2 + run[i - first];
        updated[i] = value[i] - static_cast<float>(context.learning_rate) * (*velocity_)[i];
      }
    });
  }
  std::string type() const override { return "TestMomentum"; }
  std::size_t vectors() const override { return 1; }
  OptimizerState Export() const override { return {type(), {{"velocity", velocity_}}, {{"steps", steps_}}}; }
  absl::Status Import(const OptimizerState& state) override {
    if (state.type != type() || state.vectors.size() != 1 || state.scalars.size() != 1 ||
        state.vectors[0].values->size() != velocity_->size()) {
      return absl::InvalidArgumentError("not the state of a TestMomentum of this size");
    }
    velocity_ = std::make_shared<std::vector<float>>(*state.vectors[0].values);
    steps_ = state.scalars[0].value;
    return absl::OkStatus();
  }
  std::unique_ptr<Optimizer> Clone() const override { return std::make_unique<TestMomentum>(*this); }

 private:
  std::shared_ptr<std::vector<float>> velocity_;
  double steps_ = 0;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_TESTING_MOMENTUM_H_
