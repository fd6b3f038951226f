#include "trainer/core/optimizer.h"

#include <algorithm>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace downpour::core {
namespace {

// Cloned for wider vectors. Not under sanitizers: the resolvers of clones run before these are set up.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
__attribute__((target_clones("default", "avx2", "avx512f")))
#endif
void SgdStep(const float* value, const float* gradient,
                                                                           float rate, std::size_t count,
                                                                           float* updated) {
  for (std::size_t i = 0; i < count; ++i) updated[i] = value[i] - rate * gradient[i];
}

class Sgd final : public Optimizer {
 public:
  void Step(absl::Span<const float> value, const Payload& gradient, double learning_rate,
            absl::Span<float> updated) override {
    const float rate = static_cast<float>(learning_rate);
    gradient.ForEachFloats([&](std::size_t first, absl::Span<const float> run) {
      SgdStep(value.data() + first, run.data(), rate, run.size(), updated.data() + first);
    });
  }
  std::string type() const override { return "SGD"; }
  std::unique_ptr<Optimizer> Clone() const override { return std::make_unique<Sgd>(); }
};

}  // namespace

absl::Status Optimizer::Import(const OptimizerState& state) {
  if (state.type != type()) {
    return absl::InvalidArgumentError(absl::StrCat("the state of ", state.type, ", expected that of ", type()));
  }
  if (!state.vectors.empty() || !state.scalars.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(state.vectors.size(), " vectors and ", state.scalars.size(), " scalars, ", type(), " has none"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Optimizer>> CreateOptimizer(const v1::OptimizerConfig& config, std::uint32_t) {
  if (config.type() != v1::SGD) {
    return absl::UnimplementedError(
        absl::StrCat("optimizer ", v1::OptimizerType_Name(config.type()), " is not supported yet"));
  }
  const double rate = config.learning_rate();
  if (!(rate <= std::numeric_limits<float>::max() && static_cast<float>(rate) > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("learning rate ", rate, ": must be finite and greater than 0 as a float32"));
  }
  return std::make_unique<Sgd>();
}

double StalenessScale(std::uint64_t staleness, std::uint32_t clamp) {
  const std::uint64_t most = clamp == 0 ? 32 : clamp;
  return 1.0 / static_cast<double>(std::max<std::uint64_t>(1, std::min(staleness, most)));
}

}  // namespace downpour::core
