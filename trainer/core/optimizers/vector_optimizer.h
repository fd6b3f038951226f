#ifndef DOWNPOUR_TRAINER_CORE_OPTIMIZERS_VECTOR_OPTIMIZER_H_
#define DOWNPOUR_TRAINER_CORE_OPTIMIZERS_VECTOR_OPTIMIZER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "trainer/core/optimizer.h"

namespace downpour::core {

// An optimizer that goes over a slice run by run, once, and whose memory is vectors of the slice's size and numbers,
// each with a name. Vectors are shared with what was exported and with clones until they are written.
class VectorOptimizer : public Optimizer {
 public:
  // Neighbouring elements. `updated` may be `value`, and is written by nobody else.
  struct Run {
    std::size_t first = 0;  // in the slice
    std::size_t count = 0;
    const float* value = nullptr;
    const float* gradient = nullptr;
    const float* pulled = nullptr;  // StepContext::pulled, or `value`
    float* updated = nullptr;
  };

  void Step(absl::Span<const float> value, const EncodedGradient& gradient, const StepContext& context,
            absl::Span<float> updated) final;

  std::string type() const override { return type_; }
  std::size_t vectors() const override { return vectors_.size(); }
  OptimizerState Export() const override;
  absl::Status Import(const OptimizerState& state) override;

  // A step in parts, for a rule around this one: Begin; StepRun of all runs, in order; End.
  void Begin(const StepContext& context);
  virtual void StepRun(const Run& run) = 0;
  // Of the whole slice. `value` is the one before, where StepRun wrote nothing.
  virtual void End(absl::Span<const float> /*value*/, absl::Span<float> /*updated*/) {}

 protected:
  explicit VectorOptimizer(std::string type) : type_(std::move(type)) {}
  VectorOptimizer(const VectorOptimizer&) = default;
  VectorOptimizer& operator=(const VectorOptimizer&) = delete;

  // In the constructor; the first has the index 0.
  void AddVector(std::string name, std::uint32_t elements, float initial = 0);
  void AddScalar(std::string name, double initial);

  // What stays the same for all runs of the step.
  virtual void OnBegin(const StepContext& context) = 0;
  // Of the step that has begun.
  float* vector(std::size_t index, std::size_t first = 0) { return vectors_[index].values->data() + first; }
  double& scalar(std::size_t index) { return scalars_[index].value; }

  absl::Status Check(const OptimizerState& state) const;
  void Take(const OptimizerState& state);  // which was checked

 private:
  struct Vector {
    std::string name;
    std::shared_ptr<std::vector<float>> values;  // written only while nobody else refers to it
  };

  std::string type_;
  std::vector<Vector> vectors_;
  std::vector<StateScalar> scalars_;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_OPTIMIZERS_VECTOR_OPTIMIZER_H_
