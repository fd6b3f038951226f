#ifndef DOWNPOUR_TRAINER_MODEL_GRADIENT_SUM_H_
#define DOWNPOUR_TRAINER_MODEL_GRADIENT_SUM_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "trainer/data/fields.h"
#include "trainer/model/model.h"

namespace downpour::model {

// Adds up what the replicas of a model compute in a step, tensor by tensor, wherever their gradients are. Each replica
// computes on a thread of its own, while one more thread takes the sums.
class GradientSum {
 public:
  virtual ~GradientSum() = default;

  // A step begins, and nobody is at work on the one before: what replica r computes counts weights[r]. One with a
  // weight of 0 computes nothing.
  virtual absl::Status Begin(absl::Span<const float> weights) = 0;
  // On the thread of a replica: computes its gradients, by whichever call of the model suits, and gives them. `on_loss`
  // is as of that call: where it returns false, no gradients are wanted of any replica. Errors are those of the call.
  virtual absl::StatusOr<StepResult> Compute(std::size_t replica, Model& model, const data::Batch& part,
                                             std::uint64_t seed, const Model::OnLoss& on_loss) = 0;
  // Nobody gives any more: all have, or one has failed.
  virtual void End() = 0;

  struct Sum {
    std::size_t tensor = 0;
    absl::Span<const float> values;  // valid until the next Begin
  };
  // Waits for a tensor that all have given, in the order in which that came about. None: it has ended, and there are no
  // others.
  virtual std::optional<Sum> Next() = 0;

  // For people, behind the description of the model; empty: nothing is to be said.
  virtual std::string description() const { return ""; }
};

// In the memory of the host: the sum is made by the thread that takes it, in the order of the replicas, with the same
// bits each time.
class HostGradientSum final : public GradientSum {
 public:
  // `description`: as above.
  HostGradientSum(std::size_t replicas, std::size_t tensors, std::string description = "");

  absl::Status Begin(absl::Span<const float> weights) override;
  absl::StatusOr<StepResult> Compute(std::size_t replica, Model& model, const data::Batch& part, std::uint64_t seed,
                                     const Model::OnLoss& on_loss) override;
  // One gradient of a replica, of a tensor that it has not given in this step.
  void Give(std::size_t replica, std::size_t tensor, absl::Span<const float> gradient);
  void End() override;
  std::optional<Sum> Next() override;
  std::string description() const override { return description_; }

 private:
  const std::string description_;
  std::vector<float> weights_;
  // By replica and tensor: a weight times a gradient. Who gives writes it, who takes reads it after that.
  std::vector<std::vector<std::vector<float>>> given_;
  absl::Mutex mutex_;
  std::vector<std::size_t> missing_ ABSL_GUARDED_BY(mutex_);  // by tensor: replicas that have not given it
  std::deque<std::size_t> complete_ ABSL_GUARDED_BY(mutex_);  // tensors that nobody has taken
  bool ended_ ABSL_GUARDED_BY(mutex_) = true;
};

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_GRADIENT_SUM_H_
