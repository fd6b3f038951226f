#ifndef DOWNPOUR_TRAINER_CORE_RING_RING_REPLICA_H_
#define DOWNPOUR_TRAINER_CORE_RING_RING_REPLICA_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "downpour/v1/control.pb.h"
#include "trainer/core/data_plan.h"
#include "trainer/core/frame.h"
#include "trainer/core/layout.h"
#include "trainer/core/schedule.h"
#include "trainer/core/slice_snapshot.h"
#include "trainer/core/slice_state.h"

namespace downpour::core {

// The whole state of the training at one member of a ring: every slice with its optimizer and its table of applied
// updates. Members that took the same steps have the same bits. A step is one of mode SYNCHRONOUS (step_id.h), taken at
// once with the mean of the gradients of all its updates, so that a job goes over from parameter servers to a ring and
// back with its checkpoints. Not thread-safe.
class RingReplica {
 public:
  // Without values. kInvalidArgument: the view's tensors, plan or optimizer are none.
  static absl::StatusOr<RingReplica> Create(const v1::View& view);

  // Another view of the same generation: other members, another scale of the learning rate, another number of updates a
  // step, another end.
  absl::Status SetView(const v1::View& view);
  const v1::View& view() const { return view_; }
  const DataPlan& plan() const { return plan_; }
  const std::vector<Slice>& slices() const { return slices_; }

  bool initialised() const;
  // The first value of a slice; as many floats as it has.
  void Initialise(std::uint32_t slice, const Payload& value) { states_[slice].Initialise(value); }
  std::shared_ptr<const std::vector<float>> value(std::uint32_t slice) const { return states_[slice].value(); }

  // ---- where it stands
  // Applied by every slice; skipped ones too.
  std::uint64_t updates() const;
  // Dataset epochs that are whole.
  std::uint32_t watermark() const { return states_.front().table().watermark(); }
  // Of the next step those that some slice lacks, in their order. None: every update before the end is there.
  std::vector<UpdateId> NextStep() const;
  // All of the step behind that of `update`, whatever there is of them; empty: it is the last.
  std::vector<UpdateId> StepBehind(const UpdateId& update) const;
  // A slice may have some of them, where a checkpoint of parameter servers was made in the middle of an update.
  bool Lacks(std::uint32_t slice, const UpdateId& update) const { return !states_[slice].table().Contains(update); }
  // Samples of those that the slice lacks.
  std::uint64_t SamplesFor(std::uint32_t slice, absl::Span<const UpdateId> updates) const;

  // ---- a step
  struct Step {
    std::vector<UpdateId> updates;  // of NextStep
    Verdict verdict = Verdict::kApply;
    double factor = 1;  // of the mean of parameters, not of buffers
  };
  // `sum`: of a slice's gradients, each times its samples, over those that SamplesFor counts; as many floats as the
  // slice has, good until the next call. Not asked for where nothing is applied.
  void TakeStep(const Step& step, absl::FunctionRef<absl::Span<const float>(std::uint32_t slice)> sum);

  // ---- as a whole
  // The tables of all slices.
  void Describe(v1::LedgerReply* reply) const;
  SliceSnapshot Export(std::uint32_t slice) const { return states_[slice].Export(); }
  // kInvalidArgument: it does not fit; then it stays as it was.
  absl::Status Import(const SliceSnapshot& snapshot);
  // Values and what optimizers remember, in a fixed order: of replicas that took the same steps they are the same bits.
  void ForEachVector(absl::FunctionRef<void(absl::Span<const float> values)> visit) const;

 private:
  RingReplica(v1::View view, DataPlan plan, std::vector<Slice> slices);
  bool IsBuffer(std::uint32_t slice) const;
  double RateOf(const UpdateId& update) const { return learning_rate_->At(update); }
  void SetLearningRate();
  // Epochs that are whole are so for good.
  void Settle();

  v1::View view_;
  DataPlan plan_;
  std::vector<Slice> slices_;
  std::vector<SliceState> states_;
  std::optional<LearningRate> learning_rate_;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_RING_RING_REPLICA_H_
