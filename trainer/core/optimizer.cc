#include "trainer/core/optimizer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "trainer/core/name_pattern.h"
#include "trainer/core/optimizers/optimizers.h"
#include "trainer/core/sandblaster/vectors.h"
#include "trainer/core/schedule.h"

namespace downpour::core {
namespace {

bool IsGapAware(const v1::OptimizerConfig& config) {
  return config.staleness_aware() && config.staleness_rule() == v1::STALENESS_GAP;
}

// Compared so that what is not a number fails.
absl::Status Check(const v1::OptimizerConfig& config) {
  if (config.type() == v1::LBFGS) {
    if (config.history() != 0 && config.history() <= sandblaster::kMostHistory) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("history ", config.history(), ": must be 1 to ", sandblaster::kMostHistory));
  }
  const auto refuse = [](const char* name, double value, const char* expected) {
    return absl::InvalidArgumentError(absl::StrCat(name, " ", value, ": must be ", expected));
  };
  const auto positive = [](double value) {
    return value <= std::numeric_limits<float>::max() && static_cast<float>(value) > 0;
  };
  const auto fraction = [](double value) { return value >= 0 && value < 1; };
  const auto at_least_0 = [](double value) { return value >= 0 && value <= std::numeric_limits<float>::max(); };
  const bool adam = config.type() == v1::ADAM || config.type() == v1::ADAM_W || config.type() == v1::LAMB;
  const bool compensated = config.type() == v1::DELAY_COMPENSATED_SGD;
  const bool averaged =
      config.type() == v1::RMS_PROP || (compensated && config.compensation() == v1::COMPENSATION_ADAPTIVE);
  const char* const kPositive = "finite and greater than 0 as a float32";
  const char* const kFraction = "at least 0 and below 1";
  const char* const kAtLeast0 = "finite and at least 0";
  if (!positive(config.learning_rate())) return refuse("learning rate", config.learning_rate(), kPositive);
  if (!at_least_0(config.weight_decay())) return refuse("weight decay", config.weight_decay(), kAtLeast0);
  if (!fraction(config.momentum())) return refuse("momentum", config.momentum(), kFraction);
  if (adam && !fraction(config.beta1())) return refuse("beta1", config.beta1(), kFraction);
  if (adam && !fraction(config.beta2())) return refuse("beta2", config.beta2(), kFraction);
  if ((adam || averaged || config.type() == v1::ADAGRAD) && !positive(config.epsilon())) {
    return refuse("epsilon", config.epsilon(), kPositive);
  }
  if (averaged && !fraction(config.decay())) return refuse("decay", config.decay(), kFraction);
  if (!at_least_0(config.initial_accumulator())) {
    return refuse("initial accumulator", config.initial_accumulator(), kAtLeast0);
  }
  if (!at_least_0(config.lambda())) return refuse("lambda", config.lambda(), kAtLeast0);
  return CheckSchedule(config.schedule());
}

std::unique_ptr<VectorOptimizer> Create(const v1::OptimizerConfig& config, double weight_decay,
                                        std::uint32_t elements) {
  switch (config.type()) {
    case v1::SGD:
      return CreateSgd(weight_decay);
    case v1::MOMENTUM:
    case v1::NESTEROV:
      return CreateMomentum(config, weight_decay, elements);
    case v1::ADAGRAD:
      return CreateAdagrad(config, weight_decay, elements);
    case v1::RMS_PROP:
      return CreateRmsProp(config, weight_decay, elements);
    case v1::ADAM:
    case v1::ADAM_W:
      return CreateAdam(config, weight_decay, elements);
    case v1::LAMB:
      return CreateLamb(config, weight_decay, elements);
    case v1::DELAY_COMPENSATED_SGD:
      return CreateDelayCompensatedSgd(config, weight_decay, elements);
    default:
      return nullptr;
  }
}

// With the staleness rule around it; null: the type is not known.
std::unique_ptr<Optimizer> CreateWhole(const v1::OptimizerConfig& config, double weight_decay, std::uint32_t elements) {
  if (config.type() == v1::LBFGS) return std::make_unique<sandblaster::Vectors>(config.history(), elements);
  std::unique_ptr<VectorOptimizer> optimizer = Create(config, weight_decay, elements);
  if (optimizer == nullptr || !IsGapAware(config)) return optimizer;
  return CreateGapAware(std::move(optimizer), config.learning_rate(), elements);
}

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

absl::StatusOr<std::unique_ptr<Optimizer>> CreateOptimizer(const v1::OptimizerConfig& config, absl::string_view tensor,
                                                           std::uint32_t elements) {
  if (absl::Status valid = Check(config); !valid.ok()) return valid;
  std::unique_ptr<Optimizer> optimizer = CreateWhole(config, WeightDecayOf(config, tensor), elements);
  if (optimizer == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("optimizer ", v1::OptimizerType_Name(config.type()), " is not supported yet"));
  }
  return optimizer;
}

double WeightDecayOf(const v1::OptimizerConfig& config, absl::string_view tensor) {
  const bool decays = std::none_of(config.no_decay().begin(), config.no_decay().end(),
                                   [tensor](const std::string& pattern) { return MatchesName(pattern, tensor); });
  return decays ? config.weight_decay() : 0;
}

std::string OptimizerStateType(const v1::OptimizerConfig& config) {
  const std::unique_ptr<Optimizer> optimizer = CreateWhole(config, config.weight_decay(), /*elements=*/0);
  return optimizer == nullptr ? "unknown" : optimizer->type();
}

bool NeedsPulledValues(const v1::OptimizerConfig& config) {
  return config.type() == v1::DELAY_COMPENSATED_SGD || IsGapAware(config);
}

absl::Status CheckNoDecay(const v1::OptimizerConfig& config, absl::Span<const v1::TensorSpec> tensors) {
  for (int i = 0; i < config.no_decay_size(); ++i) {
    std::string names;
    const bool matched = std::any_of(tensors.begin(), tensors.end(), [&](const v1::TensorSpec& tensor) {
      if (tensor.kind() == v1::BUFFER) return false;
      absl::StrAppend(&names, names.empty() ? "" : ", ", tensor.name());
      return MatchesName(config.no_decay(i), tensor.name());
    });
    if (matched) continue;
    return absl::InvalidArgumentError(absl::StrCat("spec.update.optimizer.noDecay[", i,
                                                   "]: no trained parameter is called \"", config.no_decay(i),
                                                   "\"; there are ", names));
  }
  return absl::OkStatus();
}

double StalenessScale(std::uint64_t staleness, std::uint32_t clamp) {
  const std::uint64_t most = clamp == 0 ? 32 : clamp;
  return 1.0 / static_cast<double>(std::max<std::uint64_t>(1, std::min(staleness, most)));
}

}  // namespace downpour::core
