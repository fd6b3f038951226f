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

namespace {

// Beside what the slice itself remembers of a step.
void AddTo(const OptimizerState& state, SliceSnapshot* snapshot) {
  OptimizerState& all = snapshot->optimizer;
  all.type = state.type;
  all.vectors.insert(all.vectors.begin(), state.vectors.begin(), state.vectors.end());
  all.scalars.insert(all.scalars.begin(), state.scalars.begin(), state.scalars.end());
}

}  // namespace

RingReplica::RingReplica(v1::View view, DataPlan plan, std::vector<Slice> slices)
    : view_(std::move(view)), plan_(std::move(plan)), slices_(std::move(slices)), layout_(LayoutOf(view_, slices_)) {}

absl::StatusOr<RingReplica> RingReplica::Create(const v1::View& view, const MakeReplicaVectors& make_vectors) {
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
    DividedOptimizer* divided = nullptr;
    if (replica.divided() && !replica.IsBuffer(number)) {
      const auto make = [config = view.optimizer(), name = view.tensors(static_cast<int>(slice.tensor)).name()](
                            std::uint32_t elements) { return *CreateOptimizer(config, name, elements); };
      auto owned = std::make_unique<DividedOptimizer>((*optimizer)->type(), slice.elements, make);
      divided = owned.get();
      *optimizer = std::move(owned);
    }
    replica.optimizers_.push_back(divided);
    replica.states_.emplace_back(number, slice, *std::move(optimizer), replica.plan_);
    replica.states_.back().SetStepWidth(StepWidth(view));
  }
  replica.SetLearningRate();
  if (make_vectors == nullptr) return replica;
  if (replica.divided()) {
    return absl::InvalidArgumentError("an optimizer's state that is divided lives in the memory of the host");
  }
  absl::StatusOr<std::unique_ptr<ReplicaVectors>> vectors = make_vectors(view, replica.slices_);
  if (!vectors.ok()) return vectors.status();
  replica.mirror_.emplace(*std::move(vectors), replica.slices_.size());
  return replica;
}

absl::Status RingReplica::SetView(const v1::View& view) {
  if (view.stamp().generation() != view_.stamp().generation() || view.tensors_size() != view_.tensors_size() ||
      StepWidth(view) == 0) {
    return absl::InvalidArgumentError("a view of another generation, or without steps");
  }
  view_ = view;
  if (divided()) HeedSums();
  for (SliceState& state : states_) {
    if (mirror_.has_value() && state.has_sum() && state.step_width() != StepWidth(view_)) {
      if (absl::Status here = Note(mirror_->ToHost(&state)); !here.ok()) return here;
      mirror_->OnHost(state.number());
    }
    state.SetStepWidth(StepWidth(view_));
  }
  SetLearningRate();
  return absl::OkStatus();
}

void RingReplica::HeedSums() {
  for (const SliceState& state : states_) {
    if (state.has_sum() && state.step_width() != StepWidth(view_)) whole_ = false;
  }
}

