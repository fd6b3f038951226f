#include "trainer/core/optimizers/vector_optimizer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/core/sole_owner.h"

namespace downpour::core {

void VectorOptimizer::Step(absl::Span<const float> value, const EncodedGradient& gradient, const StepContext& context,
                           absl::Span<float> updated) {
  Begin(context);
  const float* const pulled = context.pulled == nullptr ? value.data() : context.pulled->data();
  gradient.ForEachFloats(value.size(), [&](std::size_t first, absl::Span<const float> run) {
    StepRun({first, run.size(), value.data() + first, run.data(), pulled + first, updated.data() + first});
  });
  End(value, updated);
}

void VectorOptimizer::Begin(const StepContext& context) {
  for (Vector& vector : vectors_) {
    if (!SoleOwner(vector.values)) vector.values = std::make_shared<std::vector<float>>(*vector.values);
  }
  OnBegin(context);
}

void VectorOptimizer::AddVector(std::string name, std::uint32_t elements, float initial) {
  vectors_.push_back({std::move(name), std::make_shared<std::vector<float>>(elements, initial)});
}

void VectorOptimizer::AddScalar(std::string name, double initial) { scalars_.push_back({std::move(name), initial}); }

OptimizerState VectorOptimizer::Export() const {
  OptimizerState state{type_, {}, scalars_};
  for (const Vector& vector : vectors_) state.vectors.push_back({vector.name, vector.values});
  return state;
}

absl::Status VectorOptimizer::Check(const OptimizerState& state) const {
  if (state.type != type_) {
    return absl::InvalidArgumentError(absl::StrCat("the state of ", state.type, ", expected that of ", type_));
  }
  if (state.vectors.size() != vectors_.size() || state.scalars.size() != scalars_.size()) {
    return absl::InvalidArgumentError(absl::StrCat(state.vectors.size(), " vectors and ", state.scalars.size(),
                                                   " scalars, ", type_, " has ", vectors_.size(), " and ",
                                                   scalars_.size()));
  }
  for (std::size_t i = 0; i < vectors_.size(); ++i) {
    const StateVector& given = state.vectors[i];
    const std::size_t size = given.values == nullptr ? 0 : given.values->size();
    if (given.name != vectors_[i].name || size != vectors_[i].values->size()) {
      return absl::InvalidArgumentError(absl::StrCat("a vector ", given.name, " of ", size, ", ", type_, " has ",
                                                     vectors_[i].name, " of ", vectors_[i].values->size()));
    }
  }
  for (std::size_t i = 0; i < scalars_.size(); ++i) {
    if (state.scalars[i].name != scalars_[i].name) {
      return absl::InvalidArgumentError(
          absl::StrCat("a scalar ", state.scalars[i].name, ", ", type_, " has ", scalars_[i].name));
    }
  }
  return absl::OkStatus();
}

void VectorOptimizer::Take(const OptimizerState& state) {
  for (std::size_t i = 0; i < vectors_.size(); ++i) {
    // The state may be shared: SoleOwner keeps it from being written.
    vectors_[i].values = std::const_pointer_cast<std::vector<float>>(state.vectors[i].values);
  }
  scalars_ = state.scalars;
}

absl::Status VectorOptimizer::Import(const OptimizerState& state) {
  absl::Status fits = Check(state);
  if (fits.ok()) Take(state);
  return fits;
}

}  // namespace downpour::core
