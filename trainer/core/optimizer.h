#ifndef DOWNPOUR_TRAINER_CORE_OPTIMIZER_H_
#define DOWNPOUR_TRAINER_CORE_OPTIMIZER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "downpour/v1/config.pb.h"
#include "trainer/core/frame.h"
#include "trainer/core/slice_snapshot.h"

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

  // The name of the rule in files.
  virtual std::string type() const = 0;
  // How many vectors of a slice's size it keeps.
  virtual std::size_t vectors() const { return 0; }
  // What it remembers, sharing memory: Step does not write what is shared. A rule without memory need not override this
  // and Import.
  virtual OptimizerState Export() const { return {type(), {}, {}}; }
  // Goes on from `state`. kInvalidArgument: of another rule, or of another shape; then it stays as it was.
  virtual absl::Status Import(const OptimizerState& state);
  // The same with a life of its own, sharing memory.
  virtual std::unique_ptr<Optimizer> Clone() const = 0;
};

// kUnimplemented: a type that is not carried out yet; kInvalidArgument: a learning rate that is not finite and greater
// than 0 as the float32 that is used.
absl::StatusOr<std::unique_ptr<Optimizer>> CreateOptimizer(const v1::OptimizerConfig& config, std::uint32_t elements);

// 1 / max(1, min(staleness, clamp)): the staleness-aware learning rate of Zhang, Gupta, Lian and Liu 2015
// ("Staleness-aware Async-SGD for Distributed Deep Learning", section 3.2); a clamp of 0 means 32.
double StalenessScale(std::uint64_t staleness, std::uint32_t clamp);

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_OPTIMIZER_H_
