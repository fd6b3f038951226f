#ifndef DOWNPOUR_TRAINER_CORE_OPTIMIZER_H_
#define DOWNPOUR_TRAINER_CORE_OPTIMIZER_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "downpour/v1/config.pb.h"
#include "trainer/core/frame.h"

namespace downpour::core {

// The update rule of a server. One instance belongs to one slice and holds that slice's state (accumulators, moments).
// Not thread-safe. The result is a function of (state, value, gradient, learning rate) alone, so that a replica that is
// given the same computes the same bits.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // updated[i] = the new value[i]; `updated` may be `value` itself. `gradient` holds as many floats.
  virtual void Step(absl::Span<const float> value, const Payload& gradient, double learning_rate,
                    absl::Span<float> updated) = 0;
};

// kUnimplemented: a type that is not carried out yet; kInvalidArgument: a learning rate that is not finite and greater
// than 0 as the float32 that is used.
absl::StatusOr<std::unique_ptr<Optimizer>> CreateOptimizer(const v1::OptimizerConfig& config, std::uint32_t elements);

// 1 / max(1, min(staleness, clamp)): the staleness-aware learning rate of Zhang, Gupta, Lian and Liu 2015
// ("Staleness-aware Async-SGD for Distributed Deep Learning", section 3.2); a clamp of 0 means 32.
double StalenessScale(std::uint64_t staleness, std::uint32_t clamp);

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_OPTIMIZER_H_
