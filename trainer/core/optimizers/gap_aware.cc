#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/core/optimizers/kernel.h"
#include "trainer/core/optimizers/optimizers.h"

namespace downpour::core {
namespace {

constexpr double kDecay = 0.999;
constexpr double kEpsilon = 1e-8;
constexpr std::size_t kBlock = 1024;  // stays in the nearest cache on its way to the rule inside

struct Coefficients {
  float factor = 1;
  float root_bias = 0;  // 1 / square root of the bias of the moving average
  float base_rate;
};

DOWNPOUR_KERNEL void Penalise(const VectorOptimizer::Run run, const Coefficients c, float* const square,
                              float* const penalised) {
  const float keep = static_cast<float>(kDecay);
  const float add = static_cast<float>(1 - kDecay);
  const float epsilon = static_cast<float>(kEpsilon);
  DOWNPOUR_INDEPENDENT_STEPS
  for (std::size_t i = 0; i < run.count; ++i) {
    const float g = c.factor * run.gradient[i];
    square[i] = keep * square[i] + add * g * g;
    const float step = c.base_rate * (std::sqrt(square[i]) * c.root_bias + epsilon);
    penalised[i] = g / (1 + std::abs(run.value[i] - run.pulled[i]) / step);
  }
}

class GapAware final : public VectorOptimizer {
 public:
  GapAware(std::unique_ptr<VectorOptimizer> inner, double base_rate, std::uint32_t elements)
      : VectorOptimizer(absl::StrCat("GapAware", inner->type())),
        inner_(std::move(inner)),
        coefficients_{.base_rate = static_cast<float>(base_rate)} {
    AddVector("gap_square_avg", elements);
    AddScalar("gap_decay_power", 1);
  }
  GapAware(const GapAware& other)
      : VectorOptimizer(other),
        inner_(static_cast<VectorOptimizer*>(other.inner_->Clone().release())),
        coefficients_(other.coefficients_) {}

  void OnBegin(const StepContext& context) override {
    scalar(0) *= kDecay;
    coefficients_.factor = static_cast<float>(context.factor);
    coefficients_.root_bias = static_cast<float>(1 / std::sqrt(1 - scalar(0)));
    StepContext inside = context;
    inside.factor = 1;
    inner_->Begin(inside);
  }
  void StepRun(const Run& run) override {
    float penalised[kBlock];
    for (std::size_t at = 0; at < run.count; at += kBlock) {
      Run block{run.first + at,  std::min(kBlock, run.count - at), run.value + at, run.gradient + at, run.pulled + at,
                run.updated + at};
      Penalise(block, coefficients_, vector(0, block.first), penalised);
      block.gradient = penalised;
      inner_->StepRun(block);
    }
  }
  void End(absl::Span<const float> value, absl::Span<float> updated) override { inner_->End(value, updated); }

  std::size_t vectors() const override { return VectorOptimizer::vectors() + inner_->vectors(); }
  // Its own first, then those of the rule inside.
  OptimizerState Export() const override {
    OptimizerState state = VectorOptimizer::Export();
    const OptimizerState inside = inner_->Export();
    state.vectors.insert(state.vectors.end(), inside.vectors.begin(), inside.vectors.end());
    state.scalars.insert(state.scalars.end(), inside.scalars.begin(), inside.scalars.end());
    return state;
  }
  absl::Status Import(const OptimizerState& state) override {
    const auto vectors = state.vectors.begin() + std::min<std::ptrdiff_t>(1, std::ssize(state.vectors));
    const auto scalars = state.scalars.begin() + std::min<std::ptrdiff_t>(1, std::ssize(state.scalars));
    const OptimizerState own{state.type, {state.vectors.begin(), vectors}, {state.scalars.begin(), scalars}};
    if (absl::Status fits = Check(own); !fits.ok()) return fits;
    absl::Status taken =
        inner_->Import({inner_->type(), {vectors, state.vectors.end()}, {scalars, state.scalars.end()}});
    if (taken.ok()) Take(own);
    return taken;
  }
  std::unique_ptr<Optimizer> Clone() const override { return std::make_unique<GapAware>(*this); }

 private:
  std::unique_ptr<VectorOptimizer> inner_;
  Coefficients coefficients_;
};

}  // namespace

std::unique_ptr<VectorOptimizer> CreateGapAware(std::unique_ptr<VectorOptimizer> inner, double base_rate,
                                                std::uint32_t elements) {
  return std::make_unique<GapAware>(std::move(inner), base_rate, elements);
}

}  // namespace downpour::core
