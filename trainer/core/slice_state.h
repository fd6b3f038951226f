#ifndef DOWNPOUR_TRAINER_CORE_SLICE_STATE_H_
#define DOWNPOUR_TRAINER_CORE_SLICE_STATE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "downpour/v1/control.pb.h"
#include "trainer/core/applied_table.h"
#include "trainer/core/codec/encoded_gradient.h"
#include "trainer/core/data_plan.h"
#include "trainer/core/frame.h"
#include "trainer/core/layout.h"
#include "trainer/core/optimizer.h"
#include "trainer/core/slice_snapshot.h"
#include "trainer/core/step_id.h"
#include "trainer/core/step_sum.h"

namespace downpour::core {

// One slice at its ps: value, optimizer, table of applied updates and version, changed together or not at all. Not
// thread-safe; values that were handed out stay as they are, also while other threads read them.
//
// An update is a step of its own, or one of those that together make a step (mode SYNCHRONOUS): then it is in the table
// when its gradient is in the sum, and the value changes with the last of them.
class SliceState {
 public:
  SliceState(std::uint32_t number, const Slice& slice, std::unique_ptr<Optimizer> optimizer, const DataPlan& plan);

  std::uint32_t number() const { return number_; }
  const Slice& slice() const { return slice_; }
  bool initialised() const { return initialised_; }
  // Steps and skips taken, counted apart from the table.
  std::uint64_t version() const { return version_; }
  std::uint64_t skipped() const { return skipped_; }
  AppliedTable& table() { return table_; }
  const AppliedTable& table() const { return table_; }
  std::shared_ptr<const std::vector<float>> value() const { return value_; }

  // From now on steps have so many updates; 0: each is one. If it is another number than before, what has arrived of a
  // step by now is a step of its own, and what is in the table counts as there, in whatever order it came: the steps
  // begin with the first that is not whole.
  void SetStepWidth(std::uint32_t width);
  std::uint32_t step_width() const { return width_; }
  // Takes what has arrived of a step of another width, before the import.
  void SettleSum();
  // The first step that is not complete, with a step width; behind the last epoch: there is none.
  const StepId& step() const { return step_; }
  // The value to compute an update of `step` with. It is kept for one step beyond: other slices may not have it yet.
  std::shared_ptr<const std::vector<float>> value_at(const StepId& step) const {
    return step == step_before_ && before_ != nullptr ? before_ : value_;
  }

  // The first value; as many floats as the slice has. False: it has one already, which stays.
  bool Initialise(const Payload& value);
  // Takes the gradient, or none if the verdict is to skip, and records the update either way. It must not be
  // in the table (but for a planted bug), and the slice must have a value. True if with it every update of its data
  // shard is here.
  bool Apply(const UpdateId& update, Verdict verdict, const EncodedGradient& gradient, const StepContext& context);

  // Takes a whole step at once, with a step width: `updates` are those of step() that the table lacks, `mean` with the
  // factor of the context is the mean gradient of all their samples. If the verdict is to skip, all of them are
  // recorded without one. The same as if each had come by itself.
  void TakeWholeStep(absl::Span<const UpdateId> updates, Verdict verdict, const EncodedGradient& mean,
                     const StepContext& context);

  // The same where the value lives elsewhere, and changes there; the optimizer's skips remember nothing, and no sum is
  // here.
  void RecordWholeStep(absl::Span<const UpdateId> updates, Verdict verdict);
  // The value and what the optimizer remembers, as they are elsewhere by now. kInvalidArgument: of another rule.
  absl::Status Replace(std::shared_ptr<std::vector<float>> value, const OptimizerState& state);
  OptimizerState ExportOptimizer() const { return optimizer_->Export(); }

  // What TakeWholeStep gives to the optimizer: `mean`, or that of what has come before as well.
  struct WholeStep {
    EncodedGradient gradient;  // good as long as what `mean` refers to
    StepContext context;
  };
  WholeStep WholeStepOf(absl::Span<const UpdateId> updates, const EncodedGradient& mean,
                        const StepContext& context) const;
  bool has_sum() const { return !sum_.empty(); }
  // What has come of a step before is in what TakeWholeStep is given next.
  void ForgetSum() { sum_ = StepSum(); }

  // In mode SANDBLASTER, of a slice that its search is about: the vectors but for the value; otherwise null.
  const sandblaster::Vectors* search_vectors() const {
    return const_cast<const Optimizer&>(*optimizer_).search_vectors();
  }
  sandblaster::Vectors* search_vectors() { return optimizer_->search_vectors(); }
  // Of such a slice: does what it says. kInvalidArgument: it cannot be; nothing is.
  absl::Status CarryOut(const v1::VectorCommand& command);

  // Everything of it, sharing memory: what is shared is not written any more.
  SliceSnapshot Export() const;
  // The same with a life of its own; whichever of both is written first takes a copy. The memory that they share goes
  // with the fork.
  SliceState Fork();
  // Becomes what the snapshot holds. kInvalidArgument: another size, another update rule, or a table beyond the plan;
  // then it stays as it was. `learning_rate` is that of half a step whose snapshot says none (step_sum.h).
  absl::Status Import(const SliceSnapshot& snapshot, double learning_rate);
  // Memory of value, optimizer and steps.
  std::uint64_t bytes() const { return slice_.bytes() * (1 + optimizer_->vectors() + (width_ == 0 ? 0 : 2)); }

 private:
  SliceState(std::uint32_t number, const Slice& slice, std::shared_ptr<std::vector<float>> value,
             std::unique_ptr<Optimizer> optimizer, const DataPlan& plan);

  void TakeStep(const EncodedGradient& gradient, const StepContext& context);
  // The updates of a step have been taken, or skipped.
  void Record(absl::Span<const UpdateId> updates);
  // As far as it has come, if anything has.
  void TakeSum();
  // Of the steps from `step` on, the first that the table has not whole.
  void FindStep(StepId step);
  bool BandComplete(const StepId& step, std::uint32_t shards) const;
  void ExportBefore(OptimizerState* state) const;
  // Takes it out of `state`, if it is there.
  absl::Status ImportBefore(OptimizerState* state, std::shared_ptr<std::vector<float>>* before, StepId* step) const;

  std::uint32_t number_ = 0;
  Slice slice_;
  // Written only while nobody else refers to it; otherwise a new value is written into `spare_`, the value before.
  std::shared_ptr<std::vector<float>> value_;
  std::shared_ptr<std::vector<float>> spare_;
  bool forked_ = false;  // since the newest step
  std::unique_ptr<Optimizer> optimizer_;
  AppliedTable table_;
  std::uint64_t version_ = 0;
  std::uint64_t skipped_ = 0;
  bool initialised_ = false;

  std::uint32_t width_ = 0;
  StepSum sum_;
  StepId step_;
  std::uint32_t missing_ = 0;  // updates of `step_`
  bool begun_ = false;         // some of them came while it was the step
  StepId step_before_;
  std::shared_ptr<std::vector<float>> before_;  // the value that `step_before_` began with
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_SLICE_STATE_H_
