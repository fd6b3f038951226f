#ifndef DOWNPOUR_TRAINER_CORE_STEP_SUM_H_
#define DOWNPOUR_TRAINER_CORE_STEP_SUM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "trainer/core/codec/encoded_gradient.h"
#include "trainer/core/frame.h"
#include "trainer/core/slice_snapshot.h"

namespace downpour::core {

// What has arrived of a step of mode SYNCHRONOUS at one slice: the sum of its gradients, each times its samples. Part
// of the slice's state, beside what the optimizer remembers. Copies share memory until one of them is written. Not
// thread-safe.
class StepSum {
 public:
  // Nothing but skipped updates, or nothing at all.
  bool empty() const { return samples_ == 0; }
  // Of the steps that it is of; 0: of none.
  std::uint32_t width() const { return width_; }
  // The learning rate of the step.
  double learning_rate() const { return learning_rate_; }
  // `gradient` has `elements` values and is the mean over so many samples; `factor` multiplies it.
  void Add(std::uint32_t width, const EncodedGradient& gradient, std::size_t elements, double factor,
           std::uint64_t samples, double learning_rate);
  // The mean over all samples, which is the gradient of one minibatch that has all of them. It must not be empty, and
  // is from then on; the result is good until the next Add.
  Payload TakeMean();

  void Export(OptimizerState* state) const;
  // Takes what Export wrote out of `state`, if anything is there. A sum of a version without schedules says no learning
  // rate: it is `learning_rate`. kInvalidArgument: another size, or half of it.
  absl::Status Import(OptimizerState* state, std::size_t elements, double learning_rate);

 private:
  std::shared_ptr<std::vector<float>> sum_;
  double samples_ = 0;
  std::uint32_t width_ = 0;
  double learning_rate_ = 0;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_STEP_SUM_H_
