#include "trainer/core/slice_state.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "trainer/core/sandblaster/vectors.h"
#include "trainer/core/sole_owner.h"

namespace downpour::core {
namespace {

constexpr char kBefore[] = "step_before";
constexpr char kBeforeEpoch[] = "step_before_epoch";
constexpr char kBeforeBand[] = "step_before_band";
constexpr char kBeforeGroup[] = "step_before_group";
constexpr char kBeforeWidth[] = "step_before_width";

}  // namespace

SliceState::SliceState(std::uint32_t number, const Slice& slice, std::unique_ptr<Optimizer> optimizer,
                       const DataPlan& plan)
    : SliceState(number, slice, std::make_shared<std::vector<float>>(slice.elements), std::move(optimizer), plan) {}

SliceState::SliceState(std::uint32_t number, const Slice& slice, std::shared_ptr<std::vector<float>> value,
                       std::unique_ptr<Optimizer> optimizer, const DataPlan& plan)
    : number_(number), slice_(slice), value_(std::move(value)), optimizer_(std::move(optimizer)), table_(plan) {}

bool SliceState::Initialise(const Payload& value) {
  if (initialised_) return false;
  value.ForEachFloats([&](std::size_t first, absl::Span<const float> run) {
    std::copy(run.begin(), run.end(), value_->begin() + static_cast<std::ptrdiff_t>(first));
  });
  initialised_ = true;
  return true;
}

void SliceState::TakeSum() {
  const StepContext context{.learning_rate = sum_.learning_rate()};
  if (!sum_.empty()) TakeStep(sum_.TakeMean(), context);
}

void SliceState::SetStepWidth(std::uint32_t width) {
  if (width == width_) return;  // the step under way goes on
  TakeSum();
  sum_ = StepSum();
  width_ = width;
  before_.reset();
  if (width_ != 0) FindStep({table_.watermark(), 0, 0});
}

void SliceState::SettleSum() {
  if (sum_.empty() || sum_.width() == width_) return;
  TakeSum();
  sum_ = StepSum();
}

bool SliceState::BandComplete(const StepId& step, std::uint32_t shards) const {
  const std::uint64_t first = std::uint64_t{step.band} * width_;
  for (std::uint64_t shard = first; shard < std::min<std::uint64_t>(first + width_, shards); ++shard) {
    if (!table_.IsComplete(step.dataset_epoch, static_cast<std::uint32_t>(shard))) return false;
  }
  return true;
}

void SliceState::FindStep(StepId step) {
  const DataPlan& plan = table_.plan();
  begun_ = false;
  for (step_ = step; step_.dataset_epoch < plan.epochs(); ++step_.dataset_epoch, step_.band = 0, step_.group = 0) {
    const std::uint32_t shards = plan.shards_in_epoch(step_.dataset_epoch);
    for (; std::uint64_t{step_.band} * width_ < shards; ++step_.band, step_.group = 0) {
      if (step_.group == 0 && BandComplete(step_, shards)) continue;
      for (;; ++step_.group) {
        missing_ = 0;
        const std::uint32_t updates = ForEachUpdateOf(
            step_, width_, plan, [this](const UpdateId& update) { missing_ += table_.Contains(update) ? 0 : 1; });
        if (missing_ > 0) return;
        if (updates == 0) break;
      }
    }
  }
}

void SliceState::TakeStep(const EncodedGradient& gradient, const StepContext& context) {
  // Replies in flight refer to the value; then the new one is written beside it, which costs no extra pass.
  if (SoleOwner(value_)) {
    optimizer_->Step(*value_, gradient, context, absl::MakeSpan(*value_));
  } else {
    if (!SoleOwner(spare_)) spare_ = std::make_shared<std::vector<float>>(slice_.elements);
    optimizer_->Step(*value_, gradient, context, absl::MakeSpan(*spare_));
    std::swap(value_, spare_);
    // Kept here it would be one more value a slice for good, beyond what a cut may take.
    if (forked_) spare_.reset();
  }
  forked_ = false;
}

bool SliceState::Apply(const UpdateId& update, Verdict verdict, const EncodedGradient& gradient,
                       const StepContext& context) {
  SettleSum();
  if (verdict != Verdict::kApply) {
    ++skipped_;
    optimizer_->Skip();
  } else if (!optimizer_->writes_value()) {
    optimizer_->Step(*value_, gradient, context, {});
  } else if (width_ == 0) {
    TakeStep(gradient, context);
  } else {
    sum_.Add(width_, gradient, slice_.elements, context.factor, table_.plan().samples_in_update(update),
             context.learning_rate);
  }
  ++version_;
  const bool complete = table_.Insert(update);
  if (width_ == 0 || StepOf(update, width_) != step_) return complete;
  begun_ = true;
  if (--missing_ == 0) {
    if (SoleOwner(before_)) spare_ = std::move(before_);
    before_ = value_;
    step_before_ = step_;
    TakeSum();
    FindStep(step_);
  }
  return complete;
}

SliceState::WholeStep SliceState::WholeStepOf(absl::Span<const UpdateId> updates, const EncodedGradient& mean,
                                              const StepContext& context) const {
  if (sum_.empty()) return {mean, context};
  // Some of it came before, to a parameter server.
  std::uint64_t samples = 0;
  for (const UpdateId& update : updates) samples += table_.plan().samples_in_update(update);
  StepSum sum = sum_;
  sum.Add(width_, mean, slice_.elements, context.factor, samples, context.learning_rate);
  const StepContext of_all{.learning_rate = sum.learning_rate()};
  return {sum.TakeMean(), of_all};
}

void SliceState::TakeWholeStep(absl::Span<const UpdateId> updates, Verdict verdict, const EncodedGradient& mean,
                               const StepContext& context) {
  SettleSum();
  if (verdict == Verdict::kApply) {
    const WholeStep step = WholeStepOf(updates, mean, context);
    ForgetSum();
    TakeStep(step.gradient, step.context);
  } else {
    skipped_ += updates.size();
    for (std::size_t i = 0; i < updates.size(); ++i) optimizer_->Skip();
    TakeSum();
  }
  Record(updates);
}

void SliceState::Record(absl::Span<const UpdateId> updates) {
  version_ += updates.size();
  for (const UpdateId& update : updates) table_.Insert(update);
  FindStep(step_);
}

void SliceState::RecordWholeStep(absl::Span<const UpdateId> updates, Verdict verdict) {
  if (verdict != Verdict::kApply) skipped_ += updates.size();
  Record(updates);
}

absl::Status SliceState::Replace(std::shared_ptr<std::vector<float>> value, const OptimizerState& state) {
  if (absl::Status taken = optimizer_->Import(state); !taken.ok()) return taken;
  value_ = std::move(value);
  spare_.reset();
  return absl::OkStatus();
}

SliceSnapshot SliceState::Export() const {
  SliceSnapshot snapshot;
  snapshot.number = number_;
  snapshot.slice = slice_;
  snapshot.value = value_;
  snapshot.optimizer = optimizer_->Export();
  sum_.Export(&snapshot.optimizer);
  ExportBefore(&snapshot.optimizer);
  snapshot.table.set_slice(number_);
  snapshot.table.set_version(version_);
  snapshot.table.set_skipped(skipped_);
  table_.Export(&snapshot.table);
  return snapshot;
}

// Another slice of the same cut may lack an update of the step before, if its worker died in the middle of pushing it.
// Where something of the next step is here, no slice lacks any: who pushed it had the value of all of them.
void SliceState::ExportBefore(OptimizerState* state) const {
  if (width_ == 0 || before_ == nullptr || begun_) return;
  state->vectors.push_back({kBefore, before_});
  state->scalars.push_back({kBeforeEpoch, static_cast<double>(step_before_.dataset_epoch)});
  state->scalars.push_back({kBeforeBand, static_cast<double>(step_before_.band)});
  state->scalars.push_back({kBeforeGroup, static_cast<double>(step_before_.group)});
  state->scalars.push_back({kBeforeWidth, static_cast<double>(width_)});
}

absl::Status SliceState::ImportBefore(OptimizerState* state, std::shared_ptr<std::vector<float>>* before,
                                      StepId* step) const {
  const std::shared_ptr<const std::vector<float>> value = TakeVector(*state, kBefore);
  std::uint32_t width = 0;
  int found = value == nullptr ? 0 : 1;
  for (const auto& [name, part] : {std::pair(kBeforeEpoch, &step->dataset_epoch), std::pair(kBeforeBand, &step->band),
                                   std::pair(kBeforeGroup, &step->group), std::pair(kBeforeWidth, &width)}) {
    const std::optional<double> number = TakeScalar(*state, name);
    if (number.has_value()) ++found;
    if (number >= 0 && number <= UINT32_MAX) *part = static_cast<std::uint32_t>(*number);
  }
  if (found == 0) return absl::OkStatus();
  if (found != 5 || value->size() != slice_.elements) {
    return absl::InvalidArgumentError(absl::StrCat("the value before the newest step is not whole: expected ", kBefore,
                                                   " of ", slice_.elements, " values and the number of its step"));
  }
  // Of another width steps have other numbers. It may be shared: SoleOwner keeps it from being written.
  if (width == width_) *before = std::const_pointer_cast<std::vector<float>>(value);
  return absl::OkStatus();
}

absl::Status SliceState::Import(const SliceSnapshot& snapshot, double learning_rate) {
  if (snapshot.value == nullptr || snapshot.value->size() != slice_.elements) {
    return absl::InvalidArgumentError(absl::StrCat("slice ", number_, ": ",
                                                   snapshot.value == nullptr ? 0 : snapshot.value->size(),
                                                   " values, expected ", slice_.elements));
  }
  absl::StatusOr<AppliedTable> table = AppliedTable::FromLedger(table_.plan(), snapshot.table);
  if (!table.ok()) return table.status();
  OptimizerState state = snapshot.optimizer;
  StepSum sum;
  std::shared_ptr<std::vector<float>> before;
  StepId step_before;
  absl::Status taken = sum.Import(&state, slice_.elements, learning_rate);
  if (taken.ok()) taken = ImportBefore(&state, &before, &step_before);
  if (taken.ok()) taken = optimizer_->Import(state);
  if (!taken.ok()) return absl::Status(taken.code(), absl::StrCat("slice ", number_, ": ", taken.message()));
  // The snapshot may be shared: SoleOwner keeps it from being written.
  value_ = std::const_pointer_cast<std::vector<float>>(snapshot.value);
  spare_.reset();
  table_ = *std::move(table);
  sum_ = std::move(sum);
  before_ = std::move(before);
  step_before_ = step_before;
  if (width_ != 0) FindStep({table_.watermark(), 0, 0});
  version_ = snapshot.table.version();
  skipped_ = snapshot.table.skipped();
  initialised_ = true;
  return absl::OkStatus();
}

absl::Status SliceState::CarryOut(const v1::VectorCommand& command) {
  sandblaster::Vectors& vectors = *optimizer_->search_vectors();
  if (absl::Status fits = vectors.Check(command); !fits.ok()) return fits;
  if (sandblaster::Vectors::SetsValue(command) && !SoleOwner(value_)) {
    value_ = std::make_shared<std::vector<float>>(*value_);
    forked_ = false;
  }
  vectors.CarryOut(command, absl::MakeSpan(*value_));
  return absl::OkStatus();
}

SliceState SliceState::Fork() {
  SliceState fork(number_, slice_, value_, optimizer_->Clone(), table_.plan());
  fork.table_ = table_;
  fork.version_ = version_;
  fork.skipped_ = skipped_;
  fork.initialised_ = initialised_;
  fork.width_ = width_;
  fork.sum_ = sum_;
  fork.step_ = step_;
  fork.missing_ = missing_;
  fork.begun_ = begun_;
  fork.before_ = before_;
  fork.step_before_ = step_before_;
  forked_ = true;
  return fork;
}

}  // namespace downpour::core
