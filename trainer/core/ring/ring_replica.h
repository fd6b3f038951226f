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
#include "trainer/core/optimizer.h"
#include "trainer/core/ring/divided_optimizer.h"
#include "trainer/core/ring/gradient_layout.h"
#include "trainer/core/ring/replica_mirror.h"
#include "trainer/core/ring/replica_vectors.h"
#include "trainer/core/ring/state_shares.h"
#include "trainer/core/schedule.h"
#include "trainer/core/slice_snapshot.h"
#include "trainer/core/slice_state.h"

namespace downpour::core {

// The state of the training at one member of a ring: every slice with its optimizer and its table of applied updates.
// Members that took the same steps have the same bits. A step is one of mode SYNCHRONOUS (step_id.h), taken at once
// with the mean of the gradients of all its updates, so that a job goes over from parameter servers to a ring and back
// with its checkpoints.
//
// Where the view divides the optimizer's state, a member has that of its share alone (state_shares.h). Then a step is
// prepared first: this member has the sums of its share. Once all have said so the step counts, and whoever was
// prepared can take it, also later and without those who were lost. Values of other shares come from those whose they
// are; until they are there the replica is not whole.
//
// Values and what the optimizer remembers may live elsewhere (replica_vectors.h), unless the state is divided; then
// steps are taken there, and the host has what ToHost has fetched. Not thread-safe.
class RingReplica {
 public:
  static constexpr std::size_t kMostShares = 8;

  // Without values; `make_vectors` may be null: they live here. kInvalidArgument: the view's tensors, plan or optimizer
  // are none, or its state is divided and is to live elsewhere. Otherwise what `make_vectors` says.
  static absl::StatusOr<RingReplica> Create(const v1::View& view, const MakeReplicaVectors& make_vectors = nullptr);

  // Another view of the same generation: other members, another scale of the learning rate, another number of updates a
  // step, another end.
  absl::Status SetView(const v1::View& view);
  const v1::View& view() const { return view_; }
  const DataPlan& plan() const { return plan_; }
  const std::vector<Slice>& slices() const { return slices_; }

  bool initialised() const;
  // The first value of a slice; as many floats as it has.
  void Initialise(std::uint32_t slice, const Payload& value);
  // Of vectors that live elsewhere: as of ToHost, as with all that is exported.
  std::shared_ptr<const std::vector<float>> value(std::uint32_t slice) const { return states_[slice].value(); }

  // ---- vectors that live elsewhere; otherwise all of this is nothing
  const ReplicaVectors* vectors() const { return mirror_.has_value() ? &mirror_->vectors() : nullptr; }
  // What is there comes here, or goes there, if it is newer. Once one of them, or a step, has failed, all do.
  absl::Status ToHost();
  absl::Status FromHost();
  const absl::Status& status() const { return status_; }

  // ---- where it stands
  // Applied by every slice; skipped ones too.
  std::uint64_t updates() const;
  // Dataset epochs that are whole.
  std::uint32_t watermark() const { return states_.front().table().watermark(); }
  std::uint64_t UpdatesWith(absl::Span<const UpdateId> updates) const;  // once it has these too
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
    double factor = 1;                                   // of the mean of parameters, not of buffers
    std::optional<double> learning_rate = std::nullopt;  // none: that of the view
  };
  // `sum`: of a slice's gradients, each times its samples, over those that SamplesFor counts; as many floats as the
  // slice has, good until the next call. Not asked for where nothing is applied. Of parameters whose state is divided:
  // the new values instead. Of vectors that live elsewhere: there, and good until the step after. Whether that can take
  // the step: status().
  void TakeStep(const Step& step, absl::FunctionRef<absl::Span<const float>(std::uint32_t slice)> sum);

  // ---- a step with a divided state
  bool divided() const { return view_.state_copies() > 0; }
  const GradientLayout& layout() const { return layout_; }
  // Of which it has the state of the optimizer, at updates(), kMostShares at most: after a division that not all have
  // confirmed, also of the one before.
  const std::vector<StateShare>& shares() const { return shares_; }
  bool whole() const { return whole_; }
  // It has the sums of its share for the step of these updates, until it is taken or ForgetPrepared.
  void Prepare(std::vector<UpdateId> updates);
  void ForgetPrepared() { prepared_.reset(); }
  const std::optional<std::vector<UpdateId>>& prepared() const { return prepared_; }
  // As it was prepared, whatever the view says by now of learning rates.
  Step PreparedStep(const TakenStep& as) const;
  // The values of this member's share, in the place of their sums.
  void UpdateHeld(const Step& step, absl::FunctionRef<absl::Span<float>(std::uint32_t slice)> sum);
  // As of the newest step: the values of other shares are those of before.
  void LoseOthers() { whole_ = false; }
  // Of the newest step, whoever took it.
  void RememberLast(const TakenStep& last) { last_ = last; }
  const TakenStep& last() const { return last_; }

