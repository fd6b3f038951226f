#include "trainer/core/ring/ring_replica.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/core/buffer_update.h"
#include "trainer/core/keys.h"
#include "trainer/core/optimizer.h"
#include "trainer/core/step_id.h"

namespace downpour::core {

RingReplica::RingReplica(v1::View view, DataPlan plan, std::vector<Slice> slices)
    : view_(std::move(view)), plan_(std::move(plan)), slices_(std::move(slices)) {}

absl::StatusOr<RingReplica> RingReplica::Create(const v1::View& view) {
  absl::StatusOr<std::vector<Slice>> slices = CutTensors(view);
  if (!slices.ok()) return slices.status();
  absl::StatusOr<DataPlan> plan = DataPlan::Create(view.data());
  if (!plan.ok()) return plan.status();
  if (slices->empty() || StepWidth(view) == 0) {
    return absl::InvalidArgumentError("a ring needs a model with tensors, and steps of so many updates");
  }
  RingReplica replica(view, *std::move(plan), *std::move(slices));
  replica.states_.reserve(replica.slices_.size());
  for (std::uint32_t number = 0; number < replica.slices_.size(); ++number) {
    const Slice& slice = replica.slices_[number];
    absl::StatusOr<std::unique_ptr<Optimizer>> optimizer =
        replica.IsBuffer(number)
            ? CreateBufferUpdate()
            : CreateOptimizer(view.optimizer(), view.tensors(static_cast<int>(slice.tensor)).name(), slice.elements);
    if (!optimizer.ok()) return optimizer.status();
    replica.states_.emplace_back(number, slice, *std::move(optimizer), replica.plan_);
    replica.states_.back().SetStepWidth(StepWidth(view));
  }
  replica.SetLearningRate();
  return replica;
}

absl::Status RingReplica::SetView(const v1::View& view) {
  if (view.stamp().generation() != view_.stamp().generation() || view.tensors_size() != view_.tensors_size() ||
      StepWidth(view) == 0) {
    return absl::InvalidArgumentError("a view of another generation, or without steps");
  }
  view_ = view;
  for (SliceState& state : states_) state.SetStepWidth(StepWidth(view_));
  SetLearningRate();
  return absl::OkStatus();
}

void RingReplica::SetLearningRate() {
  const v1::OptimizerConfig& optimizer = view_.optimizer();
  learning_rate_.emplace(optimizer.schedule(), optimizer.learning_rate(), plan_, StepWidth(view_), RateScale(view_));
}

bool RingReplica::IsBuffer(std::uint32_t slice) const {
  return view_.tensors(static_cast<int>(slices_[slice].tensor)).kind() == v1::BUFFER;
}

bool RingReplica::initialised() const {
  return std::all_of(states_.begin(), states_.end(), [](const SliceState& state) { return state.initialised(); });
}

std::uint64_t RingReplica::updates() const {
  std::uint64_t least = UINT64_MAX;
  for (const SliceState& state : states_) least = std::min(least, state.version());
  return least;
}

std::vector<UpdateId> RingReplica::NextStep() const {
  const StepId step = std::min_element(states_.begin(), states_.end(), [](const SliceState& a, const SliceState& b) {
                        return a.step() < b.step();
                      })->step();
  const ShardKey end =
      view_.has_end() ? ShardKey(view_.end().dataset_epoch(), view_.end().shard()) : ShardKey(plan_.epochs(), 0);
  std::vector<UpdateId> updates;
  ForEachUpdateOf(step, StepWidth(view_), plan_, [&](const UpdateId& update) {
    if (ShardKey(update.dataset_epoch, update.data_shard) >= end) return;
    const bool lacking = std::any_of(states_.begin(), states_.end(),
                                     [&](const SliceState& state) { return !state.table().Contains(update); });
    if (lacking) updates.push_back(update);
  });
  return updates;
}

std::vector<UpdateId> RingReplica::StepBehind(const UpdateId& update) const {
  const std::uint32_t width = StepWidth(view_);
  const StepId step = StepOf(update, width);
  std::vector<UpdateId> updates;
  for (const StepId& next : {StepId{step.dataset_epoch, step.band, step.group + 1},
                             StepId{step.dataset_epoch, step.band + 1, 0}, StepId{step.dataset_epoch + 1, 0, 0}}) {
    ForEachUpdateOf(next, width, plan_, [&updates](const UpdateId& one) { updates.push_back(one); });
    if (!updates.empty()) break;
  }
  return updates;
}

std::uint64_t RingReplica::SamplesFor(std::uint32_t slice, absl::Span<const UpdateId> updates) const {
  std::uint64_t samples = 0;
  for (const UpdateId& update : updates) {
    if (Lacks(slice, update)) samples += plan_.samples_in_update(update);
  }
  return samples;
}

void RingReplica::TakeStep(const Step& step, absl::FunctionRef<absl::Span<const float>(std::uint32_t slice)> sum) {
  std::vector<float> scaled;
  for (SliceState& state : states_) {
    const std::uint32_t number = state.number();
    std::vector<UpdateId> lacking;
    std::copy_if(step.updates.begin(), step.updates.end(), std::back_inserter(lacking),
                 [&](const UpdateId& update) { return Lacks(number, update); });
    if (lacking.empty()) continue;
    StepContext context;
    context.learning_rate = RateOf(lacking.front());
    const double samples = static_cast<double>(SamplesFor(number, lacking));
    EncodedGradient gradient;
    if (step.verdict == Verdict::kApply) {
      absl::Span<const float> values = sum(number);
      context.factor = step.factor / samples;
      if (IsBuffer(number)) {  // whose update knows no factor
        scaled.assign(values.begin(), values.end());
        for (float& value : scaled) value = static_cast<float>(value / samples);
        values = scaled;
        context.factor = 1;
      }
      gradient = EncodedGradient(Payload::OfFloats(values, nullptr));
    }
    state.TakeWholeStep(lacking, step.verdict, gradient, context);
  }
  Settle();
}

void RingReplica::Settle() {
  for (SliceState& state : states_) {
    const std::uint32_t whole = state.step().dataset_epoch;
    if (state.table().watermark() >= whole) continue;
    state.table().RetireComplete();
    state.table().Advance(whole);
  }
}

void RingReplica::Describe(v1::LedgerReply* reply) const {
  *reply->mutable_stamp() = view_.stamp();
  *reply->mutable_data() = view_.data();
  if (view_.has_end()) *reply->mutable_end() = view_.end();
  for (const SliceState& state : states_) {
    v1::SliceLedger* const ledger = reply->add_slices();
    ledger->set_slice(state.number());
    ledger->set_version(state.version());
    ledger->set_skipped(state.skipped());
    state.table().Export(ledger);
  }
}

absl::Status RingReplica::Import(const SliceSnapshot& snapshot) {
  if (snapshot.number >= states_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("slice ", snapshot.number, " of ", states_.size()));
  }
  SliceState& state = states_[snapshot.number];
  absl::Status taken = state.Import(snapshot, learning_rate_->At(UpdateId()));
  if (taken.ok()) state.SettleSum();
  Settle();
  return taken;
}

void RingReplica::ForEachVector(absl::FunctionRef<void(absl::Span<const float> values)> visit) const {
  for (const SliceState& state : states_) {
    const SliceSnapshot snapshot = state.Export();
    visit(*snapshot.value);
    for (const StateVector& vector : snapshot.optimizer.vectors) visit(*vector.values);
  }
}

}  // namespace downpour::core
