#ifndef DOWNPOUR_TRAINER_CORE_OPTIMIZER_H_
#define DOWNPOUR_TRAINER_CORE_OPTIMIZER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "downpour/v1/config.pb.h"
#include "downpour/v1/control.pb.h"
#include "trainer/core/codec/encoded_gradient.h"
#include "trainer/core/frame.h"
#include "trainer/core/slice_snapshot.h"

namespace downpour::core {

// What a step depends on beside the slice and the gradient.
struct StepContext {
  double learning_rate = 0;  // as the schedule has it (schedule.h), with what the staleness rule makes of it
  double factor = 1;         // multiplies the gradient before anything else
  std::uint64_t staleness = 0;
  // The value that the gradient was computed with; null where it is not known or not asked for (NeedsPulledValues).
  const std::vector<float>* pulled = nullptr;
  // Of the update, the mean over its samples.
  double loss = 0;
  std::uint32_t samples = 0;
};

namespace sandblaster {
class Vectors;
}

// The update rule of a server. One instance belongs to one slice and holds that slice's state (accumulators, moments).
// Not thread-safe. The result is a function of (state, value, gradient, context) alone, whatever segments the gradient
// comes in, so that a replica that is given the same computes the same bits.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // updated[i] = the new value[i]; `updated` may be `value` itself. `gradient` is of as many values.
  virtual void Step(absl::Span<const float> value, const EncodedGradient& gradient, const StepContext& context,
                    absl::Span<float> updated) = 0;
  // False: a step leaves the value as it is, and writes nothing to `updated`.
  virtual bool writes_value() const { return true; }
  // An update that has no step, as its loss or gradient was not finite.
  virtual void Skip() {}
  // What carries out commands on vectors; null: another rule.
  virtual sandblaster::Vectors* search_vectors() { return nullptr; }
  virtual const sandblaster::Vectors* search_vectors() const { return nullptr; }

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

// For a slice of the parameter `tensor`, which says whether its weights decay. kUnimplemented: a type that is not
// known; kInvalidArgument: a learning rate that is not finite and greater than 0 as the float32 that is used, or
// another number that the type or the schedule uses and that is outside its range.
absl::StatusOr<std::unique_ptr<Optimizer>> CreateOptimizer(const v1::OptimizerConfig& config, absl::string_view tensor,
                                                           std::uint32_t elements);

// The weight decay of that parameter.
double WeightDecayOf(const v1::OptimizerConfig& config, absl::string_view tensor);

// Optimizer::type of what CreateOptimizer makes of it: where it differs, state cannot be taken over.
std::string OptimizerStateType(const v1::OptimizerConfig& config);

// Whether steps need StepContext::pulled.
bool NeedsPulledValues(const v1::OptimizerConfig& config);

// kInvalidArgument: a pattern of `config.no_decay` is the name of none of the parameters among `tensors`.
absl::Status CheckNoDecay(const v1::OptimizerConfig& config, absl::Span<const v1::TensorSpec> tensors);

// 1 / max(1, min(staleness, clamp)): the staleness-aware learning rate of Zhang, Gupta, Lian and Liu 2015
// ("Staleness-aware Async-SGD for Distributed Deep Learning", section 3.2); a clamp of 0 means 32.
double StalenessScale(std::uint64_t staleness, std::uint32_t clamp);

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_OPTIMIZER_H_