void RingReplica::Initialise(std::uint32_t slice, const Payload& value) {
  if (states_[slice].Initialise(value) && mirror_.has_value()) mirror_->OnHost(slice);
  if (optimizers_[slice] != nullptr) optimizers_[slice]->Begin();
  if (divided()) shares_ = {StateShare()};
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

std::uint64_t RingReplica::updates() const { return UpdatesWith({}); }

std::uint64_t RingReplica::UpdatesWith(absl::Span<const UpdateId> updates) const {
  std::uint64_t least = UINT64_MAX;
  for (const SliceState& state : states_) {
    const auto lacking = std::count_if(updates.begin(), updates.end(),
                                       [&](const UpdateId& update) { return Lacks(state.number(), update); });
    least = std::min(least, state.version() + static_cast<std::uint64_t>(lacking));
  }
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

std::vector<UpdateId> RingReplica::LackingOf(std::uint32_t slice, const Step& step) const {
  std::vector<UpdateId> lacking;
  std::copy_if(step.updates.begin(), step.updates.end(), std::back_inserter(lacking),
               [&](const UpdateId& update) { return Lacks(slice, update); });
  return lacking;
}

StepContext RingReplica::ContextOf(std::uint32_t slice, const Step& step, absl::Span<const UpdateId> lacking) const {
  StepContext context;
  context.learning_rate = step.learning_rate.value_or(RateOf(lacking.front()));
  context.factor = step.factor / static_cast<double>(SamplesFor(slice, lacking));
  return context;
}

void RingReplica::TakeStep(const Step& step, absl::FunctionRef<absl::Span<const float>(std::uint32_t slice)> sum) {
  (void)FromHost();  // status() says what went wrong
  std::vector<ReplicaVectors::SliceStep> elsewhere;
  for (SliceState& state : states_) {
    const std::uint32_t number = state.number();
    const std::vector<UpdateId> lacking = LackingOf(number, step);
    if (lacking.empty()) continue;
    const absl::Span<const float> values = step.verdict == Verdict::kApply ? sum(number) : absl::Span<const float>();
    if (!mirror_.has_value()) {
      TakeHere(&state, lacking, step, values);
    } else if (!state.has_sum()) {
      if (step.verdict == Verdict::kApply) {
        const StepContext context = ContextOf(number, step, lacking);
        elsewhere.push_back({number, values, context.learning_rate, context.factor, SamplesFor(number, lacking)});
      }
      state.RecordWholeStep(lacking, step.verdict);
    } else if (Note(mirror_->ToHost(&state)).ok()) {
      // Some of it came before, to a parameter server: once, after such a checkpoint.
      std::vector<float> read(values.size());
      if (!Note(mirror_->vectors().Read(values, absl::MakeSpan(read))).ok()) break;
      TakeHere(&state, lacking, step, read);
      mirror_->OnHost(number);
    }
  }
  if (mirror_.has_value() && status_.ok()) (void)Note(mirror_->Step(elsewhere));
  (void)FromHost();
  prepared_.reset();
  last_ = {step.verdict, step.factor, static_cast<std::uint32_t>(step.updates.size())};
  Retire();
}

void RingReplica::TakeHere(SliceState* state, absl::Span<const UpdateId> lacking, const Step& step,
                           absl::Span<const float> values) {
  const std::uint32_t number = state->number();
  StepContext context = ContextOf(number, step, lacking);
  EncodedGradient gradient;
  std::vector<float> scaled;
  if (step.verdict == Verdict::kApply) {
    if (IsBuffer(number)) {  // whose update knows no factor
      const auto samples = static_cast<double>(SamplesFor(number, lacking));
      scaled.assign(values.begin(), values.end());
      for (float& value : scaled) value = static_cast<float>(value / samples);
      values = scaled;
      context.factor = 1;
    }
    gradient = EncodedGradient(Payload::OfFloats(values, nullptr));
  }
  if (optimizers_[number] != nullptr) {
    if (step.verdict == Verdict::kApply) {
      optimizers_[number]->ExpectValues();
      state->ForgetSum();
    } else if (state->has_sum()) {
      whole_ = false;
    }
  }
  state->TakeWholeStep(lacking, step.verdict, gradient, context);
}

absl::Status RingReplica::Note(absl::Status status) {
  if (status_.ok()) status_ = std::move(status);
  return status_;
}

absl::Status RingReplica::ToHost() {
  for (SliceState& state : states_) {
    if (!mirror_.has_value() || !status_.ok()) break;
    (void)Note(mirror_->ToHost(&state));
  }
  return status_;
}

absl::Status RingReplica::FromHost() {
  if (mirror_.has_value() && status_.ok()) (void)Note(mirror_->FromHost(states_));
  return status_;
}

void RingReplica::Prepare(std::vector<UpdateId> updates) {
  prepared_rate_ = RateOf(updates.front());
  prepared_ = std::move(updates);
}

RingReplica::Step RingReplica::PreparedStep(const TakenStep& as) const {
  return {*prepared_, as.verdict, as.factor, prepared_rate_};
}

void RingReplica::UpdateHeld(const Step& step, absl::FunctionRef<absl::Span<float>(std::uint32_t slice)> sum) {
  for (SliceState& state : states_) {
    const std::uint32_t number = state.number();
    if (optimizers_[number] == nullptr) continue;
    const absl::Span<float> values = sum(number);
    const std::vector<UpdateId> lacking = LackingOf(number, step);
    if (lacking.empty()) continue;
    const SliceState::WholeStep of_slice = state.WholeStepOf(
        lacking, EncodedGradient(Payload::OfFloats(values, nullptr)), ContextOf(number, step, lacking));
    optimizers_[number]->UpdateHeld(*state.value(), of_slice.gradient, of_slice.context, values);
  }
}

void RingReplica::Retire() {
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
  if (taken.ok() && mirror_.has_value()) mirror_->OnHost(snapshot.number);
  Retire();
  if (taken.ok() && optimizers_[snapshot.number] != nullptr && !snapshot.optimizer.type.empty()) {
    shares_ = {StateShare()};
  }
  return taken;
}

// ---- a divided state

OptimizerState RingReplica::ExportFragment(const StateFragment& fragment) const {
  return optimizers_[fragment.slice]->ExportRange({fragment.offset, fragment.offset + fragment.values.size()});
}

RingReplica::Assembly::Assembly(const RingReplica& replica, std::optional<StateShare> share)
    : share_(share), values_(replica.slices_.size()), parts_(replica.slices_.size()) {
  if (!share_.has_value()) return;
  const std::vector<Range> ranges = RangesOf(*share_, replica.view_.state_copies(), replica.layout_);
  for (std::size_t slice = 0; slice < parts_.size(); ++slice) {
    for (const Range& values : WithinSlice(ranges, replica.slices_[slice], replica.layout_)) {
      parts_[slice].push_back({values, {}, {}});
    }
  }
}

OptimizerState RingReplica::Assembly::Part::TakeState() {
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    state.vectors[i].values = std::make_shared<const std::vector<float>>(std::move(vectors[i]));
  }
  return std::move(state);
}

void RingReplica::Assembly::Add(SliceSnapshot snapshot) {
  values_[snapshot.number] = *snapshot.value;
  snapshots_.push_back(std::move(snapshot));
}

absl::Status RingReplica::Assembly::Add(const StateFragment& fragment, absl::Span<const float> values,
                                        const OptimizerState& state) {
  const Range whole{fragment.offset, fragment.offset + fragment.values.size()};
  const bool fits = values.size() == whole.size() && whole.end <= values_[fragment.slice].size() &&
                    std::all_of(state.vectors.begin(), state.vectors.end(), [&](const StateVector& vector) {
                      return vector.values != nullptr && vector.values->size() == whole.size();
                    });
  if (!fits)
    return absl::InvalidArgumentError(absl::StrCat("a fragment of slice ", fragment.slice, " of another size"));
  std::copy(values.begin(), values.end(), values_[fragment.slice].begin() + static_cast<std::ptrdiff_t>(whole.begin));
  for (Part& part : parts_[fragment.slice]) {
    const std::size_t begin = std::max(part.values.begin, whole.begin), end = std::min(part.values.end, whole.end);
    if (begin >= end) continue;
    if (part.state.type.empty()) {
      part.state = state;
      part.vectors.resize(state.vectors.size());
    }
    if (part.vectors.size() != state.vectors.size()) {
      return absl::InvalidArgumentError(absl::StrCat("a fragment of slice ", fragment.slice, " of another shape"));
    }
    for (std::size_t i = 0; i < part.vectors.size(); ++i) {
      const auto first = state.vectors[i].values->begin();
      part.vectors[i].insert(part.vectors[i].end(), first + static_cast<std::ptrdiff_t>(begin - whole.begin),
                             first + static_cast<std::ptrdiff_t>(end - whole.begin));
    }
  }
  return absl::OkStatus();
}

std::vector<SliceSnapshot> RingReplica::Assembly::TakeSlices() {
  for (SliceSnapshot& snapshot : snapshots_) {
    snapshot.value = std::make_shared<const std::vector<float>>(std::move(values_[snapshot.number]));
    for (Part& part : parts_[snapshot.number]) AddTo(part.TakeState(), &snapshot);
  }
  return std::move(snapshots_);
}

absl::Status RingReplica::Install(Assembly assembly, bool keeps) {
  std::vector<std::vector<DividedOptimizer::Piece>> pieces(slices_.size());
  for (std::size_t slice = 0; slice < slices_.size(); ++slice) {
    for (Assembly::Part& part : assembly.parts_[slice]) {
      absl::StatusOr<DividedOptimizer::Piece> piece = optimizers_[slice]->MakePiece(part.values, part.TakeState());
      if (!piece.ok()) return piece.status();
      pieces[slice].push_back(*std::move(piece));
    }
  }
  for (SliceSnapshot& snapshot : assembly.snapshots_) {
    snapshot.value = std::make_shared<const std::vector<float>>(std::move(assembly.values_[snapshot.number]));
    if (absl::Status taken = Import(snapshot); !taken.ok()) return taken;
  }
  for (std::size_t slice = 0; slice < slices_.size(); ++slice) {
    if (optimizers_[slice] == nullptr) continue;
    if (!keeps) optimizers_[slice]->Drop();
    if (!assembly.share_.has_value()) continue;
    optimizers_[slice]->Hold(std::move(pieces[slice]));
    // The first one all have had, and the newest one others may rely on: what lies between is given up first.
    if (keeps && shares_.size() == kMostShares) optimizers_[slice]->DropSecond();
  }
  if (!keeps) shares_.clear();
  if (assembly.share_.has_value()) {
    if (shares_.size() == kMostShares) shares_.erase(std::next(shares_.begin()));
    shares_.push_back(*assembly.share_);
  }
  whole_ = true;
  prepared_.reset();
  return absl::OkStatus();
}

void RingReplica::Settle() {
  for (DividedOptimizer* const optimizer : optimizers_) {
    if (optimizer != nullptr) optimizer->Settle();
  }
  if (shares_.size() > 1) shares_.erase(shares_.begin(), std::prev(shares_.end()));
}

void RingReplica::ForEachVector(absl::FunctionRef<void(absl::Span<const float> values)> visit) const {
  for (const SliceState& state : states_) {
    const SliceSnapshot snapshot = state.Export();
    visit(*snapshot.value);
    for (const StateVector& vector : snapshot.optimizer.vectors) visit(*vector.values);
  }
}

}  // namespace downpour::core