  // ---- a divided state comes together, and is divided anew
  OptimizerState ExportFragment(const StateFragment& fragment) const;
  // What one member is to have of it, as it comes.
  class Assembly {
   public:
    // `share`: what it is to have; none: nothing.
    Assembly(const RingReplica& replica, std::optional<StateShare> share);
    // First all slices, by number: tables, and values that fragments replace.
    void Add(SliceSnapshot snapshot);
    // Then all fragments, in their order. kInvalidArgument: of another shape.
    absl::Status Add(const StateFragment& fragment, absl::Span<const float> values, const OptimizerState& state);
    // Of one that has the share of all: the slices with what the optimizer remembers. It is empty then.
    std::vector<SliceSnapshot> TakeSlices();

   private:
    friend class RingReplica;
    struct Part {
      Range values;
      OptimizerState state;
      std::vector<std::vector<float>> vectors;  // of `state`, as far as they have come
      OptimizerState TakeState();
    };
    const std::optional<StateShare> share_;
    std::vector<SliceSnapshot> snapshots_;
    std::vector<std::vector<float>> values_;  // by slice
    std::vector<std::vector<Part>> parts_;    // likewise
  };
  // Becomes that. `keeps`: what it has of the optimizer's state is of these updates too, and stays until Settle;
  // whoever is to have nothing keeps it for good. kInvalidArgument: it does not fit.
  absl::Status Install(Assembly assembly, bool keeps);
  // Everybody has installed the newest division: what it had before is over.
  void Settle();

  // ---- as a whole
  // The tables of all slices.
  void Describe(v1::LedgerReply* reply) const;
  // Without a state that is divided.
  SliceSnapshot Export(std::uint32_t slice) const { return states_[slice].Export(); }
  // Takes all of the state, if it says any. kInvalidArgument: it does not fit; then it stays as it was.
  absl::Status Import(const SliceSnapshot& snapshot);
  // Values and what optimizers remember, but where it is divided, in a fixed order: of replicas that took the same
  // steps they are the same bits.
  void ForEachVector(absl::FunctionRef<void(absl::Span<const float> values)> visit) const;

 private:
  RingReplica(v1::View view, DataPlan plan, std::vector<Slice> slices);
  bool IsBuffer(std::uint32_t slice) const;
  double RateOf(const UpdateId& update) const { return learning_rate_->At(update); }
  void SetLearningRate();
  // What has come of a step of another width is about to be taken, of each value where its state is: the replica is not
  // whole then.
  void HeedSums();
  // Of the step those that the slice lacks.
  std::vector<UpdateId> LackingOf(std::uint32_t slice, const Step& step) const;
  StepContext ContextOf(std::uint32_t slice, const Step& step, absl::Span<const UpdateId> lacking) const;
  // Epochs that are whole are so for good.
  void Retire();
  // The first error stays.
  absl::Status Note(absl::Status status);
  // The step of a slice, by its SliceState. `values`: its sum, of the memory of the host.
  void TakeHere(SliceState* state, absl::Span<const UpdateId> lacking, const Step& step,
                absl::Span<const float> values);

  v1::View view_;
  DataPlan plan_;
  std::vector<Slice> slices_;
  std::vector<SliceState> states_;
  std::optional<LearningRate> learning_rate_;
  GradientLayout layout_;
  std::optional<ReplicaMirror> mirror_;
  absl::Status status_;
  // Of a divided state.
  std::vector<DividedOptimizer*> optimizers_;  // of `states_`; null: of a buffer
  std::vector<StateShare> shares_;
  bool whole_ = true;
  std::optional<std::vector<UpdateId>> prepared_;
  double prepared_rate_ = 0;
  TakenStep last_;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_RING_RING_REPLICA_H_
