#include "tests/simulation/reference.h"

#include <algorithm>
#include <iterator>

namespace downpour::simulation {

void Reference::BeginMode(std::uint32_t step_width, const core::DataPlan& plan) {
  TakeStep(plan);
  width_ = step_width;
  steps_at_beginning_ = steps_;
  steps_after_.clear();
  step_ = {};
  if (width_ != 0) FindStep(plan);
}

void Reference::GoOn(std::uint32_t step_width, const core::DataPlan& plan) {
  if (step_width != width_) BeginMode(step_width, plan);
}

void Reference::Apply(const core::UpdateId& update, bool skipped, const core::DataPlan& plan) {
  applied_.insert(update);
  if (!skipped) sum_.push_back(update);
  if (width_ == 0) return TakeStep(plan);
  const core::StepId step = core::StepOf(update, width_);
  bool whole = true;
  core::ForEachUpdateOf(step, width_, plan, [&](const core::UpdateId& other) { whole = whole && Contains(other); });
  if (!whole) return;
  TakeStep(plan);
  steps_after_[step] = steps_;
  FindStep(plan);
}

// With the mean over the samples of all its updates.
void Reference::TakeStep(const core::DataPlan& plan) {
  if (sum_.empty()) return;
  double samples = 0;
  for (const core::UpdateId& update : sum_) samples += plan.samples_in_update(update);
  for (const core::UpdateId& update : sum_) {
    for (const std::int64_t sample : plan.SampleIndices(update)) {
      const auto index = static_cast<std::size_t>(sample);
      samples_.resize(std::max(samples_.size(), index + 1));
      samples_[index] += plan.samples_in_update(update) / samples;
    }
  }
  ++steps_;
  sum_.clear();
}

void Reference::FindStep(const core::DataPlan& plan) {
  for (; step_.dataset_epoch < plan.epochs(); ++step_.dataset_epoch, step_.band = 0) {
    const std::uint32_t shards = plan.shards_in_epoch(step_.dataset_epoch);
    for (; std::uint64_t{step_.band} * width_ < shards; ++step_.band, step_.group = 0) {
      for (;; ++step_.group) {
        bool whole = true;
        const std::uint32_t updates = core::ForEachUpdateOf(
            step_, width_, plan, [&](const core::UpdateId& update) { whole = whole && Contains(update); });
        if (!whole) return;
        if (updates == 0) break;
      }
    }
  }
}

std::uint64_t Reference::StepsBefore(const core::StepId& step) const {
  const auto behind = steps_after_.lower_bound(step);
  return behind == steps_after_.begin() ? steps_at_beginning_ : std::prev(behind)->second;
}

}  // namespace downpour::simulation
